"""Reports: the numbers of the pages in every file, really printed and really mailed."""

from __future__ import annotations

import csv
import email
import email.policy
import hashlib
import io
import json
import re
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.message import EmailMessage
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.charts.tables import Column, table
from steptax.app.format import format_exact
from steptax.app.lake import Lake
from steptax.app.report.executive import executive_report
from steptax.app.report.files import as_csv, as_xlsx
from steptax.app.report.html import as_html
from steptax.app.report.links import PAGE_WINDOWS
from steptax.app.report.models import Link, Report, Section
from steptax.app.report.pdf import as_pdf, browser, by_library, pages_of
from steptax.app.report.render import possible_formats, render
from steptax.app.views.workspace import open_workspace
from steptax.pages import state
from steptax.pages.review import COMPARE, COMPARE_FROM, COMPARE_UNTIL
from tests.app.device_lake import HOT, START, store_ranks, store_samples, store_steps, uuid
from tests.app.fleet_lake import HOUR, S, charge, job, lake_of, rows, steps, us
from tests.app.mailbox import Mailbox

Steptax = Callable[..., Any]
PRICE = "2.13"
SCRIPT = "<script>alert(1)</script>"
FORMULA = '=HYPERLINK("http://evil.example")'


@pytest.fixture
def fleet(steptax: Steptax, tmp_path: Path) -> Steptax:
    """Nine jobs whose names and teams are what nobody should print as they are."""
    teams = [SCRIPT, FORMULA, "t" * 80, None, "+4", "@x", "-1", "blue", "red"]
    jobs, recorded = [], []
    for place, team in enumerate(teams):
        begin = us(2026, 11, 1 + place)
        name = SCRIPT if place == 0 else f"job-{place}"
        end = begin + (20 + place) * HOUR + 1234
        jobs.append(job(name, begin, end, team=team, owner=FORMULA, name="n" * 300))
        if place < 3:
            recorded += steps(name, begin, 20, slow_us=4 * S * (place + 1))
    lake_of(tmp_path / "lake", jobs=jobs, steps=recorded)
    return steptax


def csv_cells(path: Path) -> dict[tuple[str, int, str], str]:
    with path.open(newline="") as lines:
        return {
            (row["table"], int(row["row"]), row["field"]): row["value"]
            for row in csv.DictReader(lines)
        }


def csv_table(cells: dict[tuple[str, int, str], str], name: str) -> list[dict[str, str]]:
    found: dict[int, dict[str, str]] = {}
    for (of, row, field), value in cells.items():
        if of == name:
            found.setdefault(row, {})[field] = value
    return list(found.values())


def pdf_text(content: bytes) -> tuple[int, str]:
    pypdf = pytest.importorskip("pypdf")
    pages = pypdf.PdfReader(io.BytesIO(content)).pages
    return len(pages), "\n".join(page.extract_text() for page in pages)


def needs_browser() -> None:
    if browser() is None:
        pytest.skip("no Chromium on this machine (set STEPTAX_CHROMIUM to its path)")


# -- one number, every file -----------------------------------------------------------------------


