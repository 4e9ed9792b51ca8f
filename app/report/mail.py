"""A report as a mail: the numbers as text, the page as HTML, and files beside them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.message import EmailMessage
from email.utils import formatdate, make_msgid

from steptax.app.alerts.channels import send_mail
from steptax.app.alerts.rules import Email, Rules
from steptax.app.errors import DeliveryError, NotFoundError, UserError
from steptax.app.report.html import as_html, text_of
from steptax.app.report.models import Report

_TYPES = {
    "pdf": ("application", "pdf"),
    "csv": ("text", "csv"),
    "html": ("text", "html"),
    "xlsx": ("application", "vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    "zip": ("application", "zip"),
}


def mail_channel(rules: Rules, name: str) -> Email:
    """The channel ``name``; NotFoundError where there is none, UserError where it is no mail."""
    channel = rules.channels.get(name)
    known = ", ".join(n for n, c in rules.channels.items() if isinstance(c, Email))
    hint = f"mail channels are {known or 'none yet: write [channel.NAME] with kind email'}"
    if channel is None:
        raise NotFoundError(f"there is no channel {name!r}", where="--to-mail", hint=hint)
    if not isinstance(channel, Email):
        raise UserError(f"{name!r} sends no mail", where="--to-mail", hint=hint)
    return channel


def mail_of(report: Report, channel: Email, files: Mapping[str, bytes]) -> EmailMessage:
    """The mail; ``files`` by name are attached."""
    mail = EmailMessage()
    mail["Subject"] = " ".join(f"Steptax: {report.title}, {report.period}".split())
    mail["From"], mail["To"] = channel.sender, ", ".join(channel.to)
    mail["Date"] = formatdate(time.time(), localtime=False)
    mail["Message-ID"] = make_msgid("steptax", channel.host)
    mail.set_content(text_of(report))
    mail.add_alternative(as_html(report), subtype="html")
    for name, content in files.items():
        main, sub = _TYPES[name.rpartition(".")[2]]
        mail.add_attachment(content, maintype=main, subtype=sub, filename=name)
    return mail


def deliver(report: Report, channel: Email, files: Mapping[str, bytes]) -> None:
    """Send it once; DeliveryError says why it did not arrive."""
    failure = send_mail(channel, mail_of(report, channel, files))
    if failure is not None:
        raise DeliveryError(
            f"the mail was not delivered: {failure.reason}",
            where=f"{channel.host}:{channel.port}",
            hint="check the channel" if failure.is_final else "try again later; cron does",
        )
