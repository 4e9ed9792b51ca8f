"""Which column of a file is which column of ours, and in which unit."""

from __future__ import annotations

from typing import Any

import pytest

from steptax.app.errors import InputError
from steptax.connectors.base import Options
from steptax.connectors.sources import Format
from steptax.connectors.tables.columns import (
    Kind,
    Plan,
    Target,
    Term,
    describe,
    make_plan,
    plain,
    split_unit,
)
from steptax.connectors.tables.rows import Header
from steptax.connectors.tables.stephints import suggest_mapping

TARGETS = (
    Target("rank", "rank", Kind.WHOLE, "global rank", ("global_rank", "worker"), required=True),
    Target("duration", "duration_us", Kind.TIME, "duration", ("step_time",)),
    Target("input", "input_us", Kind.TIME, "waiting for data", ("data",)),
    Target("start", "start_us", Kind.MOMENT, "start"),
    Target("host", "host", Kind.TEXT, "node"),
)


def plan_of(*columns: str, samples: tuple[str | None, ...] = (), **options: Any) -> Plan:
    header = Header(Format.DELIMITED, columns, samples=samples)
    return make_plan(TARGETS, header, Options(**options), "file.csv")


def terms_of(*columns: str, **options: Any) -> dict[str, tuple[Term, ...]]:
    return dict(plan_of(*columns, **options).terms)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("step_time_ms", ("step_time", "ms")),
        ("Step Time (ms)", ("step_time", "ms")),
        ("duration_us", ("duration", "us")),
        ("elapsed_seconds", ("elapsed", "s")),
        ("batch_time_norm", ("batch_time", "relative")),
        ("duration", ("duration", None)),
        ("ms", ("ms", None)),
    ],
)
def test_the_unit_is_the_last_word(name: str, split: tuple[str, str | None]) -> None:
    assert split_unit(name) == split


def test_names_are_compared_without_case_and_signs() -> None:
    assert plain(" Step Time (ms) ") == "step_time_ms"


@pytest.mark.parametrize("column", ["duration_ms", "step_time_ms", "Step Time [ms]", "duration ms"])
def test_aliases_take_any_unit(column: str) -> None:
    assert terms_of("rank", column)["duration"] == (Term(column, "ms"),)


@pytest.mark.parametrize("column", ["input_ms", "input_time_ms", "data_time_ms", "data_ms"])
def test_phases_may_be_called_times(column: str) -> None:
    assert terms_of("rank", column)["input"] == (Term(column, "ms"),)


def test_the_name_of_the_table_comes_before_other_names() -> None:
    found = plan_of("worker", "global_rank", "rank")
    assert found.terms == {"rank": (Term("rank"),)}
    assert found.unused == ("worker", "global_rank")


def test_the_unit_of_the_name_holds_over_the_option() -> None:
    found = terms_of("rank", "duration_ms", "input", time_unit="s")
    assert found["duration"] == (Term("duration_ms", "ms"),)
    assert found["input"] == (Term("input", "s"),)


def test_an_option_that_every_name_contradicts_is_told_not_to_be_used() -> None:
    found = plan_of("rank", "duration_ms", "input_ms", time_unit="s")
    assert found.notes == (
        "--time-unit s, but the names of the columns say their unit: duration_ms, input_ms; the "
        "option is not used",
    )
    assert not plan_of("rank", "duration_ms", "input", time_unit="s").notes
    assert not plan_of("rank", "duration_ms", "start_us", time_unit="ms").notes
    assert not plan_of("rank", "duration_norm", "start_us", time_unit="relative").notes
    assert not plan_of("rank", "duration_ms").notes


def test_real_durations_are_not_taken_for_normalised_nor_the_other_way_round() -> None:
    with pytest.raises(InputError, match=r"unit relative, .*: duration_us, input_us") as told:
        plan_of("rank", "duration_us", "input_us", "start_us", time_unit="relative")
    assert (told.value.hint or "").endswith("rename the columns, e.g. duration_norm")


def test_a_duration_without_unit_is_an_error_that_names_it() -> None:
    with pytest.raises(InputError, match="unit of column 'step_time'") as caught:
        terms_of("rank", "step_time")
    assert "--time-unit" in (caught.value.hint or "")


def test_a_mapping_sums_columns_of_any_unit() -> None:
    found = plan_of("rank", "f_ms", "b_us", mapping={"duration": "f_ms + b_us"})
    assert found.terms["duration"] == (Term("f_ms", "ms"), Term("b_us", "us"))
    assert found.unused == ()


def test_a_mapped_column_may_hold_a_plus_and_a_target_its_unit() -> None:
    found = terms_of("rank", "a+b_ms", mapping={"duration_us": "a+b_ms"})
    assert found["duration"] == (Term("a+b_ms", "ms"),)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"durations": "a_ms"}, "no target 'durations'; is it 'duration'"),
        ({"duration": "aa_ms"}, "no column 'aa_ms'; is it 'a_ms'"),
        ({"duration": "a_ms+"}, "no column ''"),
        ({"duration": "a_ms+a_ms"}, "added twice"),
        ({"host": "a_ms+rank"}, "not a sum"),
    ],
)
def test_a_mapping_that_cannot_be_is_refused(mapping: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        terms_of("rank", "a_ms", mapping=mapping)
    assert (caught.value.where or "").startswith("--map")
    assert caught.value.hint


def test_normalised_and_real_durations_do_not_mix() -> None:
    with pytest.raises(InputError, match="mixed: input_ms, step_time_norm"):
        terms_of("rank", "step_time_norm", "input_ms")


def test_a_start_needs_a_unit_only_where_it_is_a_number() -> None:
    iso = terms_of("rank", "start", samples=("0", "2025-01-31T22:00:00Z"))
    assert iso["start"] == (Term("start", None),)
    with pytest.raises(InputError, match="unit of column 'start'"):
        terms_of("rank", "start", samples=("0", "1738360800"))
    relative = terms_of("rank", "step_time", "start_us", time_unit="relative")
    assert relative["start"] == (Term("start_us", "us"),)


def test_help_names_every_target() -> None:
    text = describe(TARGETS)
    assert all(f"  {t.name} ({t.kind.value}" in text for t in TARGETS)
    assert "Also called global_rank, worker." in text


@pytest.mark.parametrize(
    ("columns", "hint"),
    [
        (
            ("forward_ms", "backward_wall_ms"),
            "for these columns: --map duration=forward_ms+backward_wall_ms",
        ),
        (
            ("forward_ms", "backward_wall_ms", "backward_compute_ms", "allreduce_wait_ms"),
            "for these columns: --map duration=forward_ms+backward_wall_ms "
            "--map compute=forward_ms+backward_compute_ms --map comm=allreduce_wait_ms",
        ),
        (
            ("fwd_ms", "bwd_ms", "start_ms"),
            "if these are its disjoint parts: --map duration=fwd_ms+bwd_ms",
        ),
        (("a", "b"), "say which columns make it up: --map duration=COLUMN, or a sum A+B"),
    ],
)
def test_the_hint_is_the_line_to_type(columns: tuple[str, ...], hint: str) -> None:
    assert suggest_mapping(columns) == hint