def test_all_files_say_what_the_commands_say_to_the_cent(fleet: Steptax, tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    needs_browser()
    told = fleet("executive", "--price", PRICE)["metrics"]
    ledger = fleet("ledger", "--price", PRICE)
    for form in ("csv", "xlsx", "html", "pdf"):
        done = fleet("report", "executive", "--price", PRICE, "-o", tmp_path / f"brief.{form}")
        assert done["format"] == form
        for name, measure in told.items():
            assert done["metrics"][name]["value"] == measure["value"]
    # The CSV: digit for digit.
    cells = csv_cells(tmp_path / "brief.csv")
    numbers = {row["metric_id"]: row for row in csv_table(cells, "numbers")}
    for name, measure in told.items():
        assert float(numbers[name]["value"]) == measure["value"]
    (total,) = csv_table(cells, "bill_total")
    assert float(total["cost"]) == ledger["total"]["usd"]
    groups = csv_table(cells, "bill")
    assert [float(row["cost"]) for row in groups] == [g["usd"] for g in ledger["groups"]]
    # The workbook: numbers are numbers.
    book = openpyxl.load_workbook(tmp_path / "brief.xlsx")
    sheet = {row[0].value: row[2].value for row in book["Numbers"].iter_rows(min_row=2)}
    for name, measure in told.items():
        assert sheet[name] == pytest.approx(measure["value"], rel=1e-15)
    costs = [row[4].value for row in book["The whole bill by team"].iter_rows(min_row=2)]
    assert costs == [g["usd"] for g in ledger["groups"]]
    # What people read.
    pages, printed = pdf_text((tmp_path / "brief.pdf").read_bytes())
    assert pages == 1
    html = (tmp_path / "brief.html").read_text()
    cents = [f"${told['spend_usd']['value']:,.2f}", f"${ledger['total']['usd']:,.2f}"]
    cents += [f"${group['usd']:,.2f}" for group in ledger["groups"][:6]]
    for text in (*cents, f"{told['recoverable_usd']['value']:.2f}", "9 jobs"):
        assert text in html
        assert text in printed


def test_totals_of_a_published_accounting_file(
    steptax: Steptax, shared: Callable[[str], Path], tmp_path: Path
) -> None:
    """4,285 jobs of a real sacct: 506.91 GPU-hours, at $2 and for December alone."""
    steptax("ingest", "sacct", shared("fleet/xdmod_phillips_sacct.psv"))
    steptax("report", "executive", "--price", "2", "-o", tmp_path / "a.csv")
    numbers = csv_table(csv_cells(tmp_path / "a.csv"), "numbers")
    spend = next(row for row in numbers if row["metric_id"] == "spend_usd")
    assert float(spend["value"]) == pytest.approx(2 * 506.91, abs=0.02)
    limits = ("--from", "2016-12-01", "--to", "2016-12-31")
    steptax("report", "executive", "--price", "2", *limits, "-o", tmp_path / "b.csv")
    (total,) = csv_table(csv_cells(tmp_path / "b.csv"), "bill_total")
    # What ran in December, not what began in it: months split by time.
    assert float(total["gpu_hours"]) == pytest.approx(465.49, abs=0.01)
    assert float(total["cost"]) == pytest.approx(2 * 465.49, abs=0.02)


def test_what_is_not_known_is_not_zero(fleet: Steptax, tmp_path: Path) -> None:
    fleet("report", "executive", "-o", tmp_path / "a.html")
    html = (tmp_path / "a.html").read_text()
    assert "$0" not in html
    assert re.search(r"Spend<b>unknown</b>", html)
    assert "no price is set" in html
    fleet("report", "executive", "-o", tmp_path / "a.csv")
    numbers = csv_table(csv_cells(tmp_path / "a.csv"), "numbers")
    spend = next(row for row in numbers if row["metric_id"] == "spend_usd")
    assert spend["value"] == ""
    assert "no price" in spend["unknown"]


def test_a_period_without_jobs_says_so(fleet: Steptax, tmp_path: Path) -> None:
    limits = ("--from", "2027-01-01", "--to", "2027-01-31")
    done = fleet("report", "executive", *limits, "--price", PRICE, "-o", tmp_path / "a.html")
    assert done["sentence"] == "There are no jobs in this period."
    assert "no jobs" in (tmp_path / "a.html").read_text()


def test_the_bill_of_the_provider_and_the_budget_are_on_the_page(
    steptax: Steptax, tmp_path: Path
) -> None:
    begin = us(2026, 11, 2)
    lake_of(
        tmp_path / "lake",
        jobs=[job("a", begin, begin + 10 * HOUR, team="red")],
        ranks=[{"job_id": "a", "rank": r, "host": "n1"} for r in range(4)],
        charges=[charge("1", begin, begin + 20 * HOUR, "123.45", "n1")],
    )
    steptax("budget", "set", "--period", "2026-11", "--usd", "5000", "--by", "ada")
    to = ("--to", "2026-11-30")
    done = steptax("report", "executive", "--price", PRICE, *to, "-o", tmp_path / "a.html")
    html = (tmp_path / "a.html").read_text()
    told = steptax("ledger", "--price", PRICE, *to)["reconciliation"]
    assert told["effective_cost"] == 123.45
    assert "$123.45" in html
    assert f"${told['unallocated_cost']:,.2f}" in html
    assert "of $5,000 in 2026-11" in html
    assert done["page"] == "/?price=2.13&to=2026-11-30"
    steptax("report", "executive", "--price", PRICE, *to, "-o", tmp_path / "a.csv")
    history = csv_table(csv_cells(tmp_path / "a.csv"), "budget_history")
    assert [(row["set_by"], float(row["budget_usd"])) for row in history] == [("ada", 5000.0)]


@given(st.integers(-(10**12), 10**12), st.sampled_from(["USD", "USD/day", "GPU-hours", ""]))
def test_exact_numbers_keep_their_digits(thousandths: int, unit: str) -> None:
    value = thousandths / 1000
    text = format_exact(value, unit)
    found = re.fullmatch(r"(−?)\$?([\d,]+)(?:\.(\d+))?( ?\D*)", text)
    assert found is not None, text
    sign, whole, decimals, _ = found.groups()
    if unit.startswith("USD"):
        assert len(decimals) >= 2
    else:
        assert decimals is None or not decimals.endswith("0")
    read = float(f"{'-' if sign else ''}{whole.replace(',', '')}.{decimals or 0}")
    # Money to the cent; other numbers to six digits and two decimals, whichever is more.
    off = 0.00501 if unit.startswith("USD") else min(0.00501, 5e-6 * abs(value))
    assert read == pytest.approx(value, rel=0, abs=off)


# -- names are text, whatever they hold -----------------------------------------------------------


def test_markup_in_names_stays_text(fleet: Steptax, tmp_path: Path) -> None:
    for name, command in {"a": ("executive",), "b": ("job", SCRIPT)}.items():
        path = tmp_path / f"{name}.html"
        base = ("--base-url", "https://st.example.org/steptax/")
        fleet("report", *command, "--price", PRICE, *base, "-o", path)
        html = path.read_text()
        assert "<script" not in html
        assert "&lt;script&gt;alert(1)" in html
        # Nothing is fetched: no address but the links to the page and no element that loads.
        assert set(re.findall(r'(?:href|src)="(https?://[^/"]+)', html)) == {
            "https://st.example.org"
        }
        assert not re.search(r"<(img|link|iframe|object|embed|base|form)\b|url\(|@import", html)
        assert "default-src 'none'" in html


def nasty() -> Report:
    columns = (Column("a", "=a", "text"), Column("b", "b", "number"), Column("c", "c", "time"))
    starts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "x" * 40_000, None]
    made = table(columns, [(text, -1.5, 1_700_000_000_000_000) for text in starts])
    section = Section("nasty", "A/B: [c]*? of a title that is too long for a sheet", made)
    return Report("k", "=t", "p", "=s", (), (section,), (), (), Link("/", False), 0, "1")


