"""Iteration lines, timers and validation lines of Megatron-LM, in the spellings of its kin."""

from __future__ import annotations

import re

from steptax.connectors.logs.lines import Line, micros, number, whole
from steptax.connectors.logs.marks import Fault, Kind, Mark, Printed, no_time, printed, value_of

_ITERATION = re.compile(r"\biteration\s*=?\s*(?P<step>\d+)\s*/\s*(?P<total>\d+)\s*\|")
_BEGINS = re.compile(r"\biteration\s*=?\s*\d+\s*/")
_FIELD = re.compile(r"^\s*(?P<name>[^:=|]+?(?:\([^)]*\))?[^:=|]*?)\s*[:=]\s*(?P<value>.*?)\s*$")
_PAIR = re.compile(r"^(?P<now>[^\s/]+)/(?P<mean>[^\s/]+)$")
_TIMERS = re.compile(r"^\s*(?:\[Rank \d+\]\s*)?time \(ms\)\s*(?P<rest>\|.*)?$")
_HEAD = re.compile(r"(?P<how>\(min, max\) time|max time|times) across ranks \(ms\):\s*$")
_MINMAX = re.compile(
    r"^\s*(?P<name>[\w/.+-]+(?: [\w/.+-]+)*?) \.*: \((?P<low>[\d.]+), (?P<high>[\d.]+)\)\s*$"
)
_MAX = re.compile(r"^\s*(?P<name>[\w/.+-]+) \.+: (?P<high>[\d.]+)\s*$")
_NAME = re.compile(r"^ {2}(?P<name>[A-Za-z][\w/.-]*):\s*$")
_OF_RANK = re.compile(r"^ {5}rank +(?P<rank>\d{1,9}): (?P<value>[\d.]+)\s*$")
_VALIDATION = re.compile(
    r"\bvalidation loss at (?:iteration\s+(?P<step>\d+)|(?P<end>the end of training))"
    r"(?P<rest>[^|]*\|.*)$"
)
_LENGTHS = ("actual seqlen", "actual_seqlen")
_FLOPS_LINE = re.compile(r"Effective Tera Flops per GPU: (?P<value>\S+) and total parameters")


def read_iteration(line: Line) -> Mark | Fault | None:
    """``iteration 5/ 100 | elapsed time per iteration (ms): 12.3 | lm loss: ... |``.

    Primus prints ``this interval/mean so far``: the first is the value, the second is kept as such.
    """
    text = line.text
    if "iteration" not in text:
        return None
    found = _ITERATION.search(text)
    if found is None:
        if not _BEGINS.search(text) or "|" not in text:
            return None
        return Fault("expected 'iteration N/ TOTAL | ...', found a damaged line", "step")
    if _BEGINS.search(text, found.end()):
        return Fault("expected one iteration, found two that were written into one line", "step")
    step = whole(found["step"])
    if step is None:
        return Fault(f"expected a step number, found {found['step'][:40]!r}", "step")
    rest = text[found.end() :].rstrip()
    if not rest.endswith("|"):
        return Fault("expected a line that ends in '|', found one that is cut", "step")
    values: list[Printed] = []
    for piece in rest[:-1].split("|"):
        field = _FIELD.match(piece)
        if field is None:
            return Fault(f"expected 'name: value', found {piece.strip()[:60]!r}", None)
        values += _values(field["name"], field["value"])
    got = tuple(values)
    duration = _elapsed_us(got)
    if duration is None:
        return no_time("'elapsed time per iteration (ms): TIME'", got)
    loss = value_of(got, "loss")
    return Mark(
        Kind.STEP,
        line,
        step=step,
        duration_us=duration,
        loss=loss if loss is not None and abs(loss) < float("inf") else None,
        printed=got,
        dialect=_dialect(line, text, got),
        facts=_facts(got) | _planned(found["total"]),
    )


def _planned(total: str) -> dict[str, int]:
    """How many iterations the run is planned to take."""
    steps = whole(total)
    return {} if not steps else {"target_steps": steps}


