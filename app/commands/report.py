"""``steptax report``: one file, or one mail, with the numbers of the pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steptax.app.commands.executive import CompareFlag
from steptax.app.commands.fleet import (
    ClusterFlag,
    FirstFlag,
    LastFlag,
    ProjectFlag,
    SizeFlag,
    StateFlag,
    filter_of,
)
from steptax.app.commands.ledger import ByFlag, DenominatorFlag, ZoneFlag, day_of
from steptax.app.commands.options import (
    BillRulesFlag,
    JsonFlag,
    LakeFlag,
    PriceFlag,
    TeamFlag,
    lake_root,
    price_of,
)
from steptax.app.commands.output import console, show
from steptax.app.commands.progress import working
from steptax.app.compute.spend.compared import PREVIOUS
from steptax.app.errors import UserError
from steptax.app.report.render import FORMATS, format_of, render, write
from steptax.app.views.workspace import open_workspace

if TYPE_CHECKING:
    from steptax.app.report.models import Report

FormatFlag = Annotated[
    str | None,
    typer.Option("--format", help=f"{', '.join(FORMATS)}; else by the name of the file, else html"),
]
OutputFlag = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="file to write")
]
BaseUrlFlag = Annotated[
    str | None,
    typer.Option("--base-url", metavar="URL", help="where the pages are served; makes links whole"),
]
MailFlag = Annotated[
    str | None,
    typer.Option("--to-mail", metavar="CHANNEL", help="send it by this mail channel of --rules"),
]
RulesFlag = Annotated[
    Path | None,
    typer.Option("--rules", metavar="FILE", help="channels; else alerts.toml in the lake"),
]
WindowFlag = Annotated[
    int | None, typer.Option("--window", min=1, help="last steps only; else all of them")
]

report = typer.Typer(
    help="One file, or one mail, with the numbers of the pages: for a meeting, cron or a claim.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.add_typer(report, name="report")


@report.command("executive")
def executive_command(
    output: OutputFlag = None,
    form: FormatFlag = None,
    first: FirstFlag = None,
    last: LastFlag = None,
    compare_to: CompareFlag = PREVIOUS,
    by: ByFlag = "team",
    denominator: DenominatorFlag = "paid",
    tz: ZoneFlag = "UTC",
    price: PriceFlag = None,
    base_url: BaseUrlFlag = None,
    to_mail: MailFlag = None,
    rules: RulesFlag = None,
    teams: TeamFlag = None,
    bill_rules: BillRulesFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """The cost review on one page: to a file, or by mail with the file attached."""
    from steptax.app.report.executive import executive_report

    _check_target(output, to_mail)
    made = executive_report(
        open_workspace(lake_root(lake), teams=teams or None, bill_rules=bill_rules),
        price=price_of(price),
        first=day_of(first, "--from"),
        last=day_of(last, "--to"),
        compare_to=compare_to,
        by=by,
        denominator=denominator,
        tz=tz,
        base_url=base_url,
    )
    _hand_out(made, "executive", output, form, to_mail, rules, lake, as_json=as_json)


@report.command("fleet")
def fleet_command(
    output: OutputFlag = None,
    form: FormatFlag = None,
    teams: TeamFlag = None,
    project: ProjectFlag = None,
    cluster: ClusterFlag = None,
    state: StateFlag = None,
    size: SizeFlag = None,
    first: FirstFlag = None,
    last: LastFlag = None,
    price: PriceFlag = None,
    base_url: BaseUrlFlag = None,
    to_mail: MailFlag = None,
    rules: RulesFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """What breaks, by state, size, team and month, and what is not used: to a file, or by mail."""
    from steptax.app.report.fleet import fleet_report

    _check_target(output, to_mail)
    made = fleet_report(
        open_workspace(lake_root(lake), teams=teams or None),
        price=price_of(price),
        only=filter_of(teams, project, cluster, state, size, first, last),
        base_url=base_url,
    )
    _hand_out(made, "fleet", output, form, to_mail, rules, lake, as_json=as_json)


@report.command("job")
def job_command(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="job, as steptax jobs lists it")],
    output: OutputFlag = None,
    form: FormatFlag = None,
    window: WindowFlag = None,
    price: PriceFlag = None,
    base_url: BaseUrlFlag = None,
    to_mail: MailFlag = None,
    rules: RulesFlag = None,
    teams: TeamFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Card, causes, ledger, what-if, quiet failures and devices of one job."""
    from steptax.app.report.job import job_report

    _check_target(output, to_mail)
    made = job_report(
        open_workspace(lake_root(lake), teams=teams or None),
        job_id,
        price=price_of(price),
        last_steps=window,
        base_url=base_url,
    )
    _hand_out(made, "job", output, form, to_mail, rules, lake, as_json=as_json)