def test_no_cell_is_a_formula() -> None:
    openpyxl = pytest.importorskip("openpyxl")
    lines = list(csv.DictReader(io.StringIO(as_csv(nasty()), newline="")))
    texts = [line["value"] for line in lines if line["field"] in ("a", "text")]
    assert texts
    assert not [text for text in texts if text[:1] in {"=", "+", "-", "@", "\t", "\r"}]
    assert "'=1+1" in texts
    assert "2023-11-14T22:13:20.000000+00:00" in [line["value"] for line in lines]
    book = openpyxl.load_workbook(io.BytesIO(as_xlsx(nasty())))
    found = [cell for sheet in book for row in sheet.iter_rows() for cell in row]
    assert "=1+1" in [cell.value for cell in found]
    assert {cell.data_type for cell in found} <= {"s", "n"}
    sheet = book["A B   c    of a title that is t"]
    assert sheet["B2"].value == -1.5
    assert len(sheet["A8"].value) == 32_767
    assert sheet["A9"].value is None


# -- paper ----------------------------------------------------------------------------------------


def brief(lake: Path) -> Report:
    return executive_report(open_workspace(lake), base_url="https://st.example.org")


def test_a_brief_with_all_of_its_parts_fits_one_page(fleet: Steptax, tmp_path: Path) -> None:
    needs_browser()
    begin = us(2026, 11, 1)
    lake = Lake(tmp_path / "lake", create=False)
    lines = [
        charge(str(n), begin + n * HOUR, begin + (n + 30) * HOUR, "98765.43", f"n-{n}" * 9)
        for n in range(12)
    ]
    lake.append("charges", rows(lines), source="test")
    budget = ("--usd", "1000000", "--goodput-slo", "0.9", "--by", "ada")
    fleet("budget", "set", "--period", "2026-11", *budget)
    limits = ("--from", "2026-11-01", "--to", "2026-11-30", "--by", "job", "--tz", "Asia/Kolkata")
    out = ("-o", tmp_path / "a.pdf", "--base-url", f"https://{'long.' * 30}example.org")
    fleet("report", "executive", "--price", PRICE, *limits, *out)
    pages, printed = pdf_text((tmp_path / "a.pdf").read_bytes())
    assert pages == 1
    for title in ("Where it went", "The whole bill by job", "Against the bill", "Budget", "Page:"):
        assert title in printed
    assert "$1,185,185.16" in printed


