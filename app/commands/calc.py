"""``steptax calc NAME``: every calculator, with the flags that its own parameters declare."""

from __future__ import annotations

import difflib
import re
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steptax.app.commands.options import JsonFlag, LakeFlag, PriceFlag, lake_root, price_of
from steptax.app.commands.output import console, show, table_of
from steptax.app.compute.calculators.arguments import together
from steptax.app.compute.calculators.base import Calculator, Result
from steptax.app.compute.calculators.registry import CALCULATORS, calculator
from steptax.app.errors import UserError
from steptax.app.format import UNKNOWN, format_measure, format_value
from steptax.app.views.whatif.inputs import NOT_GIVEN, GivenInput, given_inputs
from steptax.app.views.whatif.models import Origin, StepByStep
from steptax.app.views.whatif.repair import step_by_step

if TYPE_CHECKING:  # only a job needs the store, and it takes a while to import
    from steptax.app.views.whatif.job import JobInputs


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    # The flags are the calculator's own, so they are read here and not by the framework.
    settings = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command("calc", context_settings=settings)(calc_command)


def calc_command(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="calculator; without one they are listed")
    ] = None,
    job: Annotated[
        str | None, typer.Option("--job", metavar="ID", help="start from what this job measured")
    ] = None,
    window: Annotated[
        int | None, typer.Option("--window", min=1, help="its last steps only; else all of them")
    ] = None,
    price: PriceFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Compute one of the what-if formulas; ``steptax calc NAME --help`` lists its flags."""
    if name is None or name == "--help":
        _list(as_json=as_json)
        return
    chosen = calculator(name)
    if "--help" in context.args:
        _describe(chosen)
        return
    given, faults = flags(chosen, context.args)
    source, cost = None, None if price is None else price_of(price)
    if job is not None:
        cost = price_of(price)
        source = _measured(chosen.name, lake, job, window, cost)
    inputs = given_inputs(chosen, given, source=source, price=cost)
    try:
        result = chosen.run({one.name: one.argument for one in inputs})
    except UserError as problem:
        faults.append(problem)
    if faults:
        raise _in_flags(chosen, together(faults))
    steps = step_by_step(chosen.name, inputs, source)
    show(
        result.as_json()
        | {
            "name": name,
            "formula": chosen.formula,
            "source": chosen.source,
            "job": job,
            "inputs": [one.as_json() for one in inputs],
        }
        | ({} if steps is None else {"step_by_step": vars(steps)}),
        as_json=as_json,
        text=lambda: _print(result, inputs, source, steps),
        warnings=result.warnings,
    )


def _measured(
    name: str, lake: Path | None, job: str, window: int | None, price: Decimal | None
) -> JobInputs:
    from steptax.app.views.whatif.job import job_inputs, learning_job_inputs
    from steptax.app.views.workspace import open_workspace

    # Losses are enough here, and a job that only a tracker knows has no more.
    read = learning_job_inputs if name == "learning-velocity" else job_inputs
    return read(open_workspace(lake_root(lake)), job, last_steps=window, price=price)


def flags(
    chosen: Calculator[Any, Any], arguments: list[str]
) -> tuple[dict[str, str], list[UserError]]:
    """``--compute-ms 100 --speedup=2`` as a mapping, and what of it does not fit."""
    known = {_flag(p.name): p.name for p in chosen.parameters}
    where = f"calc {chosen.name}"
    given: dict[str, str] = {}
    faults: list[UserError] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        flag, sign, text = word.partition("=")
        # The names of the formula are understood too.
        flag = flag.replace("_", "-")
        if not flag.startswith("--"):
            hint = f"steptax calc {chosen.name} --help lists them"
            faults.append(UserError(f"expected a flag, found {word!r}", where=where, hint=hint))
            continue
        if not sign:
            if not rest or rest[0].partition("=")[0].replace("_", "-") in known:
                faults.append(UserError(f"{flag} needs a value", where=flag))
                continue
            text = rest.pop(0)
        if known.get(flag) in given:
            faults.append(UserError(f"{flag} is given twice", where=flag))
        elif flag in known:
            given[known[flag]] = text
        else:
            near = difflib.get_close_matches(flag, known, 1)
            hint = f"is it {near[0]}?" if near else ", ".join(known)
            faults.append(UserError(f"{chosen.name} has no flag {flag}", where=flag, hint=hint))
    return given, faults


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _in_flags(chosen: Calculator[Any, Any], problem: UserError) -> UserError:
    """The same problem with flags in place of the names of parameters."""
    names = sorted((p.name for p in chosen.parameters), key=len, reverse=True)
    # One word may be an English one; it is a name for certain before a colon only.
    spelled = "|".join(re.escape(name) for name in names if "_" in name) or r"(?!)"
    leading = "|".join(map(re.escape, names))
    pattern = re.compile(
        rf"(?<![\w-])(?:({spelled})\b|({leading})(?=: expected)|(?<=one of )({leading})\b)"
    )

    def replaced(text: str | None) -> str | None:
        return text and pattern.sub(lambda m: _flag(m.group(0)), text)

    parts = (problem.where or "").split(", ")
    where = ", ".join(_flag(part) if part in names else part for part in parts)
    return UserError(str(replaced(problem.message)), where=where, hint=replaced(problem.hint))


def _list(*, as_json: bool) -> None:
    data = [
        {
            "name": c.name,
            "title": c.title,
            "formula": c.formula,
            "source": c.source,
            "parameters": [
                {"name": p.name, "unit": p.unit, "help": p.help, "required": p.required}
                for p in c.parameters
            ],
        }
        for c in CALCULATORS.values()
    ]
    rows = [[c.name, c.title] for c in CALCULATORS.values()]
    show(
        data,
        as_json=as_json,
        text=lambda: console.print(table_of("Calculators", ("name", "answers"), rows)),
    )


def _describe(chosen: Calculator[Any, Any]) -> None:
    console.print(f"{chosen.title}\n  {chosen.formula}\n  source: {chosen.source}\n")
    rows = [
        [
            _flag(p.name),
            p.expected,
            "required" if p.required else "" if p.default is None else f"else {p.default}",
            p.help,
        ]
        for p in chosen.parameters
    ]
    console.print(table_of("Flags", ("flag", "takes", "", "meaning"), rows))
    console.print(
        "\n--job ID starts from what that job measured (with --window STEPS, --lake PATH); "
        "--price USD is the price per GPU-hour.",
    )
    console.print(f"\n{chosen.page}")


def _print(
    result: Result,
    inputs: tuple[GivenInput, ...],
    source: JobInputs | None,
    steps: StepByStep | None,
) -> None:
    if source is not None:
        rows = [
            [_flag(one.name), one.text, one.basis]
            for one in inputs
            if one.origin is not Origin.DEFAULT and one.basis != NOT_GIVEN
        ]
        console.print(table_of(f"Inputs, from {source.basis}", ("flag", "value", ""), rows))
        console.print("")
    console.print(result.sentence)
    if steps is not None:
        console.print(steps.text)
    rows = [[name, format_measure(measure)] for name, measure in result.measures().items()]
    console.print(table_of("", ("measure", "value"), rows))
    unit, band = result.main.unit, result.band
    if band.low is not None and band.high is not None:
        ends = f"{format_value(band.low, unit)} .. {format_value(band.high, unit)}"
        console.print(f"{result.headline} lies in {ends}: {band.basis}")
    if result.sensitivity:

        def end(value: float | None) -> str:
            return UNKNOWN if value is None else format_value(value, unit)

        swings = [
            [
                swing.parameter,
                f"{swing.low_input:g} .. {swing.high_input:g} {swing.unit}",
                f"{end(swing.low_output)} .. {end(swing.high_output)}",
            ]
            for swing in sorted(result.sensitivity, key=lambda s: -s.width)
        ]
        console.print(table_of("What matters most", ("input", "from .. to", "gives"), swings))