@report.command("evidence")
def evidence_command(
    job_id: Annotated[
        str, typer.Option("--job", metavar="ID", help="job, as steptax jobs lists it")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE.zip", help="the pack")],
    hosts: Annotated[
        list[str] | None, typer.Option("--host", help="a host that the claim is about; repeat it")
    ] = None,
    ranks: Annotated[
        list[int] | None, typer.Option("--rank", help="a rank that it is about; repeat it")
    ] = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="RUN", help="benchmark run of before")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="RUN", help="benchmark run of after")
    ] = None,
    serials: Annotated[
        list[str] | None,
        typer.Option("--serial", metavar="UUID=SERIAL", help="serial number of a board"),
    ] = None,
    window: WindowFlag = None,
    price: PriceFlag = None,
    base_url: BaseUrlFlag = None,
    teams: TeamFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """What a claim against a provider rests on, as one zip: HTML, CSVs and their digests.

    Without --host and --rank it is about the straggler of the card and devices out of line.
    """
    from steptax.app.report.evidence import as_zip, evidence_report
    from steptax.app.report.links import job_link
    from steptax.app.views.evidence.view import evidence_view

    view = evidence_view(
        open_workspace(lake_root(lake), teams=teams or None),
        job_id,
        price=price_of(price),
        last_steps=window,
        hosts=hosts or (),
        ranks=ranks or (),
        before=before,
        after=after,
    )
    link = job_link(base_url, job_id, price=price_of(price), last_steps=window)
    made = evidence_report(view, link, serials=_serials(serials or ()))
    content = as_zip(made)
    write(output, content)
    data = {
        "report": made.kind,
        "path": str(output),
        "bytes": len(content),
        "page": made.link.url,
        "sentence": made.sentence,
        "devices": [
            {"rank": f.rank, "host": f.host, "gpu_uuid": f.gpu_uuid} for f in view.devices.facts
        ],
        "incidents": view.incidents,
        "lost": view.lost,
        "benchmarks_compared": len(view.pairs),
    }

    def text() -> None:
        console.print(made.sentence)
        console.print(f"{output}: {len(content):,} bytes")

    show(data, as_json=as_json, text=text, warnings=made.notes)


def _serials(flags: Sequence[str]) -> dict[str, str]:
    found = {}
    for flag in flags:
        uuid, equals, serial = flag.partition("=")
        if not (uuid and equals and serial):
            raise UserError(
                f"expected UUID=SERIAL, found {flag!r}",
                where="--serial",
                hint="for example --serial GPU-1a2b=1650123456789",
            )
        found[uuid] = serial
    return found


def _check_target(output: Path | None, to_mail: str | None) -> None:
    if output is None and to_mail is None:
        raise UserError(
            "nobody is to get the report",
            where="steptax report",
            hint="name a file with -o FILE, or a mail channel with --to-mail NAME",
        )


def _hand_out(
    made: Report,
    name: str,
    output: Path | None,
    form: str | None,
    to_mail: str | None,
    rules: Path | None,
    lake: Path | None,
    *,
    as_json: bool,
) -> None:
    """Write the file, send the mail, and say so."""
    chosen = format_of(form, output)
    channel = None
    if to_mail is not None:
        from steptax.app.alerts.rules import RULES_FILE, read_rules
        from steptax.app.report.mail import mail_channel

        # Before the work: a name that is not there is told at once.
        path = rules if rules is not None else lake_root(lake) / RULES_FILE
        channel = mail_channel(read_rules(path), to_mail)
    with working("Drawing the report"):
        content = render(made, chosen)
    if output is not None:
        write(output, content)
    if channel is not None:
        from steptax.app.report.mail import deliver

        deliver(made, channel, {f"steptax-{name}.{chosen}": content})
    data = {
        "report": made.kind,
        "format": chosen,
        "path": None if output is None else str(output),
        "mailed_to": [] if channel is None else list(channel.to),
        "bytes": len(content),
        "page": made.link.url,
        "sentence": made.sentence,
        "metrics": {number.metric_id: number.measure for number in made.numbers},
    }

    def text() -> None:
        if output is not None:
            console.print(f"{output}: {len(content):,} bytes")
        if channel is not None:
            console.print(f"mailed to {', '.join(channel.to)}")
        console.print(f"the page: {made.link.url}")

    show(data, as_json=as_json, text=text, warnings=made.notes if as_json else ())