@pytest.fixture
def two_months(steptax: Steptax, tmp_path: Path) -> Steptax:
    """A job a day in October and November, one day of ten times that, and one with steps."""
    begin = us(2026, 10, 1)
    jobs = [
        job(f"d{k}", begin + k * 24 * HOUR, begin + (k * 24 + 20) * HOUR, team="red", owner="ann")
        | {"world_size": 40 if k == 50 else 4, "state": "failed" if k % 20 == 9 else "completed"}
        for k in range(60)
    ]
    run = us(2026, 11, 20)
    jobs.append(job("run", run, run + 2 * HOUR, team="blue", owner="bob", tokens_per_step=1_000))
    lake_of(tmp_path / "lake", jobs=jobs, steps=steps("run", run, 120, slow_us=10 * S))
    steptax("budget", "set", "--period", "2026-11", "--usd", "9000", "--goodput-slo", "0.9")
    return steptax


NOVEMBER = ("--from", "2026-11-01", "--to", "2026-11-30", "--price", "2")


def test_the_brief_says_what_the_first_screen_says(two_months: Steptax, tmp_path: Path) -> None:
    view = two_months("executive", *NOVEMBER)
    asked = ("report", "executive", *NOVEMBER, "--compare-to", "2026-10-01..2026-10-30")
    two_months(*asked, "-o", tmp_path / "a.html")
    html = unescape((tmp_path / "a.html").read_text())
    first = view["fix_first"]
    for said in (view["sentence"], first["what"], first["worth"], first["why"], first["action"]):
        assert str(said) in html
    for card in view["cards"]:
        assert f'id="n-{card["metric_id"]}">{card["title"]}<b>' in html
        assert all(line in html for line in card["details"])
    spend = next(card for card in view["cards"] if card["metric_id"] == "cost_usd")
    assert spend["delta"]["change"]["value"] > 0.1
    assert "vs 2026-10-01 to 2026-10-30" in html
    assert "of the 0.3 % that was recorded in steps" in html  # what the straggler tax is of
    for week in view["weeks"]:
        assert f"week of {week['week']}" in html
    assert view["variance"]["effects"]
    assert all(f'<td class="text" title="{name}"' in html for name in ("before", "now"))
    assert view["anomalies"][0]["driver"] in html
    assert "compare_from=2026-10-01" in html
    if browser() is not None:
        two_months(*asked, "-o", tmp_path / "a.pdf")
        assert pdf_text((tmp_path / "a.pdf").read_bytes())[0] == 1