def _values(name: str, text: str) -> list[Printed]:
    pair = _PAIR.match(text) if "/" in text else None
    if pair and number(pair["now"]) is not None and number(pair["mean"]) is not None:
        return [
            printed(name, pair["now"]),
            printed(name, pair["mean"], subject="mean so far"),
        ]
    return [printed(name, text)]


def _elapsed_us(values: tuple[Printed, ...]) -> int | None:
    for value in values:
        if value.name == "step_time" and value.subject == "job":
            return micros(value.value, 1000.0 if value.unit == "ms" else 1e6)
    return None


def _facts(values: tuple[Printed, ...]) -> dict[str, int]:
    length = next((v.value for v in values if v.printed_as in _LENGTHS), None)
    if length is None or not 0 < length < 2**31 or length != int(length):
        return {}
    return {"seq_len": int(length)}


def _dialect(line: Line, text: str, values: tuple[Printed, ...]) -> str:
    if line.primus:
        return "primus"
    if "elapsed_time_per_iteration_ms=" in text:
        return "alcf"
    names = {value.printed_as for value in values}
    deepspeed = {"lm-loss", "consumed tokens", "samples per second"} & names
    return "megatron-deepspeed" if deepspeed else "megatron"


def read_timers(line: Line) -> Mark | None:
    """Timers: all on one line, or a block with a line per timer, or per timer and rank."""
    text = line.text
    found = _TIMERS.match(text)
    if found is not None:
        # These are the own timers of the rank that prints.
        rank = line.rank
        whose = "printing rank" if rank is None else f"rank {rank}"
        values = tuple(
            printed(field["name"], field["value"], unit="ms", subject=whose, rank=rank)
            for piece in (found["rest"] or "").split("|")
            if (field := _FIELD.match(piece)) and number(field["value"]) is not None
        )
        return Mark(Kind.LAST, line, printed=values)
    if _HEAD.search(text):
        return Mark(Kind.HEAD, line)
    found = _MINMAX.match(text)
    if found is not None:
        name = found["name"]
        return Mark(
            Kind.BLOCK,
            line,
            printed=(
                Printed(name, name, found["low"], number(found["low"]), "ms", "min over ranks"),
                Printed(name, name, found["high"], number(found["high"]), "ms", "max over ranks"),
            ),
        )
    found = _MAX.match(text)
    if found is not None:
        name, high = found["name"], found["high"]
        return Mark(
            Kind.BLOCK,
            line,
            printed=(Printed(name, name, high, number(high), "ms", "max over ranks"),),
        )
    found = _OF_RANK.match(text)
    if found is not None and int(found["rank"]) < 2**31:
        rank, value = int(found["rank"]), found["value"]
        return Mark(
            Kind.BLOCK,
            line,
            printed=(Printed("", "", value, number(value), "ms", f"rank {rank}", rank),),
        )
    found = _NAME.match(text)
    return Mark(Kind.BLOCK, line, detail=found["name"]) if found else None


def read_validation(line: Line) -> Mark | None:
    """``validation loss at iteration 100 | lm loss value: ... |``, and the 2021 FLOP/s line.

    Two fields may run into one another without a separator; then neither is read.
    """
    found = _FLOPS_LINE.search(line.text)
    if found is not None:
        return Mark(Kind.LAST, line, printed=(printed("Effective Tera Flops per GPU", found[1]),))
    found = _VALIDATION.search(line.text)
    if found is None:
        return None
    values = []
    for piece in found["rest"].rstrip().rstrip("|").split("|"):
        field = _FIELD.match(piece)
        value = printed(field["name"], field["value"]) if field else None
        if value is not None and value.value is not None:
            values.append(value)
    step = whole(found["step"]) if found["step"] else None
    return Mark(
        Kind.EVENT, line, step=step, event="eval", detail=line.text.strip(), printed=tuple(values)
    )
