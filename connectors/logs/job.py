"""What a whole log says of its job, and what its lines were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

from steptax.app.schema import Batch, table
from steptax.connectors.base import Options
from steptax.connectors.logs.marks import Kind
from steptax.connectors.logs.rows import LogRows
from steptax.connectors.logs.state import LogState
from steptax.connectors.runfolder import is_version, version_name
from steptax.connectors.tables.facts import rows_of
from steptax.connectors.tables.screen import source_stem
from steptax.connectors.wording import said as counted

_ENDINGS = (".log", ".out", ".err")
#: Fewer step times than this tell nothing of what is usual.
_FEW = 4
_LISTED = 8
NO_WORLD = (
    "the log does not say how many ranks the job has: give --world-size for GPU-hours and dollars"
)


def log_stem(source: Path) -> str:
    """A log's name without endings: the job where nobody names it.

    Lightning calls every file of this kind metrics.csv: then its folder tells.
    """
    stem = source_stem(str(source))
    if stem == "metrics" and is_version(source.resolve().parent):
        return version_name(source.resolve().parent)
    for ending in _ENDINGS:
        if stem.lower().endswith(ending) and len(stem) > len(ending):
            stem = stem[: -len(ending)]
    return stem


def about_job(
    state: LogState, options: Options, source: Path, frameworks: Mapping[str, str]
) -> Iterator[Batch]:
    """One row of the job, and one for each rank that printed steps."""
    job_id = options.job_id or log_stem(source)
    facts = {k: v for k, v in state.facts.items() if k in table("jobs").names}
    if options.world_size is not None:
        facts["world_size"] = options.world_size
    if options.gpu_model is not None:
        facts["gpu_model"] = options.gpu_model
    sizes = state.batch_sizes or [state.facts[k] for k in ("batch",) if k in state.facts]
    if "tokens_per_step" not in facts and len(sizes) == 1 and "seq_len" in facts:
        facts["tokens_per_step"] = sizes[0] * facts["seq_len"]
    named = options.extra.get("dialect")
    if named is None and state.dialects:
        named = max(state.dialects, key=lambda name: (state.dialects[name], name))
    timed = state.flags.get("timed")
    job = {
        "job_id": job_id,
        "name": None if options.job_id else log_stem(source),
        "framework": frameworks.get(named or ""),
        "state": state.ended,
        "start_us": state.first_us,
        "end_us": state.last_us if state.ended else None,
        "time_basis": "log" if timed else None,
    }
    notes = [NO_WORLD] if timed and "world_size" not in facts else []
    notes += _other_world(state, options)
    yield Batch("jobs", rows_of("jobs", [job | facts]), notes=tuple(notes))
    ranks = [
        {"job_id": job_id, "rank": int(rank), "host": host}
        for rank, host in sorted(state.ranks.items(), key=lambda item: int(item[0]))
    ]
    if ranks:
        yield Batch("ranks", rows_of("ranks", ranks))


def _other_world(state: LogState, options: Options) -> list[str]:
    """Where ``--world-size`` says another number of ranks than the log does."""
    given, told = options.world_size, state.facts.get("world_size")
    if given is None:
        return []
    if told is not None and told != given:
        return [
            f"--world-size {given} is taken, but the log says {told} ranks: GPU-hours and dollars "
            f"are {given / told:.3g} times those of the log; leave --world-size out if it is right"
        ]
    highest = max(map(int, state.ranks), default=-1)
    if highest >= given:
        return [
            f"--world-size {given} is taken, but rank {highest} printed lines, so there are at "
            f"least {highest + 1} ranks"
        ]
    return []


def tell_returns(state: LogState, rows: LogRows) -> None:
    """Say how often the step number went back, and which steps no line tells of."""
    counts = Counter(state.counts)
    if counts["went back"]:
        rows.note(
            f"the step number went back {_times(counts['went back'])}: each begins an attempt; if "
            "several processes write into this log, give the output of one, or let the launcher "
            "put a prefix in front of each line"
        )
    if counts["missing"]:
        spans = [f"{a} to {b}" if a != b else f"{a}" for a, b in state.gaps]
        more = ", ..." if sum(b - a + 1 for a, b in state.gaps) < counts["missing"] else ""
        rows.note(
            f"no line tells of {counted(counts['missing'], 'step')} ({', '.join(spans)}{more}): "
            "their lines may be missing here, and there are no rows of them"
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def account(state: LogState, rows: LogRows) -> None:
    """Say what the lines were, and what is missing."""
    counts = Counter(state.counts)
    beside = (Kind.LAST, Kind.NEXT, Kind.HEAD, Kind.BLOCK, Kind.AT, Kind.CURSOR)
    words = {
        "steps": counts[Kind.STEP],
        "values beside steps": sum(counts[kind] for kind in beside),
        "events": counts[Kind.EVENT] + counts[Kind.BEGIN],
        "about the job": counts[Kind.FACTS],
        "reported scores": counts[Kind.SCORE],
        "known and not needed": counts[Kind.NOISE],
        "repeated": counts["repeated"],
        "with a step that does not fit": counts["strays"],
        "damaged": counts["faulty"],
        "blank": counts["blank"],
        "not understood": counts["unknown"],
    }
    told = ", ".join(f"{count:,} {word}" for word, count in words.items() if count)
    first = "; ".join(f"line {line}: {text}" for line, text in state.unknown)
    rows.note(f"lines: {told}" + (f" (the first of these: {first})" if first else ""))
    if counts["other process"]:
        rows.note(
            f"{counted(counts['other process'], 'line tells', 'lines tell')} a step that another "
            "process of this log has told; no prefix says whose rank it is, so the first is kept"
        )
    if counts["printed twice"]:
        many = counted(counts["printed twice"], "value is", "values are")
        rows.note(f"{many} printed twice; the first is kept")
    if state.flags.get("printed") and not state.flags.get("timed"):
        rows.note(
            "no line gives the time of a step: what is printed is kept, and there are no step rows "
            "to show"
        )
    elif state.flags.get("untimed"):
        rows.note(
            "some lines name a step and give no time: their values are kept as printed, and no "
            "step row is made of them"
        )


def name_short(durations_us: Mapping[int, int], rows: LogRows) -> None:
    """Name the steps that took less than half of the usual time."""
    usual = median(durations_us.values()) if len(durations_us) >= _FEW else 0.0
    short = [step for step, time in durations_us.items() if 2 * time < usual]
    if short:
        listed = ", ".join(map(str, short[:_LISTED])) + (", ..." if len(short) > _LISTED else "")
        rows.note(
            f"printed as less than half of the usual step time ({usual / 1e6:.3g} s): step "
            f"{listed}; steps are dispatched asynchronously, so their times and rates say nothing"
        )