def test_a_brief_with_much_to_say_takes_smaller_letters(
    two_months: Steptax, tmp_path: Path
) -> None:
    needs_browser()
    report = executive_report(open_workspace(tmp_path / "lake"))
    # Enough also on the first of a month, when there is less to say of its budget.
    long = replace(report, basis=("what it rests on " * 48,) * 3)
    made = render(long, "pdf")
    assert pages_of(made) == pdf_text(made)[0] == 1
    assert pages_of(as_pdf(as_html(long))) == 2


def test_the_library_prints_one_page_too(fleet: Steptax, tmp_path: Path) -> None:
    try:
        import weasyprint  # noqa: F401
    except (ImportError, OSError) as problem:
        pytest.skip(f"WeasyPrint cannot be loaded: {problem}")
    report = brief(tmp_path / "lake")
    pages, printed = pdf_text(by_library(as_html(report)))
    assert pages == 1
    assert "Jobs by what can be won back" in printed
    assert report.numbers[1].text in printed


def test_without_a_browser_and_the_library_it_says_what_to_install(
    fleet: Steptax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STEPTAX_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    error = fleet("report", "executive", "-o", tmp_path / "a.pdf", fails=2)
    assert "Chromium" in error["message"]
    assert "apt-get install chromium" in error["hint"]
    assert not (tmp_path / "a.pdf").exists()
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    error = fleet("report", "executive", "-o", tmp_path / "a.xlsx", fails=2)
    assert "in a checkout of Steptax: pip install '.[reports]'" in error["hint"]
    monkeypatch.setenv("STEPTAX_CHROMIUM", str(tmp_path / "nowhere"))
    error = fleet("report", "executive", "-o", tmp_path / "a.pdf", fails=2)
    assert error["where"] == "STEPTAX_CHROMIUM"
    # The page offers what can be made, and does not fail for what cannot.
    monkeypatch.delitem(sys.modules, "xlsxwriter")
    assert possible_formats() == ["html", "csv", "xlsx"]


def test_a_browser_that_prints_nothing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fleet: Steptax
) -> None:
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\necho no display >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("STEPTAX_CHROMIUM", str(broken))
    error = fleet("report", "executive", "-o", tmp_path / "a.pdf", fails=1)
    assert "no display" in error["message"]


# -- mail -----------------------------------------------------------------------------------------


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    made = Mailbox()
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def channels(tmp_path: Path, port: int) -> Path:
    path = tmp_path / "alerts.toml"
    path.write_text(
        f"""
[channel.cfo]
kind = "email"
host = "127.0.0.1"
port = {port}
sender = "steptax@example.org"
to = ["ada@example.org", "bob@example.org"]
starttls = false
[channel.hook]
kind = "webhook"
url = "http://127.0.0.1:9/x"
"""
    )
    return path


def test_the_brief_arrives_by_mail(fleet: Steptax, tmp_path: Path, mailbox: Mailbox) -> None:
    rules = channels(tmp_path, mailbox.server_address[1])
    ask = ("report", "executive", "--price", PRICE, "--rules", rules)
    done = fleet(*ask, "--to-mail", "cfo", "--format", "csv", "--base-url", "https://s.example")
    assert done["mailed_to"] == ["ada@example.org", "bob@example.org"]
    assert done["path"] is None
    (raw,) = mailbox.mails
    mail = email.message_from_string(raw, policy=email.policy.default)
    assert isinstance(mail, EmailMessage)
    assert mail["To"] == "ada@example.org, bob@example.org"
    assert mail["Subject"].startswith("Steptax: Executive cost review, 2026-11-01 to ")
    assert mail["Message-ID"]
    text, html = (mail.get_body((kind,)) for kind in ("plain", "html"))
    assert text is not None
    assert html is not None
    spent = f"${done['metrics']['spend_usd']['value']:,.2f}"
    assert spent in text.get_content()
    assert "https://s.example/?price=2.13" in text.get_content()
    assert spent in html.get_content()
    (attached,) = mail.iter_attachments()
    assert attached.get_filename() == "steptax-executive.csv"
    numbers = attached.get_content()
    assert numbers.startswith("table,row,field,value,unit")
    assert f"value,{done['metrics']['spend_usd']['value']}" in numbers


