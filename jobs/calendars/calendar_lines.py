"""Lines of an iCalendar file (RFC 5545, 3.1): unfolded, bounded, and cut into components with their line numbers.

The library that reads a component names no lines, and gives up at the first component that it cannot read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from common.errors import Invalid

MOST_BYTES = 512 * 1024
MOST_EVENTS = 200
"""Of one file: a judgment, below what all rules together may be."""


@dataclass(slots=True)
class Block:
    """One component directly below VCALENDAR."""

    name: str
    line: int
    """Of its BEGIN, from 1."""
    lines: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\r\n".join(self.lines) + "\r\n"


@dataclass(slots=True)
class CalendarLines:
    events: list[Block] = field(default_factory=list)
    zones: list[Block] = field(default_factory=list)
    zone: str = ""
    """X-WR-TIMEZONE: of dates and times without a zone."""


def bad_file(reason: str) -> Invalid:
    return Invalid("The calendar file is not valid.", fields={"file": [reason]})


def cut(content: bytes) -> CalendarLines:
    """Raises Invalid where the file as a whole cannot be read."""
    if len(content) > MOST_BYTES:
        raise bad_file(f"At most {MOST_BYTES // 1024} KiB.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise bad_file(f"Must be UTF-8: byte {error.start + 1} is not.") from error
    if "\0" in text:
        raise bad_file("Must be text: it holds a NUL character.")
    out = CalendarLines()
    stack: list[tuple[str, int]] = []
    block: Block | None = None
    for number, line in _unfolded(text):
        name, colon, value = line.partition(":")
        if not colon:
            raise bad_file(f"Line {number} has no colon: is it an iCalendar file (.ics)?")
        name, value = name.upper(), value.strip().upper()
        if not stack and (name, value) != ("BEGIN", "VCALENDAR"):
            raise bad_file(f"Line {number}: it must begin with BEGIN:VCALENDAR.")
        if name == "BEGIN":
            stack.append((value, number))
            if len(stack) == 2:
                block = Block(value, number)
        if block:
            block.lines.append(line)
        elif name == "X-WR-TIMEZONE":
            out.zone = line.partition(":")[2].strip()
        if name == "END":
            if stack[-1][0] != value:
                raise bad_file(
                    f"Line {number} ends {value[:40]}, but {stack[-1][0][:40]} of line {stack[-1][1]} is open."
                )
            stack.pop()
            if len(stack) == 1 and block:
                {"VEVENT": out.events, "VTIMEZONE": out.zones}.get(block.name, []).append(block)
                block = None
    if stack:
        raise bad_file(f"It is cut off: {stack[-1][0][:40]} of line {stack[-1][1]} has no end.")
    if not out.events:
        raise bad_file("It has no event (VEVENT).")
    if len(out.events) > MOST_EVENTS:
        raise bad_file(f"At most {MOST_EVENTS} events; it has {len(out.events):,}.")
    return out


def _unfolded(text: str) -> list[tuple[int, str]]:
    """Join continued lines, each with the number of its first; empty ones are left out."""
    out: list[tuple[int, list[str]]] = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if line[:1] in (" ", "\t") and out:
            out[-1][1].append(line[1:])
        elif line.strip():
            out.append((number, [line]))
    return [(number, "".join(parts)) for number, parts in out]
