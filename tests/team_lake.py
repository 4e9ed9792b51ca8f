"""Jobs of one team with rows in many tables, every text of it built from one word."""

from __future__ import annotations

from typing import Any

from steptax.app.lake import Lake
from tests.app.fleet_lake import RANKS, S, charge, event, rows, us

START = us(2026, 3, 1)
STEPS = 40


def store_team(lake: Lake, word: str, *, begin_us: int = START) -> str:
    """Store a job whose names are all ``word`` and something; gives its id."""
    job = f"{word}-run"
    end = begin_us + STEPS * S
    put = {
        "jobs": [
            {
                "job_id": job,
                "name": f"{word} training",
                "team": word,
                "project": f"{word}-project",
                "cluster": f"{word}-cluster",
                "owner": f"{word}-owner",
                "framework": f"{word}-framework",
                "account": f"{word}-account",
                "state": "completed",
                "state_detail": f"{word}-state",
                "gpu_model": "NVIDIA H100 80GB HBM3",
                "world_size": RANKS,
                "hosts": f"{word}-node",
                "start_us": begin_us,
                "end_us": end,
            }
        ],
        "ranks": [
            {
                "job_id": job,
                "rank": rank,
                "host": f"{word}-node",
                "local_rank": rank,
                "gpu_uuid": f"GPU-{word}-{rank}",
                "gpu_index": rank,
                "dp": rank // 2,
                "pp": rank % 2,
            }
            for rank in range(RANKS)
        ],
        "steps": [
            {
                "job_id": job,
                "attempt": 0,
                "step": step,
                "rank": rank,
                "start_us": begin_us + step * S,
                "duration_us": S,
                "compute_us": 900_000 if rank == 1 else 600_000 + step % 7,
                "comm_us": 100_000 if rank == 1 else 400_000 - step % 7,
                "loss": 3.0 - step / 100,
            }
            for step in range(STEPS)
            for rank in range(RANKS)
        ],
        "events": [
            event(job, "allocated", begin_us, end),
            event(job, "failure", begin_us + 5 * S) | {"detail": f"{word} failed"},
        ],
        "collectives": [
            {
                "job_id": job,
                "comm_id": f"{word}-comm",
                "op": "all_reduce",
                "seq": seq,
                "rank": rank,
                "rank_scope": "global",
                "name": f"{word}-allreduce",
                "dtype": "bf16",
                "bytes": 1 << 20,
                "n_ranks": RANKS,
                "start_us": begin_us + seq * S + rank * 100,
                "duration_us": 5_000,
            }
            for seq in range(8)
            for rank in range(RANKS)
        ],
        "printed_metrics": [
            {
                "job_id": job,
                "attempt": 0,
                "step": step,
                "subject": "job",
                "name": f"{word}_printed",
                "text": f"{step}.5",
                "value": step + 0.5,
                "unit": word,
            }
            for step in range(4)
        ],
        "device_samples": [
            {
                "host": f"{word}-node",
                "gpu_uuid": f"GPU-{word}-{rank}",
                "ts_us": begin_us + second * S,
                "util_ratio": 0.9,
                "power_w": 600.0,
                "temperature_c": 60.0,
                "gpu_index": rank,
                "gpu_model": f"{word} H100",
                "health": f"{word}-health" if second == 3 else None,
            }
            for second in range(STEPS)
            for rank in range(RANKS)
        ],
        "charges": [charge(f"{word}-line", begin_us, end, "12.50", f"{word}-node")],
        "budgets": [
            {
                "scope": f"team:{word}",
                "period": "2026-03",
                "set_at_us": begin_us,
                "set_by": f"{word}-boss",
                "note": f"{word}-note",
            }
        ],
        "rejects": [
            {"table": "steps", "reason": f"{word}-reason", "raw": f"{word},1,2", "source_row": 3}
        ],
    }
    for table, records in put.items():
        lake.append(table, rows(_known(table, records)), source=f"test:{word}.csv")
    return job


def _known(table: str, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records with the columns that the table has."""
    from steptax.app.schema import TABLES

    names = TABLES[table].names
    return [{k: v for k, v in record.items() if k in names} for record in records]
