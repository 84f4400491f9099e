"""The version of this checkout: every file that states it states the same, and a tag names it."""

from __future__ import annotations

import re
from pathlib import Path

from tools.release import notes
from tools.release.errors import ReleaseRefused

STATED = {
    "contract/names.py": r'^RELEASE = "(.+)"$',
    "pyproject.toml": r'^version = "(.+)"$',
    "deploy/chart/setpoint/Chart.yaml": r"^(?:version|appVersion): (.+)$",
    "deploy/setpoint.yaml": r"^ +image: setpoint-agent:(.+)$",
    "deploy/backup.Dockerfile": r"^ARG SERVER=setpoint-server:(.+)$",
}
"""File → what states the version in it, once or more."""
TAG = re.compile(r"v(\d+\.\d+\.\d+(?:-[0-9A-Za-z.]+)?)")


def stated(root: Path) -> str:
    """Return the version. Raises ReleaseRefused where files differ, naming each."""
    places: dict[str, set[str]] = {}
    for name, pattern in STATED.items():
        versions = re.findall(pattern, (root / name).read_text(encoding="utf-8"), re.MULTILINE)
        if not versions:
            raise ReleaseRefused(f"{name} states no version.")
        for version in versions:
            places.setdefault(version, set()).add(name)
    if len(places) > 1:
        listed = "; ".join(f"{version} in {', '.join(sorted(names))}" for version, names in sorted(places.items()))
        raise ReleaseRefused(f"The files state more than one version: {listed}.")
    return next(iter(places))


def of_tag(root: Path, tag: str) -> str:
    """Return the version that a tag releases, which is this checkout's and has notes. Raises ReleaseRefused."""
    match = TAG.fullmatch(tag)
    if match is None:
        raise ReleaseRefused(f"{tag!r} is no tag of a release. It would be v1.2.3 or v1.2.3-rc.1.")
    version = stated(root)
    if match[1] != version:
        raise ReleaseRefused(f"The tag {tag} releases {match[1]}, and the files state {version}.")
    notes.of_version((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    return version
