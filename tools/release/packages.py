"""Packages that an image holds, by the records that its installers left, and what the lock files say of them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.release.errors import ReleaseRefused
from tools.release.layout import Layout

VENV = "opt/setpoint/venv/"
STATUS = "var/lib/dpkg/status"
OS = ("etc/os-release", "usr/lib/os-release")
VENDORED = "opt/setpoint/app/static/vendor/"
DIST_INFO = re.compile(r"(?:.*/)?(?:site|dist)-packages/[^/]+\.(?:dist-info/METADATA|egg-info/PKG-INFO|egg-info)")
SOURCES = {"@tabler/core": "tabler.min.css", "@tabler/icons-sprite": "icons.svg"}
"""Package of npm → the file of static/vendor that tools/vendor.py makes of it."""


@dataclass(frozen=True, order=True)
class Package:
    kind: str
    """`pypi`, `deb`, `npm` or `generic`, as a purl names it."""
    name: str
    version: str
    place: str = ""
    """The folder that holds it, where the same may be installed twice."""
    license: str = ""
    architecture: str = ""
    distribution: str = ""
    source: str = ""
    """The Debian source package, where its name or version differs."""
    hashes: tuple[str, ...] = ()
    """`sha256:…` of the archives that the lock file accepts; `sha512:…` of npm's."""


@dataclass(frozen=True)
class Inventory:
    digest: str
    config: Mapping[str, object]
    packages: tuple[Package, ...]


def wanted(path: str) -> bool:
    return path in (STATUS, *OS) or path.startswith(VENDORED) or bool(DIST_INFO.fullmatch(path))


def inventory(layout: Layout, root: Path) -> Inventory:
    """Return all packages of an image. Raises ReleaseRefused where it holds other ones than this checkout locks."""
    files = layout.files(wanted)
    lock = locked(root / "requirements/base.txt")
    python = sorted(_python(files, lock))
    _hold_against_the_lock(python, lock)
    packages = [*python, *_debian(files), *_browser(files, root)]
    if version := layout.env("PYTHON_VERSION"):  # the official image compiles its own, which no installer recorded
        packages.append(Package("generic", "python", version, license="PSF-2.0"))
    return Inventory(layout.digest, layout.config, tuple(sorted(packages)))


@dataclass(frozen=True)
class Locked:
    hashes: tuple[str, ...]
    is_conditional: bool
    """Whether a marker decides on which machines it is installed."""


Lock = Mapping[tuple[str, str], Locked]


def locked(path: Path) -> Lock:
    """Return what a lock file pins, by name and version."""
    entries: dict[tuple[str, str], Locked] = {}
    for entry in path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        stated, *hashes = re.split(r"\s+--hash=", entry.strip())
        if stated and not stated.startswith("#"):
            requirement = Requirement(stated)
            version = str(requirement.specifier).removeprefix("==")
            key = canonicalize_name(requirement.name), version
            entries[key] = Locked(tuple(sorted(hashes)), requirement.marker is not None)
    return entries


def _python(files: Mapping[str, bytes], lock: Lock) -> Iterator[Package]:
    for path, content in files.items():
        if not DIST_INFO.fullmatch(path):
            continue
        metadata = Parser().parsestr(content.decode(errors="replace"), headersonly=True)
        name, version = canonicalize_name(metadata["Name"]), metadata["Version"]
        stated = metadata.get("License-Expression") or _classified(metadata.get_all("Classifier") or ())
        place = str(PurePosixPath(path.partition("-packages/")[0] + "-packages"))
        entry = lock.get((name, version)) if path.startswith(VENV) else None
        hashes = entry.hashes if entry else ()
        yield Package("pypi", name, version, place=place, license=stated or _short(metadata["License"]), hashes=hashes)


def _classified(classifiers: list[str] | tuple[str, ...]) -> str:
    """Return the licenses of trove classifiers, which are names and no SPDX expression."""
    names = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License :: ")]
    return "; ".join(name for name in names if name != "OSI Approved")


def _short(text: str | None) -> str:
    """Return a license's name; some put its whole text in this field."""
    line = (text or "").strip().partition("\n")[0]
    return line if len(line) <= 80 else ""


def _hold_against_the_lock(python: list[Package], lock: Lock) -> None:
    own = {(package.name, package.version) for package in python if package.place.startswith(VENV)}
    if not own:  # the agent's image, which has none
        return
    strange = own - set(lock)
    missing = {key for key, entry in lock.items() if not entry.is_conditional} - own
    if strange or missing:
        listed = [f"{name} {version} is not locked" for name, version in sorted(strange)]
        listed += [f"{name} {version} is missing" for name, version in sorted(missing)]
        raise ReleaseRefused(f"The image differs from requirements/base.txt: {'; '.join(listed)}.")


def _debian(files: Mapping[str, bytes]) -> Iterator[Package]:
    release = next((files[path].decode() for path in OS if path in files), "")
    values = dict(line.split("=", 1) for line in release.splitlines() if "=" in line)
    vendor, version = (values.get(key, "").strip('"') for key in ("ID", "VERSION_ID"))
    for paragraph in files.get(STATUS, b"").decode().split("\n\n"):
        fields = Parser().parsestr(paragraph, headersonly=True)
        if not str(fields["Status"]).endswith(" installed"):
            continue
        yield Package(
            "deb",
            fields["Package"],
            fields["Version"],
            architecture=fields["Architecture"],
            distribution=f"{vendor or 'debian'}-{version}".rstrip("-"),
            source=fields["Source"] or "",
        )


def _browser(files: Mapping[str, bytes], root: Path) -> Iterator[Package]:
    present = {path.removeprefix(VENDORED) for path in files if path.startswith(VENDORED)}
    if strange := present - set(SOURCES.values()):
        raise ReleaseRefused(f"static/vendor holds files of no known package: {', '.join(sorted(strange))}.")
    packages = json.loads((root / "package-lock.json").read_text())["packages"]
    for name, file in SOURCES.items():
        if file in present:
            entry = packages[f"node_modules/{name}"]
            algorithm, _, value = entry["integrity"].partition("-")
            digest = f"{algorithm}:{base64.b64decode(value).hex()}"
            yield Package("npm", name, entry["version"], license=entry["license"], hashes=(digest,))