def test_a_mail_that_does_not_arrive_has_its_exit_code(
    fleet: Steptax, tmp_path: Path, mailbox: Mailbox
) -> None:
    rules = channels(tmp_path, mailbox.server_address[1])
    ask = ("report", "executive", "--rules", rules, "--to-mail")
    mailbox.busy = 1
    error = fleet(*ask, "cfo", fails=1)
    assert error["kind"] == "DeliveryError"
    assert "451" in error["message"]
    assert fleet(*ask, "cfo")["mailed_to"]
    assert len(mailbox.mails) == 1
    assert "cfo" in fleet(*ask, "nobody", fails=2)["hint"]
    assert "sends no mail" in fleet(*ask, "hook", fails=2)["message"]
    assert fleet(*ask[:2], "--to-mail", "cfo", fails=2)["kind"] == "NotFoundError"


def test_what_is_asked_wrongly_is_told(fleet: Steptax, tmp_path: Path) -> None:
    ask = ("report", "executive")
    assert "--to-mail" in fleet(*ask, fails=2)["hint"]
    assert "xlsx" in fleet(*ask, "-o", tmp_path / "a", "--format", "doc", fails=2)["hint"]
    missing = tmp_path / "no" / "a.html"
    assert fleet(*ask, "-o", missing, fails=2)["where"] == str(missing)
    days = ("--from", "2026-11-05", "--to", "2026-11-01", "-o", tmp_path / "a.html")
    assert fleet(*ask, *days, fails=2)["where"] == "--to"
    address = ("--base-url", "javascript:alert(1)", "-o", tmp_path / "a.html")
    assert fleet(*ask, *address, fails=2)["where"] == "--base-url"
    assert not (tmp_path / "a.html").exists()


# -- links ----------------------------------------------------------------------------------------


def test_links_carry_the_choices_under_the_names_of_the_pages(
    fleet: Steptax, tmp_path: Path
) -> None:
    base = ("--base-url", "https://s.example/x/", "--price", PRICE, "-o", tmp_path / "a.html")
    chosen = ("--by", "month", "--tz", "Europe/Berlin", "--denominator", "allocated")
    link = urlsplit(fleet("report", "executive", *chosen, *base)["page"])
    assert (link.netloc, link.path) == ("s.example", "/x/")
    assert parse_qs(link.query) == {
        state.PRICE: [PRICE],
        state.BY: ["month"],
        state.DENOMINATOR: ["allocated"],
        state.ZONE: ["Europe/Berlin"],
    }
    for how, want in (
        ("year", {COMPARE: ["year before"]}),
        ("none", {COMPARE: ["nothing"]}),
        (
            "2026-10-01..2026-10-31",
            {
                COMPARE: ["days of my own"],
                COMPARE_FROM: ["2026-10-01"],
                COMPARE_UNTIL: ["2026-10-31"],
            },
        ),
    ):
        page = fleet("report", "executive", "--compare-to", how, "-o", tmp_path / "a.html")["page"]
        assert parse_qs(urlsplit(page).query) == want
    link = urlsplit(fleet("report", "job", SCRIPT, "--window", "100", *base)["page"])
    assert link.path == "/x/job"
    want = {state.JOB: [SCRIPT], state.PRICE: [PRICE], state.WINDOW: ["100"]}
    assert parse_qs(link.query) == want
    assert {*map(str, PAGE_WINDOWS), "all"} == set(state.WINDOWS)
    link = urlsplit(fleet("report", "job", SCRIPT, "--window", "7", *base)["page"])
    assert parse_qs(link.query)[state.WINDOW] == ["all"]
    assert "the report the last 7" in (tmp_path / "a.html").read_text()


