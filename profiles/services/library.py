"""The profiles that come with the product, as YAML in library/."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from common.errors import WrongState
from profiles.document.document import InvalidProfile
from profiles.models import Revision
from profiles.services import editing

HERE = Path(__file__).parents[1] / "library"
MESSAGE = "Comes with this version of Setpoint."


def names() -> list[str]:
    """Sorted, so that a profile that extends another must come after it in the alphabet; all do."""
    return sorted(path.stem for path in HERE.glob("*.yaml"))


VARIANTS = ("h100", "gb200", "mi300x", "aks", "eks", "gke", "oke")
"""Models and clouds for which an intent has a profile of its own: `training-rdma-h100`."""


def intents() -> list[str]:
    """Return the profiles for a kind of work, without what varies one of them."""
    return [name for name in names() if name.rpartition("-")[2] not in VARIANTS]


def source(name: str) -> str:
    return (HERE / f"{name}.yaml").read_text(encoding="utf-8")


def load_all() -> Iterator[tuple[str, Revision | None, str]]:
    """Publish what differs: (name, the new revision or None, why not). Doing it twice changes nothing."""
    for name in names():
        try:
            revision = editing.load(name=name, source=source(name), message=MESSAGE)
        except (WrongState, InvalidProfile) as refusal:  # what it extends may be a profile of people's own
            yield name, None, str(refusal)
        else:
            yield name, revision, "" if revision else "is published already"
