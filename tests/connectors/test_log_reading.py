"""What a log's lines are put together to: attempts, blocks, prefixes, damaged lines."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Options
from steptax.connectors.logs.lines import clean, moment_us, number
from steptax.connectors.registry import connector
from steptax.connectors.sources import blocks


def iteration(step: int, *, ms: float = 1000.0, clock: str = "", loss: float | None = None) -> str:
    """A line as Megatron-LM prints it."""
    shown = f" lm loss: {loss if loss is not None else 10 + step / 100:.6E} |"
    return (
        f" {clock}iteration {step:8d}/    9999 | consumed samples: {step * 8:12d} | "
        f"elapsed time per iteration (ms): {ms + step / 10:.1f} | learning rate: 1.000E-04 | "
        f"global batch size:     8 |{shown} loss scale: 1.0 | grad norm: 0.500 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def read(
    tmp_path: Path, text: str | bytes, kind: str = "megatron", **options: Any
) -> tuple[dict[str, list[dict[str, Any]]], list[Reject], list[str]]:
    path = tmp_path / "log.out"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return rows_of(list(connector(kind).read(path, Options(**options))))


def rows_of(
    batches: list[Batch],
) -> tuple[dict[str, list[dict[str, Any]]], list[Reject], list[str]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    rejects: list[Reject] = []
    notes: list[str] = []
    for batch in batches:
        rows.setdefault(batch.table, []).extend(batch.rows.to_pylist())
        rejects += batch.rejects
        notes += batch.notes
    return rows, rejects, notes


def attempts(rows: dict[str, list[dict[str, Any]]]) -> list[tuple[int, int]]:
    return [(r["attempt"], r["step"]) for r in rows["steps"]]


class TestLines:
    @pytest.mark.parametrize(
        ("text", "rest", "host", "rank"),
        [
            ("node-7: hello 1", "hello 1", "node-7", None),
            (" 12: INFO:x", "INFO:x", "task 12", None),
            ("[1,3]<stdout>:step", "step", None, 3),
            ("[1,3]<stderr>: step", "step", None, 3),
            ("[rank5]:step", "step", None, 5),
            ("node-1: [default3]:step", "step", "node-1 default3", None),
            ("gpu01: [rank5]:[rank5]:W", "W", "gpu01", 5),
            ("\x1b[32m[rank2]:\x1b[0mred\x1b[38;2;1;2;3m x", "red x", None, 2),
            ("INFO: no host 1", "INFO: no host 1", None, None),
            ("[2026-01-01 00:00:00,1] [Rank 6] step=1", None, None, 6),
            ("[99999999999999]: x", "[99999999999999]: x", None, None),
        ],
    )
    def test_prefixes_come_off(
        self, text: str, rest: str | None, host: str | None, rank: int | None
    ) -> None:
        line = clean(text, 1, text)
        assert line.text == (text if rest is None else rest)
        assert (line.host, line.rank) == (host, rank)

    @pytest.mark.parametrize(
        ("text", "us"),
        [
            ("[2026-03-01 10:00:02] x", 1772359202000000),
            ("[2026-03-01 10:00:02,718] x", 1772359202718000),
            ("[2026-03-01 10:00:02.718281] x", 1772359202718281),
            ("[20260301 10:00:02][rank-0/1]", 1772359202000000),
            ("2026-03-01T10:00:02+01:00 x", 1772355602000000),
            ("[after training] datetime: 2026-03-01 10:00:02", 1772359202000000),
            ("[2026-13-01 10:00:02] x", None),
            ("no clock 2026", None),
        ],
    )
    def test_moments(self, text: str, us: int | None) -> None:
        assert moment_us(text)[0] == us

    @given(st.floats(allow_nan=False, allow_infinity=False))
    def test_numbers_come_back(self, value: float) -> None:
        assert number(repr(value)) == value

    @pytest.mark.parametrize(
        ("text", "value"), [("8,750", 8750), ("1.0E+01", 10), ("x", None), ("", None), ("1e", None)]
    )
    def test_what_is_a_number(self, text: str, value: float | None) -> None:
        assert number(text) == value


class TestAttempts:
    def test_a_step_that_goes_back_is_a_new_attempt(self, tmp_path: Path) -> None:
        clock = "[2026-03-01 10:{:02d}:00] "
        order = [1, 2, 3, 4, 3, 4, 5, 5, 6]
        lines = [iteration(s, clock=clock.format(i), loss=float(i)) for i, s in enumerate(order, 1)]
        rows, rejects, _ = read(tmp_path, "\n".join(lines) + "\n")
        assert attempts(rows) == [
            (0, 1), (0, 2), (0, 3), (0, 4), (1, 3), (1, 4), (1, 5), (2, 5), (2, 6),
        ]  # fmt: skip
        back = [e for e in rows["events"] if e["kind"] == "rollback"]
        assert [(e["attempt"], json.loads(e["detail"])["step"]) for e in back] == [(1, 2), (2, 4)]
        assert not rejects

    def test_one_damaged_number_is_no_restart(self, tmp_path: Path) -> None:
        for wrong in (2, 900):
            order = [5, 6, 7, 8, wrong, 10, 11]
            rows, rejects, _ = read(tmp_path, "\n".join(map(iteration, order)) + "\n")
            assert attempts(rows) == [(0, s) for s in order if s != wrong]
            (odd,) = rejects
            assert (odd.row, odd.field) == (5, "step")
            assert f"found {wrong}" in odd.reason

    def test_a_lost_line_is_a_gap(self, tmp_path: Path) -> None:
        rows, rejects, _ = read(tmp_path, "\n".join(map(iteration, [1, 2, 3, 5, 6])) + "\n")
        assert attempts(rows) == [(0, s) for s in (1, 2, 3, 5, 6)]
        assert not rejects

    def test_a_log_that_is_there_twice_counts_once(self, tmp_path: Path) -> None:
        once = "\n".join(map(iteration, range(1, 6))) + "\n"
        rows, rejects, _ = read(tmp_path, once * 2)
        assert attempts(rows) == [(0, s) for s in range(1, 6)]
        assert [r.row for r in rejects] == [6, 7, 8, 9, 10]
        assert all("repeats line" in r.reason for r in rejects)

    def test_ranks_that_all_print_are_streams_of_their_own(self, tmp_path: Path) -> None:
        lines: list[str] = []
        for step in (1, 2, 3, 2, 3):
            for rank in (0, 1):
                lines.append(f"[rank{rank}]:{iteration(step, ms=1000 + len(lines))}")
        rows, rejects, _ = read(tmp_path, "\n".join(lines) + "\n")
        for rank in (0, 1):
            mine = [(r["attempt"], r["step"]) for r in rows["steps"] if r["rank"] == rank]
            assert mine == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3)]
        assert not rejects
        assert [r["rank"] for r in rows["ranks"]] == [0, 1]

    def test_elastic_attempts_of_maxtext(self, tmp_path: Path) -> None:
        step = "completed step: {}, seconds: 0.15, TFLOP/s/device: 43.4, loss: {}\n"
        text = "".join(step.format(s, 300 - s) for s in (8, 9, 10))
        text += "Elastic attempt 2 out of 10\n"
        text += "".join(step.format(s, 200 - s) for s in (11, 12))
        rows, _, _ = read(tmp_path, text, "maxtext")
        assert attempts(rows) == [(0, 8), (0, 9), (0, 10), (1, 11), (1, 12)]


class TestMegatron:
    def test_timers_of_every_rank(self, tmp_path: Path) -> None:
        text = "\n".join(
            [
                iteration(1),
                "times across ranks (ms):",
                "  forward-compute:",
                "     rank  0: 120.50",
                "     rank  1: 480.25",
                "  backward-compute:",
                "     rank  0: 240.00",
                "     rank  1: 250.00",
                iteration(2),
                "max time across ranks (ms):",
                "    optimizer ......................................: 12.50",
            ]
        )
        rows, rejects, _ = read(tmp_path, text + "\n")
        found = {
            (r["step"], r["name"], r["subject"], r.get("rank")): r["value"]
            for r in rows["printed_metrics"]
            if r["unit"] == "ms" and r["name"] != "step_time"
        }
        assert found == {
            (1, "forward-compute", "rank 0", 0): 120.5,
            (1, "forward-compute", "rank 1", 1): 480.25,
            (1, "backward-compute", "rank 0", 0): 240.0,
            (1, "backward-compute", "rank 1", 1): 250.0,
            (2, "optimizer", "max over ranks", None): 12.5,
        }
        assert not rejects
        # The ranks' own step times are not known, so there is one row per step.
        assert len(rows["steps"]) == 2

    @pytest.mark.parametrize("prefix", ["node-{}: ", " {}: ", "[1,{}]<stdout>:", "[rank{}]:"])
    def test_hosts_that_write_between_each_other(self, prefix: str, tmp_path: Path) -> None:
        block = "(min, max) time across ranks (ms):"
        lines = []
        for step in (1, 2, 3):
            lines += [
                prefix.format(1) + iteration(step),
                prefix.format(0) + "(min, max) time across ranks (ms):",
                prefix.format(1) + block,
                prefix.format(0) + f"    of-another .....: (9.00, {step}.50)",
                prefix.format(1) + f"    forward-backward .....: ({step}.25, {step}.75)",
                prefix.format(0) + "quite another thing",
            ]
        rows, rejects, _ = read(tmp_path, "\n".join(lines) + "\n")
        assert attempts(rows) == [(0, 1), (0, 2), (0, 3)]
        least = [r for r in rows["printed_metrics"] if r["subject"] == "min over ranks"]
        mine = {r["step"]: r["value"] for r in least if r["name"] == "forward-backward"}
        assert mine == {1: 1.25, 2: 2.25, 3: 3.25}
        assert not rejects

    def test_the_newest_fields(self, tmp_path: Path) -> None:
        line = (
            " [2026-03-01 10:00:00.250000] iteration        7/      10 | consumed samples:   "
            "56 | skipped samples:    8 | elapsed time per iteration (ms): 1000.5 | throughput per "
            "GPU (TFLOP/s/GPU): 812.5 | energy per GPU (J/iter/GPU): 650.5 | power per GPU (W/GPU):"
            " 649.9 | learning rate: 1.000000E-04 | global batch size:     8 | lm loss: nan | "
            "loss scale: 1.0 | grad norm: inf | number of skipped iterations:   1 | number of nan "
            "iterations:   1 |\n"
        )
        rows, rejects, _ = read(tmp_path, line)
        printed = {r["name"]: (r["value"], r["unit"], r["text"]) for r in rows["printed_metrics"]}
        assert printed["energy_per_gpu"] == (650.5, "J/iter/GPU", "650.5")
        assert printed["power_per_gpu"] == (649.9, "W/GPU", "649.9")
        assert printed["skipped_samples"][0] == 8
        assert printed["loss"] == (None, None, "nan")
        assert printed["grad_norm"] == (None, None, "inf")
        assert printed["nan_steps"][0] == 1
        assert rows["steps"][0].get("loss") is None
        assert not rejects

    def test_sizes_of_the_job(self, tmp_path: Path) -> None:
        text = (
            "using world size: 16, data-parallel size: 2, context-parallel size: 1, "
            "tensor-model-parallel size: 4, pipeline-model-parallel size: 2\n"
            "  num_layers ...................................... 32\n"
            "  hidden_size ..................................... 4096\n"
            "  num_attention_heads ............................. 32\n"
            "  seq_length ...................................... 2048\n"
            "  bf16 ............................................ True\n"
            "  fp16 ............................................ False\n"
            "  num_experts ..................................... None\n" + iteration(1) + "\n"
        )
        rows, _, notes = read(tmp_path, text)
        (job,) = rows["jobs"]
        sizes = ("world_size", "dp_size", "tp_size", "pp_size", "layers", "hidden", "heads")
        assert [job[name] for name in sizes] == [16, 2, 4, 2, 32, 4096, 32]
        assert (job["dtype"], job["seq_len"], job["tokens_per_step"]) == ("bf16", 2048, 8 * 2048)
        assert "experts" not in job
        assert not any("how many ranks" in note for note in notes)

    def test_checkpoints_and_evaluations(self, tmp_path: Path) -> None:
        clock = "[2026-03-01 10:00:{:02d}] "
        text = "\n".join(
            [
                " successfully loaded checkpoint from /c [ t 1/8, p 1/1 ] at iteration 10",
                iteration(11, clock=clock.format(0)),
                iteration(12, clock=clock.format(10)),
                "[2026-03-01 10:00:11] saving checkpoint at iteration      12 to /c",
                "[2026-03-01 10:00:15] successfully saved checkpoint from iteration      12 to /c",
                "-" * 50,
                " validation loss at iteration 12 | lm loss value: 2.5E+00 | lm loss PPL: 9.5 | ",
                iteration(13, clock=clock.format(30)),
            ]
        )
        rows, rejects, notes = read(tmp_path, text + "\n")
        found = {e["kind"]: e for e in rows["events"]}
        save = found["checkpoint_save"]
        assert save["end_us"] - save["start_us"] == 4_000_000
        assert json.loads(save["detail"])["step"] == 12
        assert "clock" in json.loads(found["eval"]["detail"])
        assert "checkpoint_restore" not in found
        assert any("checkpoint_restore without a moment" in note for note in notes)
        loss = [r for r in rows["printed_metrics"] if r["name"] == "val_loss"]
        assert [(r["step"], r["value"]) for r in loss] == [(12, 2.5)]
        assert not rejects

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            (iteration(3)[:-1], "ends in '|'"),
            (iteration(3)[:70], "ends in '|'"),
            (iteration(3).replace("elapsed", "elapXed"), "elapsed time per iteration"),
            (iteration(3).replace("1000.3", "1O00.3"), "elapsed time per iteration"),
            (iteration(3) + iteration(4), "two that were written into one line"),
            (iteration(3).replace("/    9999", "/   99x9"), "damaged line"),
        ],
    )
    def test_a_damaged_line_is_told_and_costs_only_itself(
        self, line: str, reason: str, tmp_path: Path
    ) -> None:
        text = "\n".join([iteration(1), iteration(2), line, iteration(4), iteration(5)])
        rows, rejects, notes = read(tmp_path, text + "\n")
        assert attempts(rows) == [(0, s) for s in (1, 2, 4, 5)]
        (told,) = rejects
        assert told.row == 3
        assert reason in told.reason
        assert any("1 damaged" in note for note in notes)

    def test_what_nobody_understood_is_counted_and_shown(self, tmp_path: Path) -> None:
        text = f"{iteration(1)}\nquite another thing\n\n{iteration(2)}\nand one more\n"
        _, _, notes = read(tmp_path, text)
        assert "lines: 2 steps, 1 blank, 2 not understood" in " ".join(notes)
        assert "line 2: quite another thing" in " ".join(notes)

    def test_dialect_is_detected_or_named(self, tmp_path: Path) -> None:
        rows, _, _ = read(tmp_path, iteration(1) + "\n")
        assert rows["jobs"][0]["framework"] == "Megatron-LM"
        rows, _, _ = read(tmp_path, iteration(1) + "\n", extra={"dialect": "primus"})
        assert rows["jobs"][0]["framework"] == "Primus"
        with pytest.raises(InputError, match="no dialect 'klingon'"):
            read(tmp_path, iteration(1) + "\n", extra={"dialect": "klingon"})

    def test_another_file_is_refused_by_name(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="no line is one of a Megatron log") as caught:
            read(tmp_path, "a\nb\n")
        assert "log.out" in (caught.value.where or "")

    def test_a_block_over_the_end_of_a_stretch(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = "\n".join(
            f"{iteration(s)}\n(min, max) time across ranks (ms):\n"
            f"    forward-backward .....: ({s}.50, {s}.75)"
            for s in range(1, 40)
        )
        whole, _, _ = read(tmp_path, text + "\n")
        assert blocks.__kwdefaults__ is not None
        monkeypatch.setitem(blocks.__kwdefaults__, "size", 300)
        pieces, _, _ = read(tmp_path, text + "\n")
        assert pieces["printed_metrics"] == whole["printed_metrics"]
        assert pieces["steps"] == whole["steps"]


class TestOthers:
    def test_deepspeed_alone(self, tmp_path: Path) -> None:
        head = "[2026-03-01 10:00:{:02d},000] [INFO] [logging.py:96:log_dist] [Rank 0] "
        text = "".join(
            head.format(at) + f"step={step}, skipped=0, lr=[0.0001], mom=[(0.9, 0.95)]\n"
            + head.format(at) + f"time (ms) | fwd: {step}.50 | bwd: 200.25 | step: 10.00\n"
            for at, step in ((0, 10), (5, 20), (12, 30))
        )  # fmt: skip
        rows, rejects, notes = read(tmp_path, text, "deepspeed")
        assert [(r["step"], r["duration_us"], r["rank"]) for r in rows["steps"]] == [
            (20, 500_000, 0),
            (30, 700_000, 0),
        ]
        fwd = {r["step"]: r["value"] for r in rows["printed_metrics"] if r["name"] == "fwd"}
        assert fwd == {10: 10.5, 20: 20.5, 30: 30.5}
        assert any("between two lines" in note for note in notes)
        assert not rejects

    def test_mfu_that_is_not_known(self, tmp_path: Path) -> None:
        line = "[titan] 2026-03-01 10:00:0{} - root - INFO - step: {}  loss: 1.5  memory: 1.00GiB"
        line += "(2.00%)  tps: 9,982  tflops: 841.08  mfu: {}\n"
        text = line.format(1, 1, "N/A") + line.format(2, 2, "N/A") + line.format(3, 3, "3")
        rows, rejects, _ = read(tmp_path, text, "torchtitan")
        mfu = [(r["value"], r["text"]) for r in rows["printed_metrics"] if r["name"] == "mfu"]
        assert mfu == [(None, "N/A"), (None, "N/A")]
        assert [(r.row, r.field) for r in rejects] == [(3, "mfu")]

    def test_dllogger(self, tmp_path: Path) -> None:
        data = {"train_step_timing in s": 1.5, "reduced_train_loss": 2.5}
        text = "".join(
            "DLLL " + json.dumps({"timestamp": "1.5", "step": step, "data": data}) + "\n"
            for step in (1, 2, 3)
        )
        rows, rejects, _ = read(tmp_path, text + "DLLL {broken\n", "nemo")
        assert [(r["step"], r["duration_us"]) for r in rows["steps"]] == [
            (1, 1_500_000), (2, 1_500_000), (3, 1_500_000),
        ]  # fmt: skip
        assert [r.row for r in rejects] == [4]

    def test_loss_of_a_trainer_without_a_bar(self, tmp_path: Path) -> None:
        text = "{'loss': 2.5, 'epoch': 0.5}\n{'loss': 2.25, 'epoch': 1.0}\n"
        rows, _, _ = read(tmp_path, text, "hf-trainer")
        loss = [(r["subject"], r["value"]) for r in rows["printed_metrics"] if r["name"] == "loss"]
        assert loss == [("job, epoch 0.5", 2.5), ("job, epoch 1.0", 2.25)]

    def test_flags_of_nvrx(self, tmp_path: Path) -> None:
        text = (
            "GPU relative performance:\n Worst performing 1/16 ranks:\n"
            "  Rank=7 Node=node-1 Score=nan\n"
            "STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected "
            "ranks: {StragglerId(rank=7, node='node-1')}\n"
            "STRAGGLER DETECTION WARNING: Some GPUs have worse individual performance. Affected "
            "ranks: [3, 7]\n"
        )
        rows, _, _ = read(tmp_path, text, "nvrx")
        found = [
            (r["metric"], r["listed"], r["rank"], r.get("score"), r["flagged"])
            for r in rows["reported_scores"]
        ]
        assert found == [
            ("GPU relative performance", "lowest", 7, None, None),
            ("GPU relative performance", "flagged", 7, None, True),
            ("GPU individual performance", "flagged", 3, None, True),
            ("GPU individual performance", "flagged", 7, None, True),
        ]


@st.composite
def hurt(draw: st.DrawFn, line: bytes) -> list[bytes]:
    """What becomes of one line: flipped, cut, repeated, lost, joined, or in another encoding."""
    what = draw(st.sampled_from(["flip", "cut", "repeat", "lose", "utf-16", "noise", "ansi"]))
    if what == "flip":
        at = draw(st.integers(0, len(line) - 1))
        return [line[:at] + bytes([draw(st.integers(0, 255))]) + line[at + 1 :]]
    if what == "cut":
        return [line[: draw(st.integers(0, len(line)))]]
    if what == "repeat":
        return [line] * draw(st.integers(2, 3))
    if what == "lose":
        return []
    if what == "noise":
        return [draw(st.binary(max_size=40)).replace(b"\n", b"").replace(b"\r", b""), line]
    if what == "ansi":
        return [b"\x1b[32m" + line + b"\x1b[0m"]
    return [line.decode().encode(what).replace(b"\n", b"\r")]


LOGS = {
    "megatron": [iteration(s).encode() for s in range(100, 124)],
    "maxtext": [
        (
            f"completed step: {s}, seconds: {5 + s / 100:.3f}, TFLOP/s/device: 134.9, loss: {s}.5"
        ).encode()
        for s in range(100, 124)
    ],
    "nemo": [
        f"Training epoch 0, iteration {s}/999 | lr: 1e-06 | global_step: {s} | reduced_train_loss: "
        f"{s}.25 | train_step_timing in s: {1 + s / 1000:.3f} | consumed_samples: {s}".encode()
        for s in range(100, 124)
    ],
}


@pytest.mark.parametrize("kind", LOGS)
@settings(
    max_examples=80,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_untouched_lines_are_kept(kind: str, data: st.DataObject, tmp_path: Path) -> None:
    body = LOGS[kind]
    want = {r["step"]: r for r in read(tmp_path, b"\n".join([*body, b""]), kind)[0]["steps"]}
    assert len(want) == len(body)
    # One odd line between good ones is told apart; of two neighbours nobody could say which is odd.
    touched = data.draw(
        st.sets(st.integers(2, len(body) - 3), max_size=5).filter(
            lambda found: all(b - a > 3 for a, b in pairwise(sorted(found)))
        )
    )
    out: list[bytes] = []
    for i, line in enumerate(body):
        out += data.draw(hurt(line)) if i in touched else [line]
    rows, rejects, _ = read(tmp_path, b"\n".join([*out, b""]), kind)
    got = [{k: v for k, v in r.items() if k != "source_row"} for r in rows["steps"]]
    for i in set(range(len(body))) - touched:
        row = {k: v for k, v in want[100 + i].items() if k != "source_row"}
        assert row in got, (i, touched)
    assert len(got) <= len(body) + len(touched)
    for reject in rejects:
        assert reject.row is not None
        assert reject.reason