# -- a job, and a claim ---------------------------------------------------------------------------


@pytest.fixture
def slow(steptax: Steptax, tmp_path: Path) -> Steptax:
    """A job of eight ranks whose rank 5 is hot and gives an Xid; benchmarked before and after."""

    def bad(second: int) -> dict[str, Any]:
        if second < 10:
            return {}
        held = {"sm_clock_mhz": 1110.0, "throttle_reasons": 0x20, "temperature_c": 88.0}
        return held | {"xid": 48 if second >= 20 else 0}

    lake = Lake(tmp_path / "lake", create=True)
    store_steps(lake, "j")
    store_ranks(lake, "j")
    store_samples(lake, {HOT: bad})
    bench = [
        {
            "run_id": run,
            "host": f"node-{device // 4}",
            "gpu_uuid": uuid(device),
            "test": "gemm",
            "size": "8192",
            "dtype": "bf16",
            "value": value,
            "unit": "TFLOP/s",
            "n": 5,
            "repeats": json.dumps([value + d for d in (-2, -1, 0, 1, 2)]),
            "measured_at_us": START + hours * 3600 * S,
        }
        for run, hours, hot in (("old", -9, 700.0), ("before", -2, 740.0), ("after", 2, 610.0))
        for device in range(8)
        for value in ([hot] if device == HOT else [742.0])
    ]
    lake.append("bench_results", rows(bench), source="test")
    return steptax


def test_the_report_of_a_job_says_what_its_page_says(slow: Steptax, tmp_path: Path) -> None:
    told = slow("job", "j", "--price", PRICE)
    done = slow("report", "job", "j", "--price", PRICE, "-o", tmp_path / "j.csv")
    assert done["sentence"] == told["card"]["sentence"]
    for name, measure in done["metrics"].items():
        assert measure == told["metrics"][name]
    cells = csv_cells(tmp_path / "j.csv")
    ledger = csv_table(cells, "ledger")
    known = [line for line in told["ledger"] if line["usd"] is not None]
    assert known
    for line in known:
        (row,) = [r for r in ledger if r["bucket"] == line["title"]]
        assert float(row["usd"]) == line["usd"]
    quiet = slow("quiet", "--job", "j", "--last", "60")
    assert next(row["found"] for row in csv_table(cells, "quiet")).startswith("17.5 %")
    assert len(csv_table(cells, "quiet")) == len(quiet["lines"])
    slow("report", "job", "j", "--price", PRICE, "-o", tmp_path / "j.html")
    html = (tmp_path / "j.html").read_text()
    for title in ("Straggler card", "Why it is slow", "What a repair returns", "Quiet failures"):
        assert f"<h2>{title}</h2>" in html
    assert "thermal slowdown" in html
    # The repair of rank 5 in the estimate is what the card says it costs.
    first = csv_table(cells, "whatif")[0]
    assert (first["k"], first["rank"]) == ("1", "5")
    per_day = told["metrics"]["recoverable_usd_per_day"]["value"]
    assert float(first["usd_per_day"]) == pytest.approx(per_day, rel=0.01)


def test_a_job_without_steps_has_its_bill(fleet: Steptax, tmp_path: Path) -> None:
    done = fleet("report", "job", "job-5", "--price", PRICE, "-o", tmp_path / "j.html")
    assert "No per-rank steps" in done["sentence"]
    assert done["metrics"]["gpu_hours"]["value"] == pytest.approx(4 * (25 + 1234 / HOUR))
    assert f"${done['metrics']['spend_usd']['value']:,.2f}" in (tmp_path / "j.html").read_text()
    assert fleet("report", "job", "x", "-o", tmp_path / "x.html", fails=2)["kind"] == (
        "NotFoundError"
    )


