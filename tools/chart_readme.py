"""Writes the table of values in the README of Setpoint's Helm chart from the comments of its values.yaml.

`python tools/chart_readme.py`. A line `# -- text` above a key describes that key; a key that holds others needs none.
A test runs `readme` and holds the file to it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parent.parent / "deploy" / "chart" / "setpoint"
START, END = "<!-- values -->", "<!-- end of values -->"
KEY = re.compile(r"^( *)([A-Za-z_]+):(?: (.*))?$")
COMMENT = re.compile(r"^ *# -- (.+)$")


class Undescribed(ValueError):
    """A value without a comment, or a comment without a value."""


def described(text: str) -> Iterator[tuple[str, Any, str]]:
    """Yield path, default and description of each value, in the order of the file. Raises Undescribed."""
    defaults = yaml.safe_load(text)
    path: list[str] = []
    description = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if comment := COMMENT.match(line):
            if description:
                raise Undescribed(f"line {number}: the comment above describes no value")
            description = comment[1]
        elif key := KEY.match(line):
            path[len(key[1]) // 2 :] = [key[2]]
            is_group = key[3] is None
            if is_group == bool(description):
                raise Undescribed(f"line {number}: {'.'.join(path)}")
            if not is_group:
                yield ".".join(path), _at(defaults, path), description
            description = ""
        elif line.strip() and not line.lstrip().startswith("#"):
            raise Undescribed(f"line {number} is neither a comment nor a key with its value on one line")


def _at(defaults: Any, path: list[str]) -> Any:
    for name in path:
        defaults = defaults[name]
    return defaults


def table(text: str) -> str:
    lines = ["| Value | Default | What it does |", "|---|---|---|"]
    for path, default, description in described(text):
        lines.append(f"| `{path}` | `{json.dumps(default)}` | {description.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)


def readme(now: str, values: str) -> str:
    """Return the README with the table between its two marks replaced."""
    before, _, rest = now.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{table(values)}\n{END}{after}"


def main() -> int:
    path = CHART / "README.md"
    path.write_text(readme(path.read_text(encoding="utf-8"), (CHART / "values.yaml").read_text(encoding="utf-8")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
