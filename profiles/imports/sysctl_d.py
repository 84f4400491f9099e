"""sysctl.d(5): `key = value`, one a line.

Of its syntax: comments begin with # or ;, a key whose first separator is a slash has dots inside its parts, a minus
ignores a failure or, without a value, keeps a key from patterns.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from profiles.imports.draft import DraftBuilder, ImportedDraft

_PATTERN = re.compile(r"[*?\[\]]")
_SEPARATOR = re.compile(r"[./]")
_SWAPPED = str.maketrans("./", "/.")


def read(text: str) -> ImportedDraft:
    """Return the draft of a file. Raises Invalid."""
    builder = DraftBuilder()
    take(text, builder)
    return builder.finish()


def take(text: str, builder: DraftBuilder, line_of: Callable[[int], int] = lambda number: number) -> None:
    """Take each line; `line_of` turns a line of `text` into one of the file that holds it."""
    for number, written in enumerate(text.split("\n"), 1):
        line = written.strip()
        if line and line[0] not in "#;":
            _take_line(line, line_of(number), builder)


def _take_line(text: str, line: int, builder: DraftBuilder) -> None:
    key, equals, value = (part.strip() for part in text.partition("="))
    forgiving = key.startswith("-")
    key = key.removeprefix("-").strip()
    if not equals:
        reason = "keeps a key from patterns, which are not taken either" if forgiving else "has no ="
        builder.refuse(line, text, reason)
    elif _PATTERN.search(key):
        builder.refuse(line, text, "is a pattern: a profile names each key")
    elif not value:
        builder.refuse(line, text, "has no value")
    else:
        builder.assign(dotted(key), value, line=line, text=text)
        if forgiving:
            builder.refuse(line, "-", f"{key} is taken, but not that a failure is ignored: the node reports it")


def dotted(key: str) -> str:
    """Return the key with dots between its parts; a dot inside a part becomes a slash, as in `eth0/100`."""
    first = _SEPARATOR.search(key)
    return key.translate(_SWAPPED) if first and first[0] == "/" else key