def pack_of(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as pack:
        return {name: pack.read(name).decode() for name in pack.namelist()}


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_evidence_pack_holds_what_a_provider_asks_for(slow: Steptax, tmp_path: Path) -> None:
    path = tmp_path / "claim.zip"
    serial = ("--serial", f"{uuid(HOT)}=165<b>0</b>")
    done = slow("report", "evidence", "--job", "j", "--price", PRICE, *serial, "-o", path)
    files = pack_of(path)
    manifest = json.loads(files.pop("MANIFEST.json"))
    assert manifest["sha256"] == {
        name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()
    }
    (device,) = rows_of(files["devices.csv"])
    assert (device["rank"], device["host"]) == ("5", "node-1")
    assert (device["gpu_uuid"], device["serial"]) == (uuid(HOT), "165<b>0</b>")
    incidents = {row["kind"]: row for row in rows_of(files["incidents.csv"])}
    assert incidents["xid"]["from"] == "2026-03-01T00:00:20.000000+00:00"
    assert "Xid 48: uncorrectable memory error" in incidents["xid"]["text"]
    assert "thermal slowdown 83.3 %" in incidents["throttled"]["text"]
    assert incidents["throttled"]["until"] == "2026-03-01T00:01:00.000000+00:00"
    (pair,) = rows_of(files["benchmark.csv"])
    assert (pair["before_run"], pair["after_run"]) == ("before", "after")
    assert (float(pair["before"]), float(pair["after"])) == (740.0, 610.0)
    assert float(pair["gap_ratio"]) == pytest.approx(1 - 610 / 740)
    assert pair["verdict"].startswith("reject")
    assert [row["when"] for row in rows_of(files["bench.csv"])] == ["before", "before", "after"]
    # What was lost is what the job's own command says.
    told = slow("job", "j", "--price", PRICE)["metrics"]
    lost = rows_of(files["lost.csv"])[0]
    assert float(lost["gpu_hours"]) == told["recoverable_gpu_hours"]["value"]
    assert float(lost["usd"]) == told["recoverable_usd"]["value"]
    assert len(rows_of(files["samples.csv"])) == 60
    assert {row["gpu_uuid"] for row in rows_of(files["samples.csv"])} == {uuid(HOT)}
    html = files["report.html"]
    assert "2026-03-01 00:00:20 UTC" in html
    assert "165&lt;b&gt;0&lt;/b&gt;" in html
    assert [d["gpu_uuid"] for d in done["devices"]] == [uuid(HOT)]


def test_a_claim_is_about_whom_it_names(slow: Steptax, tmp_path: Path) -> None:
    ask = ("report", "evidence", "--job", "j", "-o", tmp_path / "c.zip")
    done = slow(*ask, "--host", "node-0")
    assert [d["rank"] for d in done["devices"]] == [0, 1, 2, 3]
    # The straggler is not theirs, so nothing of it is charged to them.
    assert not [one for one in done["lost"] if "slow for good" in one["what"]]
    assert slow(*ask, "--rank", "5", "--before", "old", "--after", "after")["incidents"]
    (pair,) = rows_of(pack_of(tmp_path / "c.zip")["benchmark.csv"])
    assert (pair["before_run"], float(pair["before"])) == ("old", 700.0)
    assert "node-1" in slow(*ask, "--host", "x", fails=2)["hint"]
    assert slow(*ask, "--rank", "9", fails=2)["where"] == "--rank"
    assert slow(*ask, "--before", "old", fails=2)["where"] == "--after"
    assert slow(*ask, "--before", "old", "--after", "x", fails=2)["where"] == "x"
    assert slow(*ask, "--serial", "GPU-x=1", fails=2)["where"] == "--serial"
    assert slow(*ask, "--serial", "1", fails=2)["hint"]


def test_nobody_is_accused_of_nothing(steptax: Steptax, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    store_steps(lake, "j", slow=None)
    store_ranks(lake, "j")
    store_samples(lake, {})
    error = steptax("report", "evidence", "--job", "j", "-o", tmp_path / "c.zip", fails=2)
    assert "--host" in error["hint"]
    assert not (tmp_path / "c.zip").exists()
