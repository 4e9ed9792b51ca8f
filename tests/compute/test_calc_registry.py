"""What every calculator owes: parameters, a checked call, a sensitivity, a plain form."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest

from steptax.app.compute.calculators.base import Calculator, Result, calculator
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.calculators.registry import CALCULATORS
from steptax.app.compute.calculators.registry import calculator as find
from steptax.app.compute.calculators.units import parse
from steptax.app.compute.measure import Level, Measure
from steptax.app.errors import NotFoundError, UserError

#: A sensible call of each, by name.
CALLS: dict[str, dict[str, Any]] = {
    "kernel-speedup": {"compute_ms": 100, "comm_ms": 30, "wait_ms": 15, "speedup": 232},
    "expected-max": {"ranks": 1024, "cv_ratio": 0.05, "mean_ms": 100},
    "any-slow": {"ranks": 100, "slow_ratio": 0.01},
    "waste": {"delay_ratio": 0.3459, "planned_h": 720, "gpus": 1024, "usd_per_gpu_hour": 2},
    "checkpoint-interval": {"checkpoint_s": 60, "mtbf_s": 10800, "restart_s": 60},
    "failures": {"gpus": 1000, "mtbf_gpu_h": 50677, "run_h": 100},
    "backup-workers": {"workers": 96, "backups": 4, "cv_ratio": 0.1},
    "local-sgd": {"ranks": 1024, "cv_ratio": 0.05, "every_steps": 4},
    "gc-sync": {"pause_ms": 200, "every_steps": 500, "ranks": 128, "step_ms": 1000},
    "sequence-balance": {
        "lengths_tokens": [100, 5000, 800, 3000, 90, 70],
        "ranks": 2,
        "equal_parts_tokens": 57000,
    },
    "remove-worst": {"times_ms": [100, 101, 99, 140], "worst": 1, "usd_per_gpu_hour": 2},
    "hot-spares": {"failures_per_h": 0.3233, "repair_h": 24, "nodes": 2048},
    "break-even": {
        "a_usd_per_gpu_hour": 2,
        "a_peak_tflops": 989.5,
        "a_mfu_ratio": 0.4,
        "a_goodput_ratio": 0.9,
    },
    "busbw": {"collective": "all_reduce", "ranks": 8, "algbw_gb_per_s": 275},
    "stragglar": {"ranks": 8, "size_bytes": 2**30, "link_gb_per_s": 450, "alpha_us": 3},
    "learning-velocity": {
        "loss": [4 - 0.05 * i for i in range(40)],
        "usd": [2.0],
        "window_usd": 60,
        "target_loss": 3.0,
    },
    "mfu": {
        "tokens_per_s": 50_000,
        "devices": 8,
        "peak_tflops": 989.5,
        "peak_basis": "dense",
        "params": 8e9,
    },
}
CALLS["build-or-rent"] = {
    "purchase_usd_per_gpu": 37_500,
    "rent_usd_per_gpu_hour": 2,
    "years": 5,
    "utilisation_ratio": 0.8,
}
CALLS["commitment"] = {
    "committed_usd_per_gpu_hour": 1.4,
    "on_demand_usd_per_gpu_hour": 2,
    "utilisation_ratio": 0.8,
}
CALLS["train-time"] = {
    "devices": 1024,
    "tflops": 140,
    "params": 175e9,
    "tokens": 300e9,
    "peak_tflops": 312,
}
CALLS["collective-time"] = {
    "collective": "all_reduce",
    "ranks": 64,
    "size_bytes": 2**30,
    "link_gb_per_s": 450,
    "alpha_us": 3,
    "nodes": 8,
    "net_gb_per_s": 50,
    "net_alpha_us": 10,
}
CALLS["compute-equivalent-gain"] = {
    "baseline_eflop": [100, 1000, 1e4, 1e5, 1e6],
    "baseline_loss": [3.0, 2.7, 2.5, 2.36, 2.27],
    "loss_now": 2.4,
    "used_eflop": 3e4,
}
CALLS["scaling-law"] = {
    "params": 70e9,
    "tokens": 1.4e12,
    "peak_tflops": 989.5,
    "mfu_ratio": 0.4,
    "goodput_ratio": 0.9,
    "usd_per_gpu_hour": 2,
}
OWN = sorted(CALLS)
#: What-ifs: what they promise has an end.
WHAT_IFS = (
    *("kernel-speedup", "remove-worst", "backup-workers", "stragglar", "local-sgd", "gc-sync"),
    *("sequence-balance", "checkpoint-interval", "hot-spares", "break-even"),
    *("build-or-rent", "commitment"),
)
#: Inputs beyond ``CALLS`` that the ceiling of some needs.
MORE: dict[str, dict[str, Any]] = {
    "hot-spares": {"requeue_s": 1800, "swap_s": 60},
    "break-even": {"b_peak_tflops": 2250, "b_mfu_ratio": 0.35, "b_goodput_ratio": 0.9},
    "stragglar": {"delay_ms": 1.0},
    "remove-worst": {"other_ms": 10},
    "local-sgd": {"persistent_ratio": 0.02},
}


def test_only_losses_may_be_negative() -> None:
    free = {
        p.name
        for entry in CALCULATORS.values()
        for p in entry.parameters
        if p.kind in (Kind.REAL, Kind.INT, Kind.REALS) and p.minimum is None and p.above is None
    }
    assert free == {"loss", "target_loss"}


def test_every_calculator_has_a_call_here() -> None:
    assert set(CALLS) == {c.name for c in CALCULATORS.values()}


@pytest.mark.parametrize("name", OWN)
def test_entry_is_complete(name: str) -> None:
    entry = CALCULATORS[name]
    assert entry.name == name
    for text in (entry.title, entry.formula, entry.source, entry.page):
        assert text
    signature = inspect.signature(entry.function).parameters
    assert [p.name for p in entry.parameters] == list(signature)
    for parameter in entry.parameters:
        assert parameter.help
        assert parameter.required == (signature[parameter.name].default is inspect.Parameter.empty)
        suffix = parameter.name.rsplit("_", 1)[-1]
        if parameter.unit in ("ms", "s", "h", "ratio", "tokens"):
            assert suffix == parameter.unit, parameter.name
    money = [p for p in entry.parameters if "usd" in p.name]
    assert all(p.default is None for p in money)


@pytest.mark.parametrize("name", OWN)
def test_result_prints_and_names_its_headline(name: str) -> None:
    result = CALCULATORS[name].run(CALLS[name])
    assert result.main is result.measures()[result.headline]
    assert result.main.value is not None or result.main.reason
    assert result.sentence.endswith(".")
    printed = json.loads(json.dumps(result.as_json()))
    assert printed["measures"][printed["headline"]]["unit"] == result.main.unit
    assert [swing["parameter"] for swing in printed["sensitivity"]]


@pytest.mark.parametrize("name", OWN)
def test_sensitivity_is_the_headline_at_moved_inputs(name: str) -> None:
    entry = CALCULATORS[name]
    result = entry.run(CALLS[name])
    widths = [swing.width for swing in result.sensitivity]
    assert widths == sorted(widths, reverse=True)
    for swing in result.sensitivity:
        for end, output in (
            (swing.low_input, swing.low_output),
            (swing.high_input, swing.high_output),
        ):
            if swing.is_factor:
                end = [value * end for value in CALLS[name][swing.parameter]]
            if output is None:
                with pytest.raises(UserError):
                    entry.run({**CALLS[name], swing.parameter: end})
            else:
                moved = entry.run({**CALLS[name], swing.parameter: end})
                assert moved.main.value == output


@pytest.mark.parametrize("name", OWN)
def test_text_arguments_give_the_same(name: str) -> None:
    texts = {
        key: ",".join(map(str, value)) if isinstance(value, list) else str(value)
        for key, value in CALLS[name].items()
    }
    assert CALCULATORS[name].run(texts) == CALCULATORS[name].run(CALLS[name])


@pytest.mark.parametrize("name", OWN)
def test_negative_and_wrong_unit_inputs_are_named(name: str) -> None:
    entry = CALCULATORS[name]
    for parameter in entry.parameters:
        if parameter.kind is Kind.CHOICE:
            bad: tuple[object, ...] = ("neither", 5)
        elif parameter.kind is Kind.TEXT:
            bad = (5, " ")
        else:
            bad = (-1, "-2.5", "3 parsecs", "many", float("nan"), True, None)
        for value in bad:
            if value is None and not parameter.required:
                continue
            if value in (-1, "-2.5") and parameter.minimum is None and parameter.above is None:
                continue  # A loss may be negative.
            with pytest.raises(UserError) as caught:
                entry.run({**CALLS[name], parameter.name: value})
            assert caught.value.where == parameter.name
            assert parameter.expected in caught.value.message


@pytest.mark.parametrize("name", OWN)
def test_unknown_parameter_lists_the_known(name: str) -> None:
    with pytest.raises(UserError) as caught:
        CALCULATORS[name].run({**CALLS[name], "colour": 1})
    assert CALCULATORS[name].parameters[0].name in (caught.value.hint or "")


@pytest.mark.parametrize("name", OWN)
def test_every_answer_has_a_band_and_says_what_it_spans(name: str) -> None:
    result = CALCULATORS[name].run(CALLS[name] | MORE.get(name, {}))
    band = result.band
    assert result.main.value is not None
    assert band.low is not None
    assert band.high is not None
    assert band.low <= result.main.value <= band.high
    assert band.low < band.high
    assert band.basis
    assert any(swing.width > 0 for swing in result.sensitivity)


@pytest.mark.parametrize("name", WHAT_IFS)
def test_no_what_if_promises_more_than_its_ceiling(name: str) -> None:
    result = CALCULATORS[name].run(CALLS[name] | MORE.get(name, {}))
    reached = {
        "hot-spares": "benefit_ratio",
        "checkpoint-interval": "useful_at_best_ratio",
    }.get(name, result.headline)
    ceiling, value = result.measures()["ceiling"], result.measures()[reached]
    assert ceiling.value is not None
    assert value.value is not None
    assert ceiling.unit == value.unit
    assert value.value <= ceiling.value * (1 + 1e-12)


def test_a_measured_interval_makes_the_band() -> None:
    entry = CALCULATORS["waste"]
    result = entry.run({"slowdown": Measure(1.25, "x", 1.2, 1.3), "gpus": 8})
    assert result.band.low == pytest.approx(1 - 1 / 1.2)
    assert result.band.high == pytest.approx(1 - 1 / 1.3)
    assert "measured" in result.band.basis


def test_all_faults_are_said_at_once() -> None:
    with pytest.raises(UserError) as caught:
        CALCULATORS["kernel-speedup"].run(
            {"compute_ms": -1, "comm_ms": "3 parsecs", "accelerated_ratio": 1.5, "colour": 1}
        )
    assert caught.value.where is not None
    assert set(caught.value.where.split(", ")) == {
        *("colour", "compute_ms", "comm_ms", "wait_ms", "speedup", "accelerated_ratio")
    }
    assert caught.value.message.count("expected") == 5
    assert caught.value.kind == "UserError"


@pytest.mark.parametrize("name", OWN)
def test_slips_of_the_keyboard_are_refused_and_no_number_overflows(name: str) -> None:
    entry = CALCULATORS[name]
    for parameter in entry.parameters:
        if parameter.kind in (Kind.CHOICE, Kind.TEXT):
            continue
        with pytest.raises(UserError) as caught:
            entry.run({**CALLS[name], parameter.name: "1e300"})
        assert caught.value.where == parameter.name
        top = parameter.largest if parameter.maximum is None else parameter.maximum
        given: Any = int(top) if parameter.kind is Kind.INT else top
        if parameter.kind is Kind.REALS:
            given = [top] * len(CALLS[name].get(parameter.name, [1.0]))
        try:
            result = entry.run({**CALLS[name], parameter.name: given})
        except UserError:
            continue  # It does not go together with the other inputs.
        assert result.sentence


def test_unknown_calculator_lists_the_known() -> None:
    with pytest.raises(NotFoundError) as caught:
        find("kernel")
    assert "kernel-speedup" in (caught.value.hint or "")
    assert find("waste") is CALCULATORS["waste"]


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1.5 s", "ms", 1500),
        ("100ms", "ms", 100),
        ("34.59 %", "ratio", 0.3459),
        ("$2.00", "USD/GPU-hour", 2),
        ("1,024", "", 1024),
        ("3.09h", "s", 11124),
        ("2e3", "ms", 2000),
        ("1 PFLOP/s", "TFLOP/s", 1000),
    ],
)
def test_quantities_as_people_type_them(text: str, unit: str, value: float) -> None:
    assert parse(text, unit) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "unit"), [("$3", "ms"), ("", "ms"), ("ms", "ms"), ("3,5", "ms"), ("5 GB", "s")]
)
def test_quantities_that_are_not(text: str, unit: str) -> None:
    assert parse(text, unit) is None


def test_percent_for_a_share_gets_a_hint() -> None:
    with pytest.raises(UserError) as caught:
        CALCULATORS["any-slow"].run({"ranks": 8, "slow_ratio": 34.59})
    assert caught.value.hint == "34.59 % is 0.3459"


def test_measures_bring_unit_band_and_level() -> None:
    entry = CALCULATORS["kernel-speedup"]
    compute = Measure(0.1, "s", 0.09, 0.12, level=Level.TRACE)
    wait = Measure(15.0, "ms", level=Level.PHASES)
    result = entry.run({**CALLS["kernel-speedup"], "compute_ms": compute, "wait_ms": wait})
    plain = entry.run(CALLS["kernel-speedup"])
    assert result.main.value == pytest.approx(plain.main.value)
    assert {m.level for m in result.measures().values()} == {Level.PHASES}
    swing = next(s for s in result.sensitivity if s.parameter == "compute_ms")
    assert (swing.low_input, swing.high_input) == pytest.approx((90, 120))


def test_missing_measure_is_not_zero() -> None:
    entry = CALCULATORS["kernel-speedup"]
    unknown = Measure.missing("ms", "no per-operation trace")
    with pytest.raises(UserError, match="no per-operation trace"):
        entry.run({**CALLS["kernel-speedup"], "wait_ms": unknown})
    optional = entry.run({**CALLS["kernel-speedup"], "hidden_comm_ms": unknown})
    assert optional == entry.run(CALLS["kernel-speedup"])
    with pytest.raises(UserError) as caught:
        entry.run({**CALLS["kernel-speedup"], "wait_ms": Measure(1.0, "GB/s")})
    assert caught.value.where == "wait_ms"


def test_declaration_must_follow_the_signature() -> None:
    def function(*, a: float) -> Result:
        raise NotImplementedError

    declare = calculator(
        name="x", title="", formula="", source="", page="", parameters=(Parameter("b", "ms", ""),)
    )
    with pytest.raises(TypeError, match="declared"):
        declare(function)
    assert not isinstance(function, Calculator)
