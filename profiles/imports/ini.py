"""The ini files that TuneD reads: Python's configparser, with `=` alone between name and value and # after a value.

It is read here again because configparser knows no lines, and refuses a file with one bad line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_HEADER = re.compile(r"\[(.+)\]")
_INLINE = re.compile(r"(?:^|(?<=\s))#.*")


@dataclass(slots=True)
class Option:
    name: str
    value: str
    line: int

    @property
    def text(self) -> str:
        return f"{self.name}={self.value}"


@dataclass(slots=True)
class Section:
    name: str
    line: int
    options: list[Option] = field(default_factory=list)
    last: dict[str, Option] = field(default_factory=dict)
    """The option of each name that counts: the last one."""

    def add(self, option: Option) -> None:
        self.options.append(option)
        self.last[option.name] = option

    def option(self, name: str) -> str | None:
        """Return the value of an option that counts."""
        option = self.last.get(name)
        return option.value if option else None


@dataclass(slots=True)
class Ini:
    sections: list[Section] = field(default_factory=list)
    """Of each name one, in the order of their first header."""
    broken: list[tuple[int, str, str]] = field(default_factory=list)
    """(line, text, reason)"""


def parse(text: str) -> Ini:
    """Read any text; lines that are neither header nor option are listed as broken."""
    ini, by_name = Ini(), dict[str, Section]()
    section: Section | None = None
    option: Option | None = None
    option_indent = 0
    more: dict[int, list[str]] = {}
    for number, line in _meaningful(text):
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if section and option and indent > option_indent:
            more.setdefault(option.line, [option.value]).append(stripped)
        elif header := _HEADER.match(stripped):
            option, option_indent = None, indent
            section = by_name.setdefault(header[1], Section(header[1], number))
        elif section is None:
            ini.broken.append((number, stripped, "is before the first [section]"))
        elif "=" not in stripped or stripped.startswith("="):
            ini.broken.append((number, stripped, "is no name=value"))
        else:
            name, _, value = stripped.partition("=")
            option, option_indent = Option(name.strip(), value.strip(), number), indent
            section.add(option)
    ini.sections = list(by_name.values())
    for option in (option for section in ini.sections for option in section.options if option.line in more):
        option.value = "\n".join(more[option.line]).strip()
    return ini


def _meaningful(text: str) -> Iterator[tuple[int, str]]:
    """Lines with something on them, without comments."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip()[:1] not in ("#", ";", "") and (rest := _INLINE.sub("", line)).strip():
            yield number, rest
