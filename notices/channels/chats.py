"""Deliveries as messages of chat services: Slack's incoming webhooks, and Microsoft Teams' by a workflow.

Names and sentences come from clusters, and no service may read them as markup, links or mentions. Each message is cut
to what its service takes; the whole is behind its link.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from notices.channels import posting
from notices.channels.sections import Section, sections
from notices.models import Channel, Delivery

Message = dict[str, Any]
OPEN = "Open in Setpoint"


def send(channel: Channel, delivery: Delivery) -> None:
    """Waits on the network: hold no transaction. Raises Undelivered."""
    message = FORMATS[Channel.Kind(channel.kind)](delivery)
    posting.post(channel, [_encoded(message)])


def _encoded(message: Message) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


# ── Slack: https://docs.slack.dev/reference/block-kit/blocks ──────────────────────────────────────────────────────────
SLACK_HEADER, SLACK_TEXT, SLACK_BLOCKS = 150, 3000, 50
"""Characters of a header and of a section's text; blocks of a message."""


def slack(delivery: Delivery) -> Message:
    blocks: list[Message] = [{"type": "header", "text": _plain(_cut(delivery.title, SLACK_HEADER))}]
    parts, room = sections(delivery), SLACK_BLOCKS - 2  # besides the header and the last line
    blocks += [_slack_section(part) for part in parts[: room if len(parts) <= room else room - 1]]
    if len(parts) > room:
        blocks.append(_marked(f"… and {len(parts) - room + 1:,} more in Setpoint."))
    if link := _linked(str(delivery.body.get("link") or ""), OPEN):
        blocks.append(_marked(link))
    return {"text": _escaped(_cut(delivery.title, SLACK_TEXT)), "blocks": blocks}


def _slack_section(part: Section) -> Message:
    """Cut each piece before it is escaped, so that no entity is cut in two."""
    heading = _escaped(_cut(part.heading, 300))
    heading = _linked(part.link, heading or OPEN) or heading
    lines = [heading] if heading else []
    left = SLACK_TEXT - len(heading)
    for line in part.lines:
        text = _escaped(_cut(line, 500))
        if len(text) + 3 > left:  # with its line break and the sign of what is left out
            lines.append("…")
            break
        lines.append(text)
        left -= len(text) + 1
    return _marked("\n".join(lines))


def _linked(link: str, escaped: str) -> str:
    """Return a link with this text; empty without one, or where it is longer than a section can hold beside lines."""
    target = _escaped(link)
    return f"<{target}|{escaped}>" if link and len(target) + len(escaped) <= SLACK_TEXT // 2 else ""


def _plain(text: str) -> Message:
    return {"type": "plain_text", "text": text, "emoji": False}


def _marked(text: str) -> Message:
    """Return a section whose text has only the links that are written as links: names are no mentions."""
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


# ── Teams: an adaptive card, https://adaptivecards.io/explorer ────────────────────────────────────────────────────────
TEAMS_BYTES = 26_000
"""Of 28 KB that Teams takes of a message."""


def teams(delivery: Delivery) -> Message:
    parts = sections(delivery)
    count = len(parts)
    message = _teams(delivery, parts, 0)
    while count and len(_encoded(message)) > TEAMS_BYTES:
        count = count * 3 // 4
        message = _teams(delivery, parts[:count], len(parts) - count)
    return message


def _teams(delivery: Delivery, parts: Sequence[Section], left_out: int) -> Message:
    body = [_runs([_run(_cut(delivery.title, 300), size="Large", weight="Bolder")])]
    body += [_teams_section(part) for part in parts]
    if left_out:
        body.append(_runs([_run(f"… and {left_out:,} more in Setpoint.")]))
    card: Message = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": body,
    }
    if link := str(delivery.body.get("link") or ""):
        card["actions"] = [{"type": "Action.OpenUrl", "title": OPEN, "url": link}]
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def _teams_section(part: Section) -> Message:
    items = []
    if part.heading:
        heading = _run(_cut(part.heading, 300), weight="Bolder")
        if part.link:
            heading["selectAction"] = {"type": "Action.OpenUrl", "url": part.link}
        items.append(_runs([heading]))
    items += [_runs([_run(_cut(line, 500))], spacing="None") for line in part.lines[:25]]
    if len(part.lines) > 25:
        items.append(_runs([_run("…")], spacing="None"))
    return {"type": "Container", "spacing": "Medium", "items": items}


def _runs(runs: list[Message], **more: str) -> Message:
    """Return a block of plain text: of all elements, only text runs are not read as Markdown."""
    return {"type": "RichTextBlock", "inlines": runs, **more}


def _run(text: str, **more: Any) -> Message:
    return {"type": "TextRun", "text": text, **more}


FORMATS: dict[Channel.Kind, Callable[[Delivery], Message]] = {Channel.Kind.SLACK: slack, Channel.Kind.TEAMS: teams}
