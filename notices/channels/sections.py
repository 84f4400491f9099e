"""Parts of a notice for people: a heading, lines and a link each. Mail and chat services print the same ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from notices.models import Channel, Delivery


@dataclass(frozen=True, slots=True)
class Section:
    """One alert, one namespace of a digest, or one remark without a heading."""

    heading: str
    lines: tuple[str, ...] = ()
    link: str = ""


def sections(delivery: Delivery) -> list[Section]:
    """Return all parts of a delivery, in their order, without its title and its own link."""
    body: Mapping[str, Any] = delivery.body
    if delivery.event == Channel.What.ALERTS:
        return list(_alerts(body))
    if delivery.event == Channel.What.DIGEST:
        return list(_digest(body))
    return list(_event(body))


def _alerts(body: Mapping[str, Any]) -> Iterator[Section]:
    for word in ("opened", "closed"):
        for alert in body[word]:
            lines = [alert["sentence"]]
            if word == "opened":
                lines += _members(alert)
                lines += [f"What to do: {alert['what_to_do']}"] if alert["what_to_do"] else []
            heading = f"{word.upper()} · {alert['severity']} · {alert['subject']['name']}"
            yield Section(heading, tuple(lines), alert["link"])
        if (rest := body["counts"][word] - len(body[word])) > 0:
            yield Section("", (f"… and {rest:,} more {word}.",))


def _members(alert: Mapping[str, Any]) -> Iterator[str]:
    members = alert.get("members") or []  # notices that waited through an upgrade lack them
    for member in members:
        yield f"  {member['name']}, since {member['since'][:16].replace('T', ' ')} UTC"
    if members and (rest := alert["member_count"] - len(members)) > 0:
        yield f"  … and {rest:,} more"


def _digest(body: Mapping[str, Any]) -> Iterator[Section]:
    if "gpu_hours" in body:  # digests that waited through an upgrade lack it
        yield Section("", (f"Within a day: {_came_to(body, body)}.",))
    for namespace in body["namespaces"]:
        name, gpus = namespace["namespace"] or "no namespace", _gpus(namespace["gpus_now"])
        pods = tuple(_pod(pod, body) for pod in namespace["pods"])
        yield Section(f"{name}: {gpus} now, {_came_to(namespace, body)} in a day", pods)


def _pod(pod: Mapping[str, Any], body: Mapping[str, Any]) -> str:
    state = f"since {pod['since'][:16].replace('T', ' ')} UTC" if pod["is_idle_now"] else "no longer"
    owner = f", {pod['owner']}" if pod["owner"] else ""
    return f"{pod['cluster']}: {pod['pod']}{owner}: {_gpus(pod['gpus'])} idle {state}, {_came_to(pod, body)}"


def _gpus(count: int) -> str:
    return f"{count:,} GPU{'' if count == 1 else 's'}"


def _came_to(part: Mapping[str, Any], body: Mapping[str, Any]) -> str:
    hours, cost = f"{part['gpu_hours']:,} GPU-hours", part.get("cost")
    return hours if cost is None else f"{hours}, {cost:,.2f} {body['currency']}"


def _event(body: Mapping[str, Any]) -> Iterator[Section]:
    lines = []
    if body.get("by"):
        lines.append(f"By {body['by']}, {str(body.get('at', ''))[:16].replace('T', ' ')} UTC.")
    if body.get("change_record"):
        lines.append(f"Change record {body['change_record']}.")
    if body.get("message"):
        lines.append(str(body["message"]))
    if lines:
        yield Section("", tuple(lines))
