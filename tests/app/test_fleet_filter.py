"""Jobs of a fleet chosen by what they are, in the command, in files and in links."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.fleet.states import JobFact
from steptax.app.errors import UserError
from steptax.app.views.fleet.facts import Facts
from steptax.app.views.fleet.filter import FIELDS, FleetFilter, fleet_choices
from steptax.app.views.fleet.view import fleet_view
from steptax.benchmarks.product.fleet_year import PRICE, expected_usd, make_jobs, run
from tests.app.fleet_lake import HOUR, event, job, lake_of, us
from tests.app.fleet_outputs import cells_of

Steptax = Callable[..., Any]
FORMULA = '=HYPERLINK("http://evil.example")'
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def fleet(steptax: Steptax, tmp_path: Path) -> Steptax:
    """Six jobs of two teams, one of them named by somebody who means no good."""
    jobs = []
    for place, (team, state, gpus) in enumerate(
        [
            ("red", "failed", 8),
            ("red", "completed", 8),
            (FORMULA, "failed", 1),
            (FORMULA, "completed", 64),
            (None, "failed", 1),
            (SCRIPT, None, 1),
        ]
    ):
        begin = us(2026, 11, 1 + place)
        more = {"cluster": "a" if place % 2 else "b", "hosts": "n1,n2" if place < 3 else None}
        end = begin + 10 * HOUR
        jobs.append(job(f"j{place}", begin, end, team=team, state=state, world_size=gpus, **more))
    lake_of(tmp_path / "lake", jobs=jobs, events=[event("j0", "failure", us(2026, 11, 1, 9))])
    return steptax


def test_the_command_looks_at_the_jobs_that_are_chosen(fleet: Steptax) -> None:
    every = fleet("fleet", "--price", "2")
    assert (every["jobs"], every["only"]) == (6, "")
    assert every["gpu_hours"]["value"] == 830
    red = fleet("fleet", "--price", "2", "--team", "red")
    assert (red["jobs"], red["usd"]["value"]) == (2, 320.0)
    assert red["only"] == "team red"
    assert red["coverage"].startswith("2 of 6 jobs: ")
    assert red["metrics"]["failed_jobs_ratio"]["value"] == 0.5
    both = fleet("fleet", "--team", "red", "--team", "no team stated", "--state", "failed")
    assert (both["jobs"], both["gpu_hours"]["value"]) == (2, 90)
    assert [row["name"] for row in both["groups"]["team"]] == ["red", "no team stated"]
    days = fleet("fleet", "--from", "2026-11-03", "--to", "2026-11-04", "--size", "64-255")
    assert (days["jobs"], days["gpu_hours"]["value"]) == (1, 640)
    assert [row["state"] for row in fleet("fleet", "--state", "unknown")["states"]] == ["unknown"]
    nothing = fleet("fleet", "--team", "red", "--size", "1")
    assert nothing["sentence"] == "No job fits the choice."
    assert nothing["gpu_hours"]["value"] is None
    wrong = fleet("fleet", "--cluster", "c", fails=2)
    assert (wrong["where"], wrong["hint"]) == ("--cluster", "there are a, b")
    assert fleet("fleet", "--from", "2026-11-03", "--to", "2026-11-01", fails=2)["where"] == "--to"


def test_hosts_that_the_scheduler_names_count_without_ranks(fleet: Steptax) -> None:
    (hosts,) = [
        one
        for one in fleet("fleet")["places"]
        if (one["kind"], one["what"]) == ("host", "failures")
    ]
    assert {row["name"]: row["count"] for row in hosts["rows"]} == {"n1": 2, "n2": 2}


def test_the_report_holds_the_choice_and_runs_nothing(fleet: Steptax, tmp_path: Path) -> None:
    base = ("--price", "2", "--base-url", "https://s.example/x", "-o")
    done = fleet("report", "fleet", "--cluster", "b", "--size", "8-15", *base, tmp_path / "a.html")
    link = urlsplit(done["page"])
    assert link.path == "/x/fleet"
    assert parse_qs(link.query) == {"price": ["2"], "cluster": ["b"], "size": ["8-15"]}
    assert "Fleet: cluster b, size 8-15" in (tmp_path / "a.html").read_text()
    fleet("report", "fleet", *base, tmp_path / "b.html")
    html = (tmp_path / "b.html").read_text()
    assert SCRIPT not in html
    assert "&lt;script&gt;" in html
    fleet("report", "fleet", *base, tmp_path / "b.csv")
    cells = cells_of(tmp_path / "b.csv")
    teams = {row["name"]: row for row in cells["team_states"]}
    assert set(teams) == {"red", "'" + FORMULA, "no team stated", SCRIPT}
    red = teams["red"]
    assert (float(red["gpu_hours_failed"]), float(red["gpu_hours_unknown"])) == (80.0, 0.0)
    assert float(red["usd"]) == 320.0
    assert [row["name"] for row in cells["month_states"]] == ["2026-11"]
    fleet("report", "fleet", *base, tmp_path / "b.xlsx")
    book = pytest.importorskip("openpyxl").load_workbook(tmp_path / "b.xlsx")
    (own,) = [c for row in book["By team and state"] for c in row if c.value == FORMULA]
    assert own.data_type == "s"
    # Sent to a team, a report holds nothing of others.
    fleet("report", "fleet", "--team", "red", *base, tmp_path / "c.csv")
    assert FORMULA not in (tmp_path / "c.csv").read_text()


FACTS = st.lists(
    st.tuples(
        st.sampled_from([None, "red", "blue"]),
        st.sampled_from(["failed", "completed", "unknown"]),
        st.sampled_from([None, 0, 1, 8, 5000]),
        st.one_of(st.none(), st.integers(0, 5 * 24)),
    ),
    min_size=1,
    max_size=8,
)


@given(FACTS, st.sampled_from(FIELDS))
def test_the_values_of_a_field_divide_the_jobs(rows: list[tuple[Any, ...]], name: str) -> None:
    jobs, records = [], []
    for place, (team, state, gpus, hour) in enumerate(rows):
        jobs.append(JobFact(f"j{place}", state, gpus, 1.0, 0))
        start = None if hour is None else us(2026, 11, 1) + hour * HOUR
        records.append({"job_id": f"j{place}", "team": team, "start_us": start})
    months = tuple((("2026-11", job.gpu_hours),) for job in jobs)
    facts = Facts(tuple(jobs), tuple(records), (), {}, {}, months, {})
    choices = fleet_choices(facts)
    parts = [FleetFilter(**{name: (value,)}).chosen(facts).jobs for value in choices.of(name)]
    assert sorted(fact.job_id for part in parts for fact in part) == [f.job_id for f in jobs]
    assert all(parts)
    dated = [row for row in records if row["start_us"] is not None]
    if choices.first is not None:
        days = FleetFilter(first=choices.first, last=choices.last)
        assert len(days.chosen(facts).jobs) == len(dated)
    else:
        assert not dated
    with pytest.raises(UserError):
        FleetFilter(first=date(2026, 11, 2), last=date(2026, 11, 1))


def test_the_benchmark_asks_for_everything_and_checks_its_bill(tmp_path: Path) -> None:
    rows = make_jobs(300, 1)
    assert rows.equals(make_jobs(300, 1))
    assert not rows.equals(make_jobs(300, 2))
    assert {name.split("-")[0] for name in rows["job_id"].to_pylist()} == {"synthetic"}
    found = run(tmp_path / "lake", 300, 0, 0, 1)
    assert found["is_correct"]
    assert found["jobs"] == 300
    asked = {"open: executive page", "open: fleet page", "fleet by state", "bill by month"}
    assert asked <= set(found["took_s"])
    chosen = rows["team"].to_numpy(zero_copy_only=False) == "team-03"
    own = fleet_view(
        lake_of(tmp_path / "lake"), price=PRICE, only=FleetFilter(team=("team-03",))
    ).usd
    assert own.value == pytest.approx(float(expected_usd(rows, chosen)))
