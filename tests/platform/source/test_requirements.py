"""Tests of the lock files: an installation today installs the locked set, also after a new release of a package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REQUIREMENTS = Path(__file__).resolve().parents[3] / "requirements"
GROWING = ("base.txt", "test.txt", "lint.txt", "docs.txt", "release.txt")
"""Each environment grows from the one before it."""


def locked(file: str) -> dict[str, Requirement]:
    """Return the requirements of a lock file by canonical name."""
    lines = (REQUIREMENTS / file).read_text(encoding="utf-8").splitlines()
    requirements = [Requirement(line.removesuffix("\\")) for line in lines if line and not line.startswith((" ", "#"))]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


@pytest.mark.parametrize("file", GROWING)
def test_an_extra_that_a_package_asks_for_is_locked_with_it(file: str) -> None:
    """pip looks at the newest `coverage[toml]` where only `coverage==7.17.4` is locked, and refuses it for want of a
    hash: every installation broke on the day that 7.17.5 was published."""
    lock = locked(file)
    unlocked = []
    for name in lock:
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # of another platform, or only of lint
            continue
        for requirement in map(Requirement, requirements):
            applies = requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in ("", *lock[name].extras)
            )
            wanted = lock.get(canonicalize_name(requirement.name))
            if applies and (wanted is None or requirement.extras - wanted.extras):
                unlocked.append(f"{name} needs {requirement}")
    assert unlocked == []


@pytest.mark.parametrize(("small", "big"), list(pairwise(GROWING)))
def test_an_environment_locks_all_of_the_one_that_it_grows_from(small: str, big: str) -> None:
    """A dependency that one branch added, and a group of another branch that was locked without it, merge cleanly."""
    below, above = locked(small), locked(big)
    assert [name for name, pin in below.items() if name not in above or above[name].specifier != pin.specifier] == []


IMPORTED = """
import json, sys
from importlib import metadata
import django
django.setup()
import config.celery, config.urls
owners = metadata.packages_distributions()
modules = {name.partition(".")[0] for name in sys.modules}
print(json.dumps(sorted({owner for module in modules for owner in owners.get(module, ())})))
"""

BESIDE = {
    "docutils": "django.contrib.admindocs, which is not installed as an app",
    "greenlet": "structlog, to tell greenlets from threads",
    "jinja2": "django.test.utils",
    "markupsafe": "jinja2",
    "pygments": "rich",
    "rich": "structlog, for tracebacks in a terminal",
    "setuptools": "its own file in site-packages, at each start of Python",
}
"""Imported by these where they are there; each was looked at and changes nothing that a test tells."""


def test_what_setpoint_imports_is_of_the_base_alone(tmp_path: Path) -> None:
    """Libraries import others where they are there: jsonschema one that compiles a grammar for seconds, for example.

    The tests' environment would then try another program than the one that production runs.
    """
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", "SETPOINT_VAR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED],
        cwd=REQUIREMENTS.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {canonicalize_name(name) for name in json.loads(done.stdout)}
    assert len(imported) > 20
    assert imported - locked("base.txt").keys() <= BESIDE.keys()


@pytest.mark.parametrize("file", GROWING[1:])
def test_a_package_pinned_with_an_extra_is_pinned_without_it_too(file: str) -> None:
    """pip refuses it else to those that require it plainly, such as kubernetes its pydantic."""
    pins = set(re.findall(r"^([a-z0-9\[\], -]+)==", (REQUIREMENTS / file).read_text("utf-8"), re.MULTILINE))
    assert {pin.partition("[")[0] for pin in pins} <= pins
