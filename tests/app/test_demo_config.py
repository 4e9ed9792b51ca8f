"""What the demo refuses, and how it plans its steps."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steptax.app.demo import plan
from steptax.app.demo.config import DemoConfig, WorkerSpec
from steptax.app.demo.corpus import Shard, library_files
from steptax.app.demo.model import Array, Model, NumpyModel, Shape, Tokens
from steptax.app.errors import UserError

SPEC = WorkerSpec(
    lake="lake",
    job_id="job",
    rank=0,
    workers=8,
    cores=2,
    straggler="compute",
    straggler_rank=5,
    steps=None,
    seed=0,
    backend="numpy",
    step_target_ms=150,
    checkpoint_every=50,
    collective_timeout_s=20,
    inbox_fd=3,
    peer_fds=(4, 5),
    memory_fd=6,
    leash_fd=7,
    scratch="scratch",
    started_us=1_700_000_000_000_000,
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workers", 1),
        ("workers", 65),
        ("straggler", "disk"),
        ("straggler_rank", 8),
        ("straggler_rank", -1),
        ("steps", 0),
        ("backend", "jax"),
        ("step_target_ms", 0.0),
        ("checkpoint_every", 0),
        ("collective_timeout_s", 0.0),
        ("job_id", ""),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(name: str, value: Any) -> None:
    values = {"lake": Path("lake"), "job_id": "j", name: value}
    with pytest.raises(UserError, match=f"{name} must be") as caught:
        DemoConfig(**values)
    assert caught.value.hint


def test_the_seed_chooses_the_slow_rank_and_an_explicit_one_holds() -> None:
    chosen = {DemoConfig(Path("l"), "j", seed=seed).straggler_rank for seed in range(60)}
    assert chosen == set(range(8))
    assert (
        DemoConfig(Path("l"), "j", seed=4).straggler_rank
        == DemoConfig(Path("l"), "j", seed=4).straggler_rank
    )
    assert DemoConfig(Path("l"), "j", straggler_rank=0).straggler_rank == 0
    assert DemoConfig(Path("l"), "j", straggler_rank=0, straggler="none").straggler_rank is None


def test_backend_is_torch_exactly_where_it_is_installed() -> None:
    installed = importlib.util.find_spec("torch") is not None
    auto = DemoConfig(Path("l"), "j").resolved_backend()
    assert auto == ("torch" if installed else "numpy")
    assert DemoConfig(Path("l"), "j", backend="numpy").resolved_backend() == "numpy"
    if not installed:
        with pytest.raises(UserError, match="torch is not installed"):
            DemoConfig(Path("l"), "j", backend="torch").resolved_backend()


def test_worker_spec_survives_its_command_line() -> None:
    assert WorkerSpec.from_json(SPEC.to_json()) == SPEC
    assert SPEC.handicap == "none"
    assert dataclasses.replace(SPEC, rank=5).handicap == "compute"


def test_contention_is_workers_per_core_and_never_below_one() -> None:
    assert plan.Contention.of(8, 2).ratio == 4
    assert plan.Contention.of(8, 64).ratio == 1
    assert plan.Contention.of(8, 64).passes == 2
    assert plan.Contention.of(8, 2).passes == 5
    assert plan.Contention.of(8, 2).context > plan.Contention.of(8, 8).context


@pytest.mark.parametrize(
    ("straggler", "cores", "expected"),
    [
        # 150 ms / (R + f - 1) / 10 us, with R = 4 or 1 and f = 5, 2, 1 or, measured, 6
        ("compute", 2, 1875),
        ("compute", 8, 7500),
        ("none", 2, 3750),
        ("input", 2, 1875),
        ("gc", 2, 1875),
        ("sequence", 2, 1666),
        ("sequence", 8, 2500),
    ],
)
def test_tokens_fill_the_step_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, straggler: str, cores: int, expected: int
) -> None:
    def cost(_model: Model, _flat: Array, shard: Shard) -> float:
        return 60e-6 if shard.long else 10e-6

    monkeypatch.setattr(plan, "cpu_s_per_token", cost)
    spec = dataclasses.replace(SPEC, straggler=straggler, cores=cores)
    shape = Shape(context=16)
    tokens = plan.tokens_per_rank(spec, NumpyModel(shape), shape.initial(0), library_files())
    assert tokens == pytest.approx(expected, abs=1)


class QuadraticModel:
    """Really computes for a time that grows with the squares of the lengths."""

    def loss_and_gradient(
        self, flat: Array, inputs: Tokens, targets: Tokens, lengths: list[int]
    ) -> tuple[float, Array]:
        """Count."""
        return float(sum(i & 1 for n in lengths for i in range(n * n))), flat


def test_cost_per_token_is_measured_and_grows_with_length() -> None:
    flat, files = np.zeros(1), library_files()
    model = QuadraticModel()
    common = plan.cpu_s_per_token(model, flat, Shard(files, seed=0, context=1024))
    long = plan.cpu_s_per_token(model, flat, Shard(files, seed=0, context=1024, long=True))
    # The lengths are about five times as long.
    assert 0 < 1.5 * common < long


def test_storage_latency_adds_up_to_its_share_of_the_step() -> None:
    latency_s = plan.storage_latency_s(SPEC, tokens=3000, mean_document_tokens=150)
    assert latency_s * 3000 / 150 == pytest.approx(plan.STORAGE_WAIT_RATIO * 0.15)
