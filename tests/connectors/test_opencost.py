"""Allocations of OpenCost: windows added, fractions kept, idle no job."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Options
from steptax.connectors.registry import connector

EXAMPLE = Path(__file__).parent / "examples" / "opencost.json"


def read(path: Path) -> tuple[dict[str, dict[str, Any]], list[Batch]]:
    batches = list(connector("opencost").read(path, Options()))
    return {r["job_id"]: r for b in batches for r in b.rows.to_pylist()}, batches


def us(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[misc, arg-type]


def test_windows_are_added_and_idle_is_no_job() -> None:
    jobs, batches = read(EXAMPLE)
    assert {name: job["gpu_hours"] for name, job in jobs.items()} == {
        "red/train-0": 240.0,
        "blue/web-0": 0.0,
        "blue/half-0": 3.0,
    }
    train = jobs["red/train-0"]
    assert (train["start_us"], train["end_us"]) == (us(2026, 3, 1), us(2026, 3, 2, 6))
    assert (train["world_size"], train["team"], train["project"]) == (8, "vision", "red")
    assert jobs["blue/half-0"]["world_size"] is None
    assert jobs["blue/half-0"]["team"] == "blue"
    assert any("48.00 GPU-hours are idle" in note for b in batches for note in b.notes)


def test_a_real_answer(shared: Callable[[str], Path]) -> None:
    path = shared("connectors/opencost/allocation_by_namespace.json")
    want = {k: v for own in json.loads(path.read_text())["data"] for k, v in own.items()}
    jobs, batches = read(path)
    assert set(jobs) == set(want)
    for name, job in jobs.items():
        assert job["gpu_hours"] == want[name]["gpuHours"]
        assert job["start_us"] == us(2023, 7, 12, 11, 2, 46)
        assert job["end_us"] == us(2023, 7, 19, 11, 2)
        assert job["cluster"] == want[name]["properties"]["cluster"]
    assert any("aggregate=pod" in note for b in batches for note in b.notes)


def test_bad_allocations_are_rejected_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    good = {"gpuHours": 1, "start": "2026-03-01T00:00:00Z", "end": "2026-03-02T00:00:00Z"}
    own = {"a": good, "b": good | {"gpuHours": -1}, "c": good | {"end": "never"}, "d": 5}
    own["e"] = good | {"end": "2026-02-01T00:00:00Z"}
    path.write_text(json.dumps({"code": 200, "data": [own]}))
    jobs, batches = read(path)
    assert list(jobs) == ["a"]
    rejects = [(r.row, r.field) for b in batches for r in b.rejects]
    assert rejects == [(2, "gpuHours"), (3, "end"), (4, "data"), (5, "end")]


def test_an_error_is_refused_with_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"code": 400, "message": "invalid window"}')
    with pytest.raises(InputError, match="it says invalid window"):
        read(path)


def answer(tmp_path: Path, *windows: dict[str, Any]) -> Path:
    path = tmp_path / "allocation.json"
    path.write_text(json.dumps({"code": 200, "data": list(windows)}))
    return path


def pod(
    name: str, gpus: float, hours: float, labels: dict[str, str] | None = None, *, day: int = 1
) -> dict[str, Any]:
    """An allocation from midnight of ``day`` for as long as ``gpus`` take for ``hours``."""
    end = datetime(2026, 3, day, tzinfo=UTC).timestamp() + 3600 * hours / gpus
    return {
        "properties": {"namespace": "red", "pod": name, "cluster": "east", "labels": labels or {}},
        "start": f"2026-03-{day:02}T00:00:00Z",
        "end": datetime.fromtimestamp(end, UTC).isoformat(),
        "gpuCount": gpus,
        "gpuHours": hours,
    }


@pytest.mark.parametrize(
    "label",
    [
        "training.kubeflow.org/job-name",
        "training_kubeflow_org_job_name",
        "jobset_sigs_k8s_io_jobset_name",
        "volcano.sh/job-name",
        "ray_io_cluster",
        "batch_kubernetes_io_job_name",
    ],
)
def test_pods_of_one_job_are_added(tmp_path: Path, label: str) -> None:
    own = {label: "llama", "team": "vision"}
    # The job of a JobSet has children with names of their own.
    own |= {"job-name": "llama-worker-0"} if "jobset" in label else {}
    window = {f"red/w-{i}": pod(f"w-{i}", 8, 80, own) for i in range(3)}
    jobs, _ = read(answer(tmp_path, window, {"red/x": pod("x", 1, 2)}))
    assert set(jobs) == {"red/llama", "red/x"}
    llama = jobs["red/llama"]
    assert (llama["name"], llama["team"], llama["project"]) == ("llama", "vision", "red")
    assert (llama["world_size"], llama["gpu_hours"]) == (24, 240.0)
    assert jobs["red/x"]["team"] == "red"


def test_labels_of_ones_own(tmp_path: Path) -> None:
    own = {"acme.example/run": "r1", "cost_center": "00077", "dept": "nlp"}
    path = answer(tmp_path, {"red/a": pod("a", 8, 8, own), "red/b": pod("b", 8, 8, own)})
    mapping = {"job_id": "acme.example/run", "team": "cost-center", "project": "dept"}
    batches = list(connector("opencost").read(path, Options(mapping=mapping)))
    (job,) = [row for b in batches for row in b.rows.to_pylist()]
    assert (job["job_id"], job["team"], job["project"]) == ("red/r1", "00077", "nlp")
    assert (job["world_size"], job["gpu_hours"]) == (16, 16.0)
    with pytest.raises(InputError, match="a label cannot give state"):
        list(connector("opencost").read(path, Options(mapping={"state": "x"})))


def test_pods_that_replace_each_other_never_held_all_devices_at_once(tmp_path: Path) -> None:
    label = {"job-name": "llama"}
    first = {"red/w-0-abc": pod("w-0-abc", 8, 192, label)}
    second = {"red/w-0-def": pod("w-0-def", 8, 192, label, day=2)}
    jobs, _ = read(answer(tmp_path, first, second))
    assert jobs["red/llama"]["gpu_hours"] == 384.0
    assert jobs["red/llama"].get("world_size") is None


def test_containers_of_a_pod_are_one_job(tmp_path: Path) -> None:
    main, side = pod("p", 8, 16), pod("p", 1, 2)
    main["properties"]["container"], side["properties"]["container"] = "main", "side"
    window = {"east/n1/red/p/main": main, "east/n1/red/p/side": side}
    jobs, _ = read(answer(tmp_path, window))
    assert list(jobs) == ["east/n1/red/p"]
    assert (jobs["east/n1/red/p"]["world_size"], jobs["east/n1/red/p"]["gpu_hours"]) == (9, 18.0)


def test_pods_without_the_label_count_and_idle_does_not(tmp_path: Path) -> None:
    group = pod("", 4, 8)
    del group["properties"]["pod"]
    window = {"__unallocated__": group, "__idle__": group, "__unmounted__": group, "nlp": group}
    jobs, batches = read(answer(tmp_path, window, None, {}))  # type: ignore[arg-type]
    assert {name: job["gpu_hours"] for name, job in jobs.items()} == {
        "__unallocated__": 8.0,
        "nlp": 8.0,
    }
    assert jobs["__unallocated__"]["name"] == "pods without the label"
    notes = [note for b in batches for note in b.notes]
    assert any("16.00 GPU-hours are idle" in note for note in notes)
    assert any("aggregate=pod" in note for note in notes)


HEAD = "Date,Namespace,ControllerKind,ControllerName,Pod,Container,GPUs,GPUCost,Labels,Label_team\n"


def export(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "export.csv"
    path.write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return path


def test_a_real_export(shared: Callable[[str], Path]) -> None:
    jobs, batches = read(shared("connectors/opencost/export-sample.csv"))
    (job,) = jobs.values()
    assert job["job_id"] == "opencost/opencost-8fd7f8778-s7flr"
    assert (job["team"], job["project"]) == ("my-team", "opencost")
    assert (job["world_size"], job["gpu_hours"]) == (0, 0.0)
    assert not any(b.rejects for b in batches)


def test_an_export_does_not_say_for_how_long(tmp_path: Path) -> None:
    labels = '"{""volcano.sh/job-name"":""llama"",""team"":""nlp""}"'
    path = export(
        tmp_path,
        f"2026-03-01,red,job,llama,w-0,main,8,384,{labels},nlp",
        f"2026-03-02,red,job,llama,w-0,main,8,384,{labels},nlp",
        f"2026-03-02,red,job,llama,w-1,main,8,12,{labels},nlp",
        "2026-03-02,red,,,web,main,0,0,,vision",
    )
    jobs, batches = read(path)
    assert jobs["red/llama"]["world_size"] == 16
    assert jobs["red/llama"]["team"] == "nlp"
    assert jobs["red/llama"].get("gpu_hours") is None
    assert (jobs["red/web"]["gpu_hours"], jobs["red/web"]["team"]) == (0.0, "vision")
    assert any("at most 576.00" in note for b in batches for note in b.notes)


def test_bad_rows_of_an_export_are_rejected_one_by_one(tmp_path: Path) -> None:
    path = export(
        tmp_path,
        "2026-03-01,red,,,a,main,1,0,,",
        "yesterday,red,,,b,main,1,0,,",
        "2026-03-01,red,,,c,main,many,0,,",
        "2026-03-01,red,,,d,main,-1,0,,",
        "2026-03-01,red,,,e",
        "2026-03-01,red,,,f,main,1,0,{broken,",
        "2026-03-01,,,,,main,1,0,,",
        '2026-03-01,red,,,g,main,1,0,"{,',
        "2026-03-01,red,,,h,main,1,0,,",
    )
    jobs, batches = read(path)
    assert list(jobs) == ["red/a", "red/h"]
    rejects = [(r.row, r.field) for b in batches for r in b.rejects]
    assert rejects == [
        (3, "Date"), (4, "GPUs"), (5, "GPUs"), (6, "line"), (7, "Labels"), (8, "Pod"), (9, "line"),
    ]  # fmt: skip


def test_a_damaged_export_is_told(tmp_path: Path) -> None:
    whole = export(tmp_path, '2026-03-01,red,,,a,main,1,0,"{""team"":""x""}",x').read_bytes()
    path = tmp_path / "cut.csv"
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        try:
            batches = read(path)[1]
        except InputError as error:
            refused = error
        else:
            assert any(b.rows.num_rows or b.rejects for b in batches)
            continue
        assert str(path) in (refused.where or "")
        assert refused.hint
