"""Which kind a file is, without being told."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steptax.app.errors import InputError
from steptax.connectors.base import Options
from steptax.connectors.recognise import HEAD_BYTES, WHOLE_BYTES, _beginning, kind_of, readings
from steptax.connectors.registry import CONNECTORS

EXAMPLES = sorted((Path(__file__).parent / "examples").iterdir())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_example_of_every_connector_is_of_its_kind(path: Path) -> None:
    assert kind_of(path) == path.stem


def test_every_connector_has_such_an_example() -> None:
    assert {path.stem for path in EXAMPLES} == set(CONNECTORS)


#: Real files by folder; the kind is the folder's where none is said.
REAL = {
    "aws_cur": "aws-cur",
    "azure_billing": "azure-cost",
    "dcgm/dcgm_a100_mig.prom": "dcgm",
    "flight_recorder/nvrx_gpu_error_1st": "flight-recorder",
    "focus": "focus",
    "hf_trainer": "hf-trainer",
    "kineto/gen_torch2.14_gloo_4ranks_a": "kineto",
    "kineto/hta_nccl_args_rank0of2_step4.json.gz": "kineto",
    "lightning": "lightning",
    "maxtext": "maxtext",
    "megatron": "megatron",
    "megatron_scalars": "megatron-scalars",
    "mlflow": "mlflow",
    "nccl_inspector": "nccl-inspector",
    "nccl_tests": "nccl-tests",
    "nemo": "nemo",
    "node_exporter": "node-exporter",
    "nvidia_smi": "nvidia-smi",
    "opencost": "opencost",
    "prometheus_api": "prometheus",
    "rocm_smi": "rocm-smi",
    "slurm_rest": "slurm-rest",
    "slurm_sacct": "sacct",
    "stragglers": "nvrx",
    "tensorboard": "tensorboard",
    "torchtitan": "torchtitan",
    "wandb": "wandb",
}


@pytest.mark.parametrize("name", REAL)
def test_real_files_are_recognised(shared: Callable[[str], Path], name: str) -> None:
    assert kind_of(shared(f"connectors/{name}")) == REAL[name]


def test_of_a_long_file_the_beginning_is_enough(tmp_path: Path) -> None:
    head = "step,rank,duration_ms\n"
    rows = "".join(f"{k // 64},{k % 64},120.5\n" for k in range(400_000))
    (tmp_path / "plain.csv").write_text(head + rows)
    with gzip.open(tmp_path / "packed.csv.gz", "wt", compresslevel=0) as handle:
        handle.write(head + rows)
    table = pa.table({"step": range(400_000), "rank": [0] * 400_000, "duration_us": [5] * 400_000})
    pq.write_table(table, tmp_path / "columns.parquet", compression="none", use_dictionary=False)
    for path in tmp_path.iterdir():
        assert path.stat().st_size > WHOLE_BYTES
        fittest = readings(path)[0]
        assert fittest.kind == "steps"
        assert 0 < fittest.accepted < 100_000


def test_of_a_packed_file_no_more_than_that_is_unpacked(tmp_path: Path) -> None:
    """It may hold a thousand times its size, and each connector would unpack all of it."""
    head = b"step,rank,duration_ms\n"
    for name, size in (("few", 100), ("bomb", 2 * WHOLE_BYTES)):
        with gzip.open(tmp_path / f"{name}.csv.gz", "wb") as handle:
            handle.write(head + b"0,0,1\n" * (size // 6))
        with _beginning(tmp_path / f"{name}.csv.gz") as sample:
            if name == "few":
                assert sample == tmp_path / "few.csv.gz"
            else:
                assert 0 < sample.stat().st_size <= HEAD_BYTES
    assert (tmp_path / "bomb.csv.gz").stat().st_size < WHOLE_BYTES / 100
    assert kind_of(tmp_path / "bomb.csv.gz") == "steps"


def test_what_only_lacks_a_word_is_named_with_the_word(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("step,rank,duration\n1,0,5\n1,1,6\n")
    with pytest.raises(InputError, match="steps: the unit of column 'duration' is not known"):
        kind_of(path)
    assert kind_of(path, Options(time_unit="ms")) == "steps"
    path.write_text("step,rank,forward_ms,backward_ms\n1,0,5,6\n1,1,6,7\n")
    with pytest.raises(InputError, match="steps: no column for duration"):
        kind_of(path)
    whole = Options(mapping={"duration": "forward_ms+backward_ms"})
    assert kind_of(path, whole) == "steps"


JOBS = "job_id,team,gpus,start,end,state\n" + "".join(
    f"{k},vision,8,2026-01-0{k}T00:00:00,2026-01-0{k}T06:00:00,COMPLETED\n" for k in (1, 2, 3, 4)
)


def test_a_header_wins_over_a_guess_without_one(tmp_path: Path) -> None:
    examples = Path(__file__).parent / "examples"
    (tmp_path / "jobs.csv").write_text(JOBS)
    assert kind_of(tmp_path / "jobs.csv") == "jobs"
    # Amounts that come first look like the ids of jobs.
    bill = (examples / "focus.csv").read_text()
    (tmp_path / "bill.csv").write_text(bill)
    assert bill.startswith('"BilledCost"')
    assert kind_of(tmp_path / "bill.csv") == "focus"
    (tmp_path / "samples.csv").write_text(
        "timestamp,uuid,gpu_util_pct,power_w\n2026-01-01T00:00:00Z,GPU-aaaa,97,612.5\n"
    )
    assert kind_of(tmp_path / "samples.csv") == "device-samples"


@pytest.mark.parametrize(
    "text",
    [
        "provider,gpu_model,gpu_count,usd_per_hour\nA,H100,8,20\nB,H100,8,21\n",
        "date,gpu_model,series,usd_per_gpu_hour\n2026-09-29,B300,index,7.89\n",
        "round,system,benchmark,duration_s,mean_w\n5.0,x,bert,221.0,9690.4\n",
        "".join(f'{{"rows": {k}, "what": "text"}}\n' for k in range(3)) + "prose\n" * 60,
    ],
)
def test_what_only_resembles_a_kind_is_not_taken_for_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(InputError, match="no connector reads it as it is"):
        kind_of(path)


def test_no_connector_reads_prose(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear all,\nthe cluster is down.\n")
    with pytest.raises(InputError, match="no connector reads it"):
        kind_of(path)


def test_a_folder_of_two_kinds_is_not_guessed(tmp_path: Path) -> None:
    for name in ("steps.csv", "sacct.psv"):
        (tmp_path / name).write_bytes((Path(__file__).parent / "examples" / name).read_bytes())
    with pytest.raises(InputError, match="sacct 1, steps 1"):
        kind_of(tmp_path)


def test_the_command_needs_no_kind(steptax: Callable[..., Any], tmp_path: Path) -> None:
    folder = Path(__file__).parent / "examples"
    told = steptax("ingest", str(folder / "megatron.log"), str(folder / "steps.csv"))
    assert {"steps", "events"} <= told["tables"].keys()
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "a.log").write_bytes((folder / "nvrx.log").read_bytes())
    (tmp_path / "reports" / "notes.txt").write_text("nothing\n")
    told = steptax("ingest", str(tmp_path / "reports"))
    assert told["tables"]["reported_scores"]["accepted"] > 0


def test_where_every_row_is_rejected_the_command_says_so(
    steptax: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("step,rank,duration_ms\nx,0,5\n")
    told = steptax("ingest", "steps", str(path), exits=3)
    assert told["tables"]["steps"] == {"accepted": 0, "rejected": 1, "stored_before": 0}
    steptax("ingest", "steps", str(Path(__file__).parent / "examples" / "steps.csv"))


def test_a_row_without_an_end_is_named_as_such(steptax: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("step,rank,duration_ms\n" + "7" * 300_000)
    error = steptax("ingest", "steps", tmp_path / "a.csv", fails=2)
    assert "its first row goes on for more than" in error["message"]
