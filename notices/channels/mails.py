"""A delivery as a mail, in plain text."""

from __future__ import annotations

import smtplib

from django.conf import settings
from django.core.mail import EmailMessage

from notices.channels.posting import Undelivered
from notices.channels.sections import sections
from notices.models import Channel, Delivery


def reason_not_to() -> str:
    """Return why no mail can be sent; empty when it can."""
    return "" if settings.EMAIL_HOST else "No mail can be sent: SETPOINT_MAIL_HOST is not set."


def send(channel: Channel, delivery: Delivery) -> None:
    """Waits on the network: hold no transaction. Raises Undelivered."""
    if why := reason_not_to():
        raise Undelivered(why)
    message = EmailMessage(
        subject=" ".join(f"[Setpoint] {delivery.title}".split()),
        body=text(delivery),
        to=channel.addresses,
        headers={"Message-ID": f"<{delivery.pk}@{_domain()}>", "Auto-Submitted": "auto-generated"},
    )
    try:
        message.send()
    except (OSError, smtplib.SMTPException) as error:
        raise Undelivered(f"The mail server did not take it: {error}.") from error


def _domain() -> str:
    return str(settings.DEFAULT_FROM_EMAIL).rpartition("@")[2].strip("> ") or "setpoint"


def text(delivery: Delivery) -> str:
    lines = [delivery.title]
    for section in sections(delivery):
        lines += ["", section.heading] if section.heading else [""]
        indent = "  " if section.heading else ""
        lines += [f"{indent}{line}" for line in (*section.lines, section.link) if line]
    return "\n".join([*lines, "", str(delivery.body.get("link") or "")]).rstrip() + "\n"
