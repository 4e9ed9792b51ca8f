"""Events and per-rank steps of a planned job of ``steptax demo --company``.

A step begins on all ranks together. Each computes and waits for its data; the last one to be done
sets when the collective can begin, the others wait for it, and all leave it together:

    work_r = compute_r + input_r + host_r     wait_r = max(work) - work_r
    duration = max(work) + transfer           comm_r = wait_r + transfer

What is planted is a factor on the compute of one rank. The same draws without it say exactly what
it cost, which is what `Made.lost_gpu_us` holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from steptax.app.demo.company_plan import HOUR_US, PEAK_FLOPS_PER_S, Job

_S = 1_000_000
SAVE_EVERY_H = 1.0
EVAL_EVERY_SAVES = 6
#: From allocation to the first process, and from there to the first step.
PROCESS_AFTER_S, STEP_AFTER_S = 45, 210
#: How long it takes until a failure is noticed by everyone.
NOTICED_AFTER_S = 420
#: Share of the peak that the compute phase reaches in a job without faults.
COMPUTE_MFU = 0.52
_TRANSFER_RATIO = 0.13
_HOST_RATIO = 0.01
_NOISE = 0.004
#: Least loss of the curves, in nats per token, and how it falls with the steps.
_LEAST_LOSS, _FALL, _POWER = 1.62, 6.5, 0.30


@dataclass
class Made:
    """Rows of one job, and what the planted fault cost: GPU-microseconds, exact."""

    steps: list[pa.Table] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    lost_gpu_us: int = 0
    """By the slow rank alone, in steps that count or not."""
    slow_from_us: int | None = None
    """Start of the first step in which the planted rank is slow."""
    next_step: int = 0


def tokens_per_rank(job: Job) -> int:
    """Tokens of a rank in a step: what its compute phase holds at `COMPUTE_MFU`, in sequences."""
    model = job.model
    per_token = 6 * model.params + 6 * model.layers * model.hidden * model.seq_len
    tokens = _compute_s(job) * PEAK_FLOPS_PER_S * COMPUTE_MFU / per_token
    return max(1, round(tokens / model.seq_len)) * model.seq_len


def _compute_s(job: Job) -> float:
    return job.nominal_s * (1 - _TRANSFER_RATIO - _HOST_RATIO)


def make_job(job: Job, seed: int) -> Made:
    """Events and steps of ``job``; the same for the same seed."""
    dice = np.random.default_rng([seed, 2, *job.job_id.encode()])
    made = Made()
    begin_us = job.start_us
    made.events.append(_event(job, 0, "allocated", begin_us))
    stops = (*job.failures_h, job.hours)
    for attempt, stop_h in enumerate(stops):
        is_last = attempt == len(stops) - 1
        stop_us = job.start_us + round(stop_h * HOUR_US)
        process_us = begin_us + PROCESS_AFTER_S * _S
        first_us = process_us + STEP_AFTER_S * _S
        if attempt:
            process_us = begin_us + round(job.restart_min * 60 * _S)
            first_us = process_us + 2 * STEP_AFTER_S * _S
            made.events.append(_event(job, attempt, "restart", begin_us, process_us))
            text = f"rolled back to step {made.next_step - 1}"
            made.events.append(_event(job, attempt, "rollback", process_us, detail=text))
        made.events.append(_event(job, attempt, "process_start", process_us))
        made.events.append(_event(job, attempt, "first_step", first_us))
        failed = not is_last or job.state == "failed"
        # A failure is noticed some minutes after the last step.
        last_us = stop_us - (NOTICED_AFTER_S * _S if failed else 0)
        saved = _attempt(job, made, attempt, first_us, last_us, dice)
        if failed:
            made.events.append(_failure(job, attempt, stop_us, dice))
            made.next_step = saved + 1
        elif job.state != "running":
            made.events.append(_event(job, attempt, "process_end", stop_us))
        begin_us = stop_us
    return made


def _attempt(
    job: Job, made: Made, attempt: int, first_us: int, last_us: int, dice: np.random.Generator
) -> int:
    """Steps from ``first_us`` to ``last_us`` with saves and evaluations; the last step saved."""
    each_us = job.nominal_s * _S
    most = int((last_us - first_us) / each_us) + 2
    step = made.next_step + np.arange(max(most, 1))
    compute, usual, tokens = _compute_us(job, first_us, step, dice)
    shape = compute.shape
    data_us = _input_us(job, shape, dice)
    host_us = np.rint(dice.gamma(4.0, _HOST_RATIO * each_us / 4.0, shape)).astype(np.int64)
    transfer_us = np.rint(_TRANSFER_RATIO * each_us * dice.normal(1.0, 0.02, (shape[0], 1))).astype(
        np.int64
    )
    work, sound = (part + data_us + host_us for part in (compute, usual))
    latest = work.max(axis=1, keepdims=True)
    duration = (latest + transfer_us)[:, 0]
    pauses, kinds = _pauses(job, duration, dice)
    start = first_us + np.concatenate(([0], np.cumsum(duration + pauses)[:-1]))
    count = max(1, int(np.searchsorted(start + duration, last_us, side="right")))
    count = min(count, shape[0])
    made.events.extend(_between(job, attempt, start, duration, pauses, kinds, count))
    lost_us = (latest - sound.max(axis=1, keepdims=True))[:count, 0]
    made.lost_gpu_us += int(lost_us.sum()) * job.gpus
    slow = np.flatnonzero(np.any(compute > usual, axis=1)[:count])
    if len(slow) and made.slow_from_us is None:
        made.slow_from_us = int(start[slow[0]])
    comm = latest - work + transfer_us
    rows, ranks = np.arange(count), shape[1]

    def flat(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.broadcast_to(values[:count], (count, ranks)).reshape(-1)

    columns: dict[str, Any] = {
        "job_id": pa.repeat(pa.scalar(job.job_id), count * ranks),
        "attempt": np.full(count * ranks, attempt, np.int32),
        "step": np.repeat(step[rows], ranks),
        "rank": np.tile(np.arange(ranks, dtype=np.int32), count),
        "start_us": np.repeat(start[rows], ranks),
        "duration_us": np.repeat(duration[rows], ranks),
        "compute_us": flat(compute),
        "comm_us": flat(comm),
        "transfer_us": flat(transfer_us),
        "wait_us": flat(latest - work),
        "input_us": flat(data_us),
        "tokens": flat(tokens),
        "seq_sq_sum": flat(_squares(job, tokens)),
    }
    if job.has_loss:
        loss = _LEAST_LOSS + _FALL * (step[rows] + 20.0) ** -_POWER
        columns["loss"] = np.repeat(loss + dice.normal(0, 0.012, count), ranks)
    made.steps.append(pa.table(columns))
    made.next_step = int(step[count - 1]) + 1
    saves = np.flatnonzero(kinds[:count] > 0)
    return int(step[saves[-1]]) if len(saves) else int(step[0]) - 1


def _compute_us(
    job: Job, first_us: int, step: np.ndarray[Any, Any], dice: np.random.Generator
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """[S, R] compute with the planted fault, the same without it, and tokens."""
    shape = (len(step), job.gpus)
    mean_us = _compute_s(job) * _S
    tokens = np.full(shape, tokens_per_rank(job), np.int64)
    base = mean_us * dice.normal(1.0, _NOISE, shape)
    if job.story == "sequence":
        # Batches differ in length, and one shard holds the long recordings.
        share = dice.normal(1.0, 0.05, shape)
        even = base * share
        share[:, job.slow_rank] += 0.28
        tokens = np.rint(tokens * share).astype(np.int64)
        return _whole(base * share), _whole(even), tokens
    if job.slow_rank is None or job.story not in ("throttle", "spell"):
        return _whole(base), _whole(base), tokens
    hours = (first_us - job.start_us) / HOUR_US + np.arange(len(step)) * job.nominal_s / 3600
    slow = base.copy()
    spell = (hours >= job.slow_from_h) & (hours < job.slow_to_h)
    slow[spell, job.slow_rank] *= job.slow_factor
    return _whole(slow), _whole(base), tokens


def _whole(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(np.rint(values), dtype=np.int64)


def _input_us(job: Job, shape: tuple[int, ...], dice: np.random.Generator) -> np.ndarray[Any, Any]:
    """[S, R] waiting for data; where the loader is too slow all ranks wait for the same storage."""
    own = dice.gamma(6.0, job.input_s * _S / 6.0, (shape[0], 1))
    spread = 0.02 if job.story == "input" else 0.2
    return _whole(np.abs(own * dice.normal(1.0, spread, shape)))


def _squares(job: Job, tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """[S, R] sum of squared sequence lengths: full sequences, or long ones where there are more."""
    length = job.model.seq_len * tokens / tokens_per_rank(job)
    return _whole(tokens * length)


def _pauses(
    job: Job, duration_us: np.ndarray[Any, Any], dice: np.random.Generator
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """[S] time after each step, and what it is for: 0 nothing, 1 a save, 2 a save and evaluation.

    A save holds training up for half a minute to a minute, an evaluation for some minutes.
    """
    every = max(1, round(SAVE_EVERY_H * HOUR_US / float(np.median(duration_us))))
    place = np.arange(len(duration_us)) + 1
    kinds = (place % every == 0).astype(np.int64)
    kinds += (place % (every * EVAL_EVERY_SAVES) == 0).astype(np.int64)
    save_us = _whole(dice.uniform(22, 48, len(kinds)) * _S)
    return np.where(kinds == 0, 0, np.where(kinds == 1, save_us, save_us + 260 * _S)), kinds


def _between(
    job: Job,
    attempt: int,
    start: np.ndarray[Any, Any],
    duration: np.ndarray[Any, Any],
    pauses: np.ndarray[Any, Any],
    kinds: np.ndarray[Any, Any],
    count: int,
) -> Iterator[dict[str, Any]]:
    """Saves and evaluations after the first ``count`` steps but the last."""
    for k in np.flatnonzero(kinds[:count]).tolist():
        begin = int(start[k] + duration[k])
        saved = int(pauses[k]) - (260 * _S if kinds[k] == 2 else 0)
        yield _event(job, attempt, "checkpoint_save", begin, begin + saved)
        if kinds[k] == 2 and k < count - 1:
            yield _event(job, attempt, "eval", begin + saved, begin + int(pauses[k]))


#: What the log of a job says at its end.
_WHY = (
    "NCCL watchdog: all-reduce timed out after 420 s",
    "CUDA error: an uncorrectable ECC error was encountered",
    "node left the network",
    "data worker was killed: out of host memory",
)


def _failure(job: Job, attempt: int, at_us: int, dice: np.random.Generator) -> dict[str, Any]:
    rank = int(dice.integers(job.gpus))
    event = _event(job, attempt, "failure", at_us, detail=_WHY[int(dice.integers(len(_WHY)))])
    return event | {"ranks": str(rank)}


def _event(
    job: Job,
    attempt: int,
    kind: str,
    start_us: int,
    end_us: int | None = None,
    detail: str | None = None,
) -> dict[str, Any]:
    """A row of the events table."""
    return {
        "job_id": job.job_id,
        "attempt": attempt,
        "kind": kind,
        "start_us": start_us,
        "end_us": end_us,
        "ranks": None,
        "detail": detail,
    }
