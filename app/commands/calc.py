"""``steptax calc NAME``: every calculator, with the flags that its own parameters declare."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from steptax.app.commands.options import JsonFlag
from steptax.app.commands.output import console, show, table_of
from steptax.app.compute.calculators.base import Calculator, Result
from steptax.app.compute.calculators.registry import CALCULATORS, calculator
from steptax.app.errors import UserError
from steptax.app.format import UNKNOWN, format_measure, format_value


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
    result = chosen.run(flags(chosen, context.args))
    show(
        result.as_json() | {"name": name, "formula": chosen.formula, "source": chosen.source},
        as_json=as_json,
        text=lambda: _print(result),
        warnings=result.warnings,
    )


def flags(chosen: Calculator[Any, Any], arguments: list[str]) -> dict[str, str]:
    """``--compute-ms 100 --speedup=2`` as a mapping; UserError names what does not fit."""
    given: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        flag, sign, text = rest.pop(0).partition("=")
        if not flag.startswith("--"):
            raise UserError(
                f"expected a flag, found {flag!r}",
                where=f"calc {chosen.name}",
                hint=f"steptax calc {chosen.name} --help lists them",
            )
        if not sign:
            if not rest:
                raise UserError(f"{flag} needs a value", where=f"calc {chosen.name}")
            text = rest.pop(0)
        given[flag.removeprefix("--").replace("-", "_")] = text
    return given


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
            "--" + p.name.replace("_", "-"),
            p.expected,
            "required" if p.required else "" if p.default is None else f"else {p.default}",
            p.help,
        ]
        for p in chosen.parameters
    ]
    console.print(table_of("Flags", ("flag", "takes", "", "meaning"), rows))
    console.print(f"\n{chosen.page}")


def _print(result: Result) -> None:
    console.print(result.sentence)
    rows = [[name, format_measure(measure)] for name, measure in result.measures().items()]
    console.print(table_of("", ("measure", "value"), rows))
    if result.sensitivity:
        unit = result.main.unit

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
