"""Charges joined to jobs by resource, tag and time, as a person tells how."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from steptax.app.errors import InputError, NotFoundError, UserError
from steptax.app.views.bill.rules import read_rules, with_options
from steptax.app.views.fleet.bill import fleet_bill
from tests.app.fleet_lake import charge, job, lake_of, on, us

OCTOBER = us(2026, 10, 1), us(2026, 10, 2)


@pytest.fixture
def fleet(tmp_path: Path) -> Any:
    """Two jobs of two teams; their nodes, a disk, an account that only tags tell, and euros."""
    return lake_of(
        tmp_path / "lake",
        jobs=[
            job("red-1", *OCTOBER, team="Red", project="x"),
            job("blue-1", *OCTOBER, team="blue"),
        ],
        ranks=[*on("red-1", "node-1"), *on("blue-1", "node-2")],
        charges=[
            charge("1", *OCTOBER, "24.00", "i-0abc", invoice="A"),
            charge("2", *OCTOBER, "12.00", "vm/node-2", invoice="A"),
            charge("3", *OCTOBER, "3.00", "disk", tags='{"user:Team": "red"}', invoice="A"),
            charge("4", *OCTOBER, "5.00", "disk", tags='{"run": "BLUE-1"}', invoice="B"),
            charge("5", *OCTOBER, "1.50", None, charge_category="Tax", invoice="B"),
        ],
    )


def cost_of(bill: Any, name: str) -> Decimal | None:
    found: Decimal | None = next(group.cost for group in bill.groups if group.name == name)
    return found


def test_what_is_not_told_stays_unexplained(fleet: Any) -> None:
    bill = fleet_bill(fleet, by="job")
    assert cost_of(bill, "blue-1") == Decimal("12.00")
    assert cost_of(bill, "red-1") == Decimal("3.00")
    assert bill.reconciliation.unexplained_cost == Decimal("30.50")
    assert bill.reconciliation.by_means == {
        "resource": Decimal("12.00"),
        "team or project tag": Decimal("3.00"),
    }


def test_a_file_of_rules_joins_the_rest(fleet: Any, tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[tags]\njob = ["Run"]\n[resources]\n"i-0abc" = "node-1"\n')
    bill = fleet_bill(fleet, by="job", rules=read_rules(path))
    assert cost_of(bill, "red-1") == Decimal("27.00")
    assert cost_of(bill, "blue-1") == Decimal("17.00")
    assert bill.reconciliation.unexplained_cost == Decimal("1.50")
    assert bill.reconciliation.by_means["job tag"] == Decimal("5.00")


def test_pages_take_the_rules_of_the_installation(
    fleet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[resources]\n"i-0abc" = "node-1"\n')
    monkeypatch.setenv("STEPTAX_BILL_RULES", str(path))
    fresh = type(fleet)(fleet.lake, fleet.engine, type(fleet.settings)())
    assert cost_of(fleet_bill(fresh, by="job"), "red-1") == Decimal("27.00")


def test_the_command_takes_them_as_options(fleet: Any, steptax: Callable[..., Any]) -> None:
    options = ["--tag", "job=run", "--resource", "i-0abc=node-1", "--lake", str(fleet.root)]
    data = steptax("ledger", "--by", "job", *options, "--invoiced", "A=39.00", "--invoiced", "B=7")
    costs = {group["name"]: group["usd"] for group in data["groups"]}
    assert {name: Decimal(str(cost)) for name, cost in costs.items()} == {
        "red-1": 27,
        "blue-1": 17,
    }
    first, second = data["reconciliation"]["invoices"]
    assert first["invoice"] == "A"
    assert Decimal(str(first["difference"])) == 0
    assert Decimal(str(second["billed_cost"])) == Decimal("6.5")
    assert Decimal(str(second["difference"])) == Decimal("0.5")
    parts = {name: Decimal(str(cost)) for name, cost in second["billed_by_category"].items()}
    assert parts == {"not stated": 5, "Tax": Decimal("1.5")}


def test_currencies_are_added_only_at_a_rate_that_is_told(fleet: Any) -> None:
    from tests.app.fleet_lake import rows

    fleet.lake.append(
        "charges",
        rows([charge("9", *OCTOBER, "10.00", "node-1", currency="EUR", invoice="E")]),
        source="test",
    )
    with pytest.raises(UserError, match="EUR, USD") as refused:
        fleet_bill(fleet)
    assert "--rate EUR=" in str(refused.value.hint)
    rules = with_options(read_rules(None), rates=["eur=1.08"])
    bill = fleet_bill(fleet, by="job", rules=rules)
    assert cost_of(bill, "red-1") == Decimal("13.80")
    assert bill.currency == "USD"
    assert "1 EUR = 1.08 USD" in bill.cost_basis
    # Invoices stay in the money that they are written in.
    assert {i.name: (i.currency, i.billed_cost) for i in bill.reconciliation.invoices} == {
        "A": ("USD", Decimal("39.00")),
        "B": ("USD", Decimal("6.50")),
        "E": ("EUR", Decimal("10.00")),
    }


def test_an_amount_of_an_invoice_that_is_not_there_is_refused(fleet: Any) -> None:
    with pytest.raises(NotFoundError, match="no invoice 'C'"):
        fleet_bill(fleet, invoiced={"C": Decimal(1)})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tag]\n", "no table 'tag'"),
        ("[tags]\ncolour = 'x'\n", "cannot name a 'colour'"),
        ("[tags]\njob = 3\n", "names of tags"),
        ("[rates]\nEUR = 0\n", "above 0, found '0'"),
        ("rates = 3\n", r"table \[rates\]"),
        ("[rates\n", "is no TOML"),
    ],
)
def test_what_no_rules_can_say(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_rules(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_rules(tmp_path / "none.toml")


def test_options_that_are_none(fleet: Any) -> None:
    for options in ({"tags": ["job"]}, {"rates": ["EUR="]}, {"resources": ["=x"]}):
        with pytest.raises(UserError, match="expected --"):
            with_options(read_rules(None), **options)
