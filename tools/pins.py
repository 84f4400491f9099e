"""Adds to files of pins, for each line with extras, the same pin without them: `python -m tools.pins FILE…`.

pip counts `pydantic[email]==2.14.3` as a pin for those who require pydantic[email] alone, and with hashes refuses the
package to all others. uv writes one line a package.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_WITH_EXTRAS = re.compile(r"^(?P<name>[a-z0-9-]+)\[[^\]]+\](?P<pin>==.*\n(?: +--hash.*\n)*)", re.MULTILINE)


def with_plain_pins(text: str) -> str:
    return _WITH_EXTRAS.sub(lambda match: f"{match['name']}{match['pin']}{match[0]}", text)


def main(names: list[str]) -> None:
    for name in names:
        path = Path(name)
        path.write_text(with_plain_pins(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
