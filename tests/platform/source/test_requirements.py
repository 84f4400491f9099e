"""Tests of the lock files: an installation today installs the locked set, also after a new release of a package."""

from __future__ import annotations

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
