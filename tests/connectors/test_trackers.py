"""TensorBoard, Weights & Biases and MLflow: their files, values and the choice of the loss."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
import struct
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Options
from steptax.connectors.registry import connector
from steptax.connectors.trackers.crc32c import crc32c, masked, masked_many
from steptax.connectors.trackers.tags import choose_loss
from steptax.connectors.trackers.tfrecord import read_records
from steptax.connectors.trackers.wandb_log import HEADER
from steptax.connectors.trackers.wire import fields

REAL_TB = "connectors/tensorboard/run0/events.out.tfevents.1700000000.node-0"
REAL_WANDB = "connectors/wandb/offline-run-run0open.wandb"
REAL_MLFLOW = "connectors/mlflow/mlruns/0/run0"
GOLDEN = "connectors/megatron_scalars/gpt3_7b_tp4_h100.json"
"""The values that the three were made from."""


class Got:
    """What a connector gave."""

    def __init__(self, kind: str, path: Path, **options: Any) -> None:
        self.batches: list[Batch] = list(connector(kind).read(path, Options(**options)))
        self.rejects: list[Reject] = [r for b in self.batches for r in b.rejects]
        self.notes = " | ".join(note for b in self.batches for note in b.notes)

    def rows(self, name: str = "printed_metrics") -> list[dict[str, Any]]:
        return [r for b in self.batches if b.table == name for r in b.rows.to_pylist()]

    def values(self, name: str = "loss") -> dict[int, float | None]:
        return {r["step"]: r["value"] for r in self.rows() if r["name"] == name}

    @property
    def job(self) -> dict[str, Any]:
        [row] = self.rows("jobs")
        return row


def golden(shared: Callable[[str], Path], metric: str) -> dict[int, float]:
    """Values of the golden file, NaN left out."""
    found = json.loads(shared(GOLDEN).read_text())[metric]["values"]
    return {int(step): value for step, value in found.items() if value != "nan"}


# -- making files, from the formats ---------------------------------------------------------------


def number(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def block(field: int, body: bytes) -> bytes:
    return number(field << 3 | 2) + number(len(body)) + body


def record(body: bytes) -> bytes:
    head = struct.pack("<Q", len(body))
    return (
        head
        + struct.pack("<I", masked(crc32c(head)))
        + body
        + struct.pack("<I", masked(crc32c(body)))
    )


def event(step: int, tag: str, value: float, *, wall_s: float = 0.0) -> bytes:
    scalar = block(1, tag.encode()) + b"\x15" + struct.pack("<f", value)
    head = b"\x09" + struct.pack("<d", wall_s or 1.7e9 + step) + b"\x10" + number(step)
    return record(head + block(5, block(1, scalar)))


START = record(b"\x09" + struct.pack("<d", 1.7e9 - 5) + block(3, b"brain.Event:2"))


def events(steps: Iterable[int], tag: str = "lm loss", *, later_s: float = 0.0) -> bytes:
    return START + b"".join(
        event(step, tag, 8 / (step + 1), wall_s=1.7e9 + later_s + step) for step in steps
    )


def wandb_file(bodies: Iterable[bytes]) -> bytes:
    """Records in pieces, as the blocks of 32 KiB have it."""
    out = bytearray(HEADER)
    for body in bodies:
        left, is_first = body, True
        while True:
            room = 32768 - len(out) % 32768
            if room < 7:
                out += bytes(room)
                room = 32768
            piece, left = left[: room - 7], left[room - 7 :]
            kind = (1 if not left else 2) if is_first else (4 if not left else 3)
            out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + piece), len(piece), kind) + piece
            is_first = False
            if not left:
                break
    return bytes(out)


def history(**values: Any) -> bytes:
    items = (
        block(1, block(2, key.encode()) + block(16, json.dumps(value).encode()))
        for key, value in values.items()
    )
    return block(2, b"".join(items))


# -- checksums and framing ------------------------------------------------------------------------


def test_crc32c_of_the_standard() -> None:
    # RFC 3720, appendix B.4.
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"123456789") == 0xE3069283


@given(st.lists(st.binary(max_size=40), max_size=40))
def test_many_checksums_are_those_of_each(records: list[bytes]) -> None:
    assert masked_many(records) == [masked(crc32c(r)) for r in records]


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_numbers_of_the_wire_come_back(values: list[int]) -> None:
    data = b"".join(b"\x08" + number(value) for value in values)
    assert [value for _, _, value, _ in fields(data)] == values


@given(st.binary(max_size=60))
def test_no_bytes_of_the_wire_raise_anything_but_a_value_error(data: bytes) -> None:
    try:
        list(fields(data))
    except ValueError:
        return


@pytest.mark.parametrize("stretch", [1, 13, 64, 4096])
def test_records_do_not_depend_on_the_stretches_they_are_read_in(
    stretch: int, tmp_path: Path
) -> None:
    path = tmp_path / "a.tfevents.1"
    path.write_bytes(events(range(40)))
    found = [r for part in read_records(path, stretch=stretch) for r in part.sound()[0]]
    assert [n for n, _ in found] == list(range(1, 42))
    assert found == [r for part in read_records(path) for r in part.sound()[0]]


# -- TensorBoard ----------------------------------------------------------------------------------


class TestTensorboard:
    def test_the_real_file_has_the_values_it_was_made_from(
        self, shared: Callable[[str], Path]
    ) -> None:
        got = Got("tensorboard", shared(REAL_TB))
        for tag, name in (("lm loss", "loss"), ("num-zeros", "num-zeros")):
            want = golden(shared, tag)
            assert got.values(name) == {
                step: struct.unpack("<f", struct.pack("<f", value))[0]
                for step, value in want.items()
            }
        times = got.values("iteration-time")
        assert {s for s, v in times.items() if v is not None} == set(
            golden(shared, "iteration-time")
        )
        assert sum(v is None for v in times.values()) == 13
        assert {r["text"] for r in got.rows() if r["value"] is None} == {"nan"}
        at = {r["step"]: r["at_us"] for r in got.rows() if r["name"] == "loss"}
        assert at[10] == 1_700_000_075_000_000
        assert "lm_loss" in got.notes
        assert not got.rejects
        assert got.job["job_id"] == "run0"

    def test_no_rank_is_invented(self, shared: Callable[[str], Path]) -> None:
        got = Got("tensorboard", shared(REAL_TB))
        assert {r["subject"] for r in got.rows()} == {"job"}
        assert all(r.get("rank") is None for r in got.rows())
        assert not got.rows("steps")
        assert not got.rows("ranks")

    def test_a_file_that_grows_gives_its_whole_records(self, tmp_path: Path) -> None:
        data = events(range(10))
        path = tmp_path / "events.out.tfevents.1.node"
        for cut in range(len(data) - 40, len(data)):
            path.write_bytes(data[:cut])
            got = Got("tensorboard", path)
            assert list(got.values()) == list(range(9))
            assert not got.rejects

    def test_a_flipped_bit_costs_its_record_and_no_other(self, tmp_path: Path) -> None:
        size = len(event(3, "lm loss", 1.0))
        path = tmp_path / "events.out.tfevents.1.node"
        for at in range(size):
            data = bytearray(events(range(10)))
            data[len(START) + 3 * size + at] ^= 0x40
            path.write_bytes(data)
            got = Got("tensorboard", path)
            assert list(got.values()) == [s for s in range(10) if s != 3], at
            assert [r.row for r in got.rejects] == [5], at

    def test_the_writer_began_before_its_first_value(self, tmp_path: Path) -> None:
        path = tmp_path / "events.out.tfevents.1.a"
        path.write_bytes(events(range(3)) + START)  # what goes on later begins no earlier
        got = Got("tensorboard", path)
        assert got.job["start_us"] == 1_699_999_995_000_000
        [began] = got.rows("events")
        assert (began["kind"], began["start_us"]) == ("process_start", 1_699_999_995_000_000)
        named = Got("tensorboard", path, job_id="known")  # its own record knows better
        assert set(named.job) == {"job_id"}
        assert named.rows("events")

    def test_a_packed_file(self, tmp_path: Path) -> None:
        path = tmp_path / "events.out.tfevents.1.node.gz"
        path.write_bytes(gzip.compress(events(range(5))))
        assert len(Got("tensorboard", path).values()) == 5

    def test_a_writer_that_goes_back_begins_an_attempt(self, tmp_path: Path) -> None:
        run = tmp_path / "run"
        run.mkdir()
        first, second = run / "events.out.tfevents.100.a", run / "events.out.tfevents.200.b"
        first.write_bytes(events(range(10)))
        second.write_bytes(events(range(6, 12), later_s=100))
        rows = Got("tensorboard", second).rows()
        assert {(r["attempt"], r["step"]) for r in rows} == {(1, s) for s in range(6, 12)}
        assert {r["attempt"] for r in Got("tensorboard", first).rows()} == {0}

    def test_a_writer_that_goes_on_stays_in_its_attempt(self, tmp_path: Path) -> None:
        for name, steps in (("100.a", range(10)), ("200.b", range(10, 15))):
            (tmp_path / f"events.out.tfevents.{name}").write_bytes(events(steps))
        rows = Got("tensorboard", tmp_path / "events.out.tfevents.200.b").rows()
        assert {r["attempt"] for r in rows} == {0}

    def test_a_count_of_its_own_is_no_restart(self, tmp_path: Path) -> None:
        path = tmp_path / "events.out.tfevents.1.a"
        data = START
        for step in range(20):
            data += event(step, "lm loss", 1.0) + event(step % 5, "eval/accuracy", 0.5)
        path.write_bytes(data)
        got = Got("tensorboard", path)
        assert {r["attempt"] for r in got.rows() if r["name"] == "loss"} == {0}

    def test_tags_against_samples_are_left_out_and_said(self, tmp_path: Path) -> None:
        path = tmp_path / "events.out.tfevents.1.a"
        path.write_bytes(events(range(3)) + event(4096, "lm loss vs samples", 1.0))
        got = Got("tensorboard", path)
        assert list(got.values()) == [0, 1, 2]
        assert "1 value counts samples" in got.notes

    def test_a_negative_step_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "events.out.tfevents.1.a"
        path.write_bytes(events(range(3)) + event(2**64 - 1, "lm loss", 1.0))
        [reject] = Got("tensorboard", path).rejects
        assert "step of 0 or more, found -1" in reject.reason

    def test_a_folder_of_runs(self, tmp_path: Path, steptax: Callable[..., Any]) -> None:
        for run in ("a/version_0", "b/version_0"):
            folder = tmp_path / "logs" / run
            folder.mkdir(parents=True)
            (folder / "events.out.tfevents.1.x").write_bytes(events(range(4)))
        done = steptax("ingest", "tensorboard", tmp_path / "logs")
        assert done["job_ids"] == ["a/version_0", "b/version_0"]
        assert done["tables"]["printed_metrics"]["accepted"] == 8
        again = steptax("ingest", "tensorboard", tmp_path / "logs")
        assert all(one["already"] for one in again["ingests"])


# -- Weights & Biases -----------------------------------------------------------------------------


class TestWandb:
    def test_the_real_run_has_the_values_it_was_made_from(
        self, shared: Callable[[str], Path]
    ) -> None:
        got = Got("wandb", shared(REAL_WANDB))
        assert got.values() == golden(shared, "lm loss")
        assert got.values("iteration-time") == golden(shared, "iteration-time")
        assert not got.rejects
        job = got.job
        assert (job["job_id"], job["name"], job["project"]) == ("run0open", "run0", "p0")
        assert job["state"] == "completed"
        assert job["start_us"] == 1_795_962_305_369_647
        [began] = got.rows("events")
        assert (began["kind"], began["start_us"]) == ("process_start", job["start_us"])

    def test_the_real_summary(self, shared: Callable[[str], Path]) -> None:
        got = Got("wandb", shared("connectors/wandb/summary_plain.json"))
        rows = {r["printed_as"]: r for r in got.rows()}
        assert set(rows) == {
            *("lr", "train_loss_local", "grad_norm_square", "train_loss_epoch", "test_acc_epoch")
        }
        assert {r["step"] for r in rows.values()} == {62509}
        assert rows["train_loss_epoch"]["value"] == 0.300126399408728
        assert rows["train_loss_epoch"]["name"] == "loss"
        assert rows["lr"]["at_us"] == 1_680_093_787_523_575
        assert got.job["start_us"] == round((1680093787.523575 - 2621.788069009781) * 1e6)
        assert "last values only" in got.notes

    @given(st.lists(st.integers(0, 90_000), min_size=1, max_size=6))
    def test_records_over_blocks_come_back(self, sizes: list[int]) -> None:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run-x.wandb"
            bodies = [history(loss=s, _step=s, pad="x" * size) for s, size in enumerate(sizes)]
            path.write_bytes(wandb_file(bodies))
            got = Got("wandb", path)
        assert got.values() == {s: float(s) for s in range(len(sizes))}
        assert not got.rejects

    def test_a_damaged_block_costs_no_other(self, tmp_path: Path) -> None:
        bodies = [history(loss=s, _step=s, pad="x" * 900) for s in range(200)]
        data = bytearray(wandb_file(bodies))
        data[40_000] ^= 1  # in the second block
        path = tmp_path / "run-x.wandb"
        path.write_bytes(data)
        got = Got("wandb", path)
        steps = set(got.values())
        lost = set(range(200)) - steps
        assert 0 < len(lost) <= 36
        assert max(lost) - min(lost) == len(lost) - 1
        assert any("checksum" in r.reason for r in got.rejects)

    def test_the_frameworks_step_goes_before_the_count_of_calls(self, tmp_path: Path) -> None:
        path = tmp_path / "run-x.wandb"
        bodies = [
            history(**{"train/loss": 2.0, "train/global_step": 10 * s, "_step": s})
            for s in range(1, 4)
        ]
        path.write_bytes(wandb_file(bodies))
        assert list(Got("wandb", path).values()) == [10, 20, 30]
        assert list(Got("wandb", path, mapping={"step": "_step"}).values()) == [1, 2, 3]

    def test_what_is_no_number_is_left_out(self, tmp_path: Path) -> None:
        path = tmp_path / "h.jsonl"
        row = {
            "_step": 3,
            "loss": "NaN",
            "flag": True,
            "note": "12",
            "image": {"_type": "image"},
            "deep": {"a": {"b": 2}},
        }
        path.write_text(json.dumps(row) + "\n" + json.dumps({"_step": 4, "loss": 1.5}) + "\n")
        got = Got("wandb", path)
        assert got.values() == {3: None, 4: 1.5}
        assert got.values("deep.a.b") == {3: 2.0}
        assert {r["printed_as"] for r in got.rows()} == {"loss", "deep.a.b"}

    def test_a_csv_of_the_page(self, tmp_path: Path) -> None:
        out = io.StringIO()
        writer = csv.writer(out, quoting=csv.QUOTE_ALL)
        keys = ("", "__MIN", "__MAX")
        writer.writerow(["Step", *(f"calm-sky-1 - train/loss{k}" for k in keys)])
        for step in (0, 10, 20):
            writer.writerow([step, 8 / (step + 1), 0, 9])
        path = tmp_path / "wandb_export.csv"
        path.write_text(out.getvalue())
        got = Got("wandb", path)
        assert got.values() == {step: 8 / (step + 1) for step in (0, 10, 20)}
        assert len(got.rows()) == 3
        assert "no value has a time" in got.notes

    def test_a_history_frame_as_csv_with_empty_cells(self, tmp_path: Path) -> None:
        path = tmp_path / "h.csv"
        path.write_text(
            "_step,loss,val_loss,_timestamp,_runtime\n0,2.5,,1700000000,4\n1,,3.0,1700000001,5\n"
        )
        got = Got("wandb", path)
        assert got.values() == {0: 2.5}
        assert got.values("val_loss") == {1: 3.0}
        assert got.job["start_us"] == 1_699_999_996_000_000

    def test_another_version_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "x.wandb"
        path.write_bytes(b":W&B\xe1\xbe\x07" + wandb_file([history(loss=1, _step=1)])[7:])
        with pytest.raises(InputError, match="e1be07"):
            Got("wandb", path)


# -- MLflow ---------------------------------------------------------------------------------------


class TestMlflow:
    def test_the_real_store_has_the_values_it_was_made_from(
        self, shared: Callable[[str], Path]
    ) -> None:
        folder = shared(REAL_MLFLOW) / "metrics"
        assert Got("mlflow", folder / "lm_loss").values() == golden(shared, "lm loss")
        got = Got("mlflow", folder / "iteration-time")
        assert got.values("iteration-time") == golden(shared, "iteration-time")
        job = got.job
        assert (job["job_id"], job["name"], job["owner"]) == ("run0", "run0", "user0")
        assert (job["state"], job["start_us"], job["end_us"]) == (
            *("completed", 1_795_962_639_706_000, 1_795_962_639_733_000),
        )
        first = next(r for r in got.rows() if r["step"] == 2)
        assert first["at_us"] == 1_795_962_639_727_000

    def test_a_folder_is_a_run(
        self, shared: Callable[[str], Path], tmp_path: Path, steptax: Callable[..., Any]
    ) -> None:
        shutil.copytree(shared(REAL_MLFLOW).parent.parent, tmp_path / "mlruns")
        done = steptax("ingest", "mlflow", tmp_path / "mlruns", "--world-size", 8)
        assert done["job_ids"] == ["run0"]
        assert done["tables"]["printed_metrics"]["accepted"] == 25 + len(
            golden(shared, "iteration-time")
        )

    def test_the_runs_other_metrics_tell_which_is_the_loss(self, tmp_path: Path) -> None:
        folder = tmp_path / "mlruns" / "0" / "r" / "metrics"
        (folder / "train").mkdir(parents=True)
        (folder.parent / "meta.yaml").write_text("run_id: r\nstatus: 1\n")
        (folder / "loss").write_text("1700000000000 2.0 1\n")
        (folder / "train" / "lm_loss").write_text("1700000000000 3.0 1\n1700000001000 nan 2\n")
        assert Got("mlflow", folder / "train" / "lm_loss").values() == {1: 3.0, 2: None}
        rows = Got("mlflow", folder / "loss").rows()
        assert [r["name"] for r in rows] == ["loss (tag)"]
        assert Got("mlflow", folder / "loss", extra={"loss_tag": "loss"}).values() == {1: 2.0}
        assert Got("mlflow", folder / "loss").job["state"] == "running"

    def test_steps_that_go_back_begin_an_attempt(self, tmp_path: Path) -> None:
        path = tmp_path / "loss"
        path.write_text(
            "".join(f"{1_700_000_000_000 + i} 1.5 {s}\n" for i, s in enumerate((1, 2, 3, 2, 3)))
        )
        rows = Got("mlflow", path).rows()
        assert [(r["attempt"], r["step"]) for r in rows] == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3)]


# -- which tag is the loss ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tags", "loss"),
    [
        (["lm loss", "lm loss validation", "learning-rate"], "lm loss"),
        (["loss", "lm_loss"], "lm_loss"),
        (["train/loss", "eval/loss", "train/learning_rate"], "train/loss"),
        (["train_loss", "val_loss"], "train_loss"),
        (["train_loss_epoch", "train_loss_step"], "train_loss_step"),
        (
            ["loss_metrics/global_avg_loss", "loss_metrics/global_max_loss"],
            "loss_metrics/global_avg_loss",
        ),
        (["Train/CE-Loss", "Eval/CE-Loss"], "Train/CE-Loss"),
        (["actor/pg_loss", "critic/vf_loss", "loss_scale"], None),
        (["diffusion_loss", "val/loss", "load_balancing_loss", "z_loss"], "diffusion_loss"),
        (["accuracy"], None),
        (["lm loss vs samples"], None),
        ([], None),
    ],
)
def test_the_training_loss(tags: list[str], loss: str | None) -> None:
    chosen, said = choose_loss(tags)
    assert chosen == loss
    if loss is None:
        assert said is not None
        assert "--loss-tag" in said


def test_a_named_tag_holds_and_a_missing_one_is_said() -> None:
    assert choose_loss(["loss", "actor/pg_loss"], "actor/pg_loss")[0] == "actor/pg_loss"
    assert choose_loss(["lm_loss"], "lm loss")[0] == "lm_loss"
    chosen, said = choose_loss(["loss", "lr"], "reward")
    assert chosen is None
    assert said == "there is no tag 'reward'; the tags are 'loss', 'lr'"


def test_the_option_reaches_the_connector(tmp_path: Path, steptax: Callable[..., Any]) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(
        "".join(json.dumps({"_step": s, "loss": 1, "pg_loss": 5 - s}) + "\n" for s in range(3))
    )
    steptax("ingest", "wandb", path, "--loss-tag", "pg_loss", "--job", "ppo")
    assert steptax("job", "ppo")["learning"]["last_loss"]["value"] == 3
