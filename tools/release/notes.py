"""Release notes: the section of CHANGELOG.md that belongs to one version."""

from __future__ import annotations

import re

from tools.release.errors import ReleaseRefused

HEADING = re.compile(r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>\d{4}-\d{2}-\d{2}))?[ \t]*$", re.MULTILINE)


def of_version(changelog: str, version: str) -> str:
    """Return the text below a version's heading. Raises ReleaseRefused for a version without a dated heading."""
    headings = list(HEADING.finditer(changelog))
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        if heading["version"] != version:
            continue
        if version.lower() == "unreleased" or heading["date"] is None:
            raise ReleaseRefused(f"CHANGELOG.md: [{version}] has no date yet. Write `## [{version}] - YYYY-MM-DD`.")
        text = changelog[heading.end() : following.start() if following else None].strip()
        if not text:
            raise ReleaseRefused(f"CHANGELOG.md: nothing is written under [{version}].")
        return text + "\n"
    known = ", ".join(heading["version"] for heading in headings)
    raise ReleaseRefused(f"CHANGELOG.md has no version {version}. It has: {known}.")
