"""A delivery as a mail, in plain text."""

from __future__ import annotations

import smtplib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage

from notices.channels.webhooks import Undelivered
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
    body: Mapping[str, Any] = delivery.body
    lines: Iterable[str]
    if delivery.event == Channel.What.ALERTS:
        lines = _alerts(body)
    elif delivery.event == Channel.What.DIGEST:
        lines = _digest(body)
    else:
        lines = _event(body)
    return "\n".join([delivery.title, "", *lines, "", str(body.get("link") or "")]).rstrip() + "\n"


def _alerts(body: Mapping[str, Any]) -> Iterator[str]:
    for word in ("opened", "closed"):
        for alert in body[word]:
            yield f"{word.upper()} · {alert['severity']} · {alert['subject']['name']}"
            yield f"  {alert['sentence']}"
            if word == "opened":
                yield from _members(alert)
            if word == "opened" and alert["what_to_do"]:
                yield f"  What to do: {alert['what_to_do']}"
            yield f"  {alert['link']}"
        if (rest := body["counts"][word] - len(body[word])) > 0:
            yield f"… and {rest:,} more {word}."


def _members(alert: Mapping[str, Any]) -> Iterator[str]:
    members = alert.get("members") or []  # notices that waited through an upgrade lack them
    for member in members:
        yield f"    {member['name']}, since {member['since'][:16].replace('T', ' ')} UTC"
    if members and (rest := alert["member_count"] - len(members)) > 0:
        yield f"    … and {rest:,} more"


def _digest(body: Mapping[str, Any]) -> Iterator[str]:
    if "gpu_hours" in body:  # digests that waited through an upgrade lack it
        yield f"Within a day: {_came_to(body, body)}."
        yield ""
    for namespace in body["namespaces"]:
        name, gpus = namespace["namespace"] or "no namespace", _gpus(namespace["gpus_now"])
        yield f"{name}: {gpus} now, {_came_to(namespace, body)} in a day"
        for pod in namespace["pods"]:
            state = f"since {pod['since'][:16].replace('T', ' ')} UTC" if pod["is_idle_now"] else "no longer"
            owner = f", {pod['owner']}" if pod["owner"] else ""
            yield f"  {pod['cluster']}: {pod['pod']}{owner}: {_gpus(pod['gpus'])} idle {state}, {_came_to(pod, body)}"
        yield ""


def _gpus(count: int) -> str:
    return f"{count:,} GPU{'' if count == 1 else 's'}"


def _came_to(part: Mapping[str, Any], body: Mapping[str, Any]) -> str:
    hours, cost = f"{part['gpu_hours']:,} GPU-hours", part.get("cost")
    return hours if cost is None else f"{hours}, {cost:,.2f} {body['currency']}"


def _event(body: Mapping[str, Any]) -> Iterator[str]:
    if body.get("by"):
        yield f"By {body['by']}, {str(body.get('at', ''))[:16].replace('T', ' ')} UTC."
    if body.get("message"):
        yield str(body["message"])
