"""Other references and other detectors as lines, for a terminal and a page."""

from __future__ import annotations

from collections.abc import Mapping

from steptax.app.compute.measure import Measure
from steptax.app.format import DASH, format_share, format_value
from steptax.app.views.reported.comparison_models import Blame, Comparison, NvrxRow

TITLE = "How other detectors see it"
#: Ranks named in a line.
_NAMED = 5


def blame_line(blame: Blame) -> str:
    """Who is charged for the waiting, largest first, with what is left to the others."""
    if blame.wait_gpu_seconds is None:
        return f"Waiting is charged to nobody: {blame.reason}."
    if not blame.rows:
        return "Waiting is charged to nobody: no rank was later than the others."
    named = [
        f"rank {row.rank} {_gpu_seconds(row.gpu_seconds)} ({format_share(row.share)})"
        for row in blame.rows[:_NAMED]
    ]
    rest = sum(row.gpu_seconds for row in blame.rows[_NAMED:])
    if rest > 0:
        more = len(blame.rows) - _NAMED
        named.append(f"{more:,} other{'s' if more > 1 else ''} {_gpu_seconds(rest)}")
    if blame.nobody_gpu_seconds and blame.nobody_gpu_seconds > 1e-9 * blame.wait_gpu_seconds:
        named.append(f"nobody {_gpu_seconds(blame.nobody_gpu_seconds)}")
    return f"Of {_gpu_seconds(blame.wait_gpu_seconds)} of waiting, charged to: {', '.join(named)}."


def _gpu_seconds(value: float) -> str:
    return format_value(value, "GPU-s")


def falcon_lines(comparison: Comparison) -> tuple[str, ...]:
    """What FALCON's rules say, one thing a line."""
    falcon = comparison.falcon
    lines = [falcon.sentence]
    for group in falcon.groups:
        if group.reason is not None:
            lines.append(f"{group.kind} groups: not compared, {group.reason}.")
        elif group.suspects:
            lines += [f"{group.kind} group suspected, {text}." for text in group.suspects[:_NAMED]]
        else:
            lines.append(f"{group.kind} groups: none of {group.groups:,} is suspected.")
    return tuple(lines)


def nvrx_lines(comparison: Comparison) -> tuple[str, ...]:
    """What NVRx's scores say, with the lowest scores."""
    nvrx = comparison.nvrx
    lines = [nvrx.sentence, *(_scores(row) for row in nvrx.rows[:_NAMED] if _scores(row))]
    return (*lines, *(f"Not scored: {reason}." for reason in nvrx.reasons), nvrx.note)


def _scores(row: NvrxRow) -> str:
    named = [("GPU", row.gpu), *row.relative.items()]
    named += [(f"{name} against its own best", score) for name, score in row.individual.items()]
    said = [f"{name} {score:.2f}" for name, score in named if score is not None]
    if not said:
        return ""
    flag = f" {DASH} flagged: {', '.join(row.flagged)}" if row.flagged else ""
    return f"rank {row.rank}: {', '.join(said)}{flag}"


def tax_line(metrics: Mapping[str, Measure]) -> str:
    """The straggler tax in its two splits; each adds up to it."""
    tax = metrics["straggler_tax_ratio"]
    if tax.value is None:
        return f"The straggler tax is not known: {tax.reason}."
    lasting = _split(metrics, ("persistent", "transient"))
    stages = _split(metrics, ("between_stage", "within_stage"))
    between = metrics["between_stage_ratio"]
    if between.value is None:
        stages = f"between and within stages unknown, {between.reason}"
    return f"Straggler tax {format_share(tax.value)}: {lasting}; {stages}."


def _split(metrics: Mapping[str, Measure], names: tuple[str, str]) -> str:
    return " and ".join(
        f"{format_share(metrics[f'{name}_ratio'].value)} {name.replace('_stage', ' stages')}"
        for name in names
    )


def ideal_lines(comparison: Comparison) -> tuple[str, ...]:
    """Slowdown and waste by reference, each with the question that it answers."""
    return tuple(
        f"{row.ideal}: S = {format_value(row.slowdown.value, 'x')}, "
        f"waste {format_share(row.waste.value)} {DASH} {row.label}"
        for row in comparison.ideals
        if row.slowdown.value is not None
    )


def comparison_as_text(comparison: Comparison, blame: Blame, metrics: Mapping[str, Measure]) -> str:
    """All of it, for a terminal."""
    parts: list[tuple[str, tuple[str, ...]]] = [
        ("Slowdown by reference", (*ideal_lines(comparison), tax_line(metrics))),
        ("Who the waiting is charged to", (blame_line(blame),)),
        (TITLE, (*falcon_lines(comparison), *nvrx_lines(comparison))),
    ]
    return "\n".join(
        "\n".join((title, *(f"  {line}" for line in lines))) for title, lines in parts if lines
    )
