"""Sending one message: JSON to a URL, what Slack understands, or mail."""

from __future__ import annotations

import smtplib
import ssl
from dataclasses import dataclass
from email.errors import MessageError
from email.message import EmailMessage
from email.utils import format_datetime
from http.client import HTTPException
from typing import Any

from steptax.app.alerts.records import Message
from steptax.app.alerts.rules import BURNS, Email, Webhook, secret
from steptax.app.compute.alerting import US_PER_S, Change
from steptax.app.errors import SteptaxError
from steptax.app.format import format_moment
from steptax.app.printable import printable

TIMEOUT_S = 20.0
_SYMBOLS = {"info": "i", "warning": "!", "critical": "!!"}


#: What else may be why an alert is over, of a job and of a scope.
_ENDED = ("the job runs no more", "its scope has no objective any more")


@dataclass(frozen=True)
class Failure:
    """Why a message did not arrive, and whether trying again can help."""

    reason: str
    is_final: bool = False


def title_of(message: Message) -> str:
    """One line, for a subject and a notification."""
    word = "cleared" if message.change is Change.CLEARED else message.severity
    return f"[{word}] {message.rule}: {_whom(message)}"


def _whom(message: Message) -> str:
    what = "scope" if message.metric in BURNS else "job"
    return f"{what} {message.job}"


def text_of(message: Message) -> str:
    """What happened, since when, and what was measured."""
    if message.change is Change.CLEARED and message.cleared_us is not None:
        minutes = (message.cleared_us - message.fired_us) / US_PER_S / 60
        lines = [
            f"Over: {message.metric} is back, or {_ENDED[message.metric in BURNS]}. "
            f"What was told when it fired: {message.text}",
            f"fired {format_moment(message.fired_us)}",
            f"cleared {format_moment(message.cleared_us)}, after {minutes:,.0f} min",
        ]
    else:
        lines = [message.text, f"since {format_moment(message.fired_us)}"]
    return printable("\n".join(lines))


def body_of(message: Message) -> dict[str, Any]:
    """The generic JSON: everything that is known of the message, under names with units."""
    return {
        "id": message.key,
        "change": message.change.value,
        "rule": message.rule,
        "severity": message.severity,
        "job_id": message.job,
        "metric": message.metric,
        "value": message.value,
        "text": text_of(message).splitlines()[0],
        "fired_us": message.fired_us,
        "cleared_us": message.cleared_us,
    }


def slack_of(message: Message) -> dict[str, Any]:
    """The same for an incoming webhook of Slack (https://api.slack.com/messaging/webhooks)."""
    title = f"{_SYMBOLS[message.severity]} {title_of(message)}"
    body = _slack_escaped(text_of(message))
    return {
        "text": _slack_escaped(title),
        "blocks": [
            {"type": "header", "text": {"type": "plain_text", "text": title[:150]}},
            {"type": "section", "text": {"type": "mrkdwn", "text": body[:2900]}},
        ],
    }


def _slack_escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def send(channel: Webhook | Email, message: Message) -> Failure | None:
    """Deliver once; None where it arrived. Raises nothing: a fault is what it returns."""
    try:
        if isinstance(channel, Email):
            return _mail(channel, message)
        return _post(channel, message)
    except SteptaxError as error:  # a secret that is not there now may be there later
        return Failure(f"{error.where}: {error.message}")
    except (ValueError, OSError, MessageError, HTTPException) as error:
        # A token, a name or an address that cannot be written into a message. Its text stays here.
        return Failure(f"cannot be sent: {type(error).__name__}")


def _post(channel: Webhook, message: Message) -> Failure | None:
    import requests

    url = channel.url or secret(channel.url_env, channel.url_file, "url")
    # The same in every attempt: who got it already can tell.
    headers = {"Idempotency-Key": message.key}
    if channel.token_env is not None:
        headers["Authorization"] = f"Bearer {secret(channel.token_env, None, 'token')}"
    body = slack_of(message) if channel.kind == "slack" else body_of(message)
    try:
        # The body of the answer is not read: a receiver could make it last for ever.
        with requests.post(
            url, json=body, headers=headers, timeout=TIMEOUT_S, allow_redirects=False, stream=True
        ) as answer:
            status, is_ok = answer.status_code, answer.ok and not answer.is_redirect
    except requests.RequestException as error:
        # The text of the error may hold the URL, which may hold a secret.
        return Failure(type(error).__name__)
    if is_ok:
        return None
    final = 400 <= status < 500 and status not in (408, 425, 429)
    return Failure(f"answered {status}", final)


def _mail(channel: Email, message: Message) -> Failure | None:
    from datetime import UTC, datetime

    mail = EmailMessage()
    mail["Subject"] = _one_line(title_of(message))
    mail["From"], mail["To"] = channel.sender, ", ".join(channel.to)
    mail["Date"] = format_datetime(datetime.fromtimestamp(message.fired_us / US_PER_S, UTC))
    # The same in every attempt: mail programs show it once.
    mail["Message-ID"] = f"<steptax-{_one_line(message.key)}@{channel.host}>".replace(" ", "-")
    mail.set_content(text_of(message) + "\n")
    return send_mail(channel, mail)


def send_mail(channel: Email, mail: EmailMessage) -> Failure | None:
    """Hand ``mail`` to the server of ``channel`` once; None where all of its recipients have it.

    InputError where user or password are not in the environment.
    """
    try:
        with smtplib.SMTP(channel.host, channel.port, timeout=TIMEOUT_S) as server:
            if channel.starttls:
                server.starttls(context=ssl.create_default_context())
            if channel.user_env is not None:
                user = secret(channel.user_env, None, "user")
                server.login(user, secret(channel.password_env, None, "password"))
            refused = server.send_message(mail)
    except smtplib.SMTPRecipientsRefused:
        return Failure("every recipient was refused", is_final=True)
    except smtplib.SMTPResponseException as error:
        # What the server says may repeat the password that it was given.
        return Failure(f"{type(error).__name__} {error.smtp_code}")
    except (smtplib.SMTPException, OSError) as error:
        return Failure(type(error).__name__)
    # Somebody has it: a second attempt would double it for them.
    return Failure(f"refused for {', '.join(refused)}", is_final=True) if refused else None


def _one_line(text: str) -> str:
    return " ".join(text.split())
