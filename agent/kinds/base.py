"""Interface of a kind of setting: read the effective value, write, restore.

Most kinds are a value in one or more files of /proc or /sys, and need only say which files and how to read one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.host import Host
from contract.keys import MIXED, canonical_value, satisfied
from contract.nodetuning import MAX_VALUE, Operator, RestartAction


class WriteRefused(Exception):
    """The node would not take the value. `str()` is half a sentence for the report."""


class Unsupported(Exception):
    """This node has no such key, or no way to change it. `str()` is half a sentence for the report."""


@dataclass(frozen=True, slots=True)
class EffectiveValue:
    """Value of a key as the kernel reports it now."""

    value: str | None
    """One text for the whole node; None when the node has no such key."""
    places: Mapping[str, str] = field(default_factory=dict)
    """The value in each file, for kinds that spread over several; needed to put a mixed original back."""


class Handler:
    """A kind whose value is in one or more files."""

    restart: RestartAction | None = None
    """What has to restart before a write counts."""

    def restart_of(self, key: str) -> RestartAction | None:
        return self.restart

    def paths(self, host: Host, key: str) -> list[str]:
        raise NotImplementedError

    def parse(self, text: str) -> str:
        return canonical_value(text)

    def join(self, places: Mapping[str, str]) -> str:
        """Join all places into one text: the value if they agree, else `mixed:` and the different ones."""
        different = sorted(set(places.values()))
        return (different[0] if len(different) == 1 else MIXED + ",".join(different))[:MAX_VALUE]

    def read(self, host: Host, key: str) -> EffectiveValue:
        """Raises OSError when the kernel has the key but will not say its value."""
        places = {}
        for path in self.paths(host, key):
            text = host.read_text(path)
            if text is not None:
                places[path] = self.parse(text)
        return EffectiveValue(self.join(places), places) if places else EffectiveValue(None)

    def check(self, host: Host, key: str, value: str) -> None:
        """Called before anything of the step is written. Raises Unsupported, Refused."""

    def intend(self, host: Host, key: str, value: str, expect: str | None) -> None:
        """Note what the approved plan saw, before the journal is saved and anything is written."""

    def has_traces(self, key: str) -> bool:
        """Return whether a write that failed left something that only put_back deals with."""
        return False

    def left_behind(self, key: str) -> str:
        """Return what put_back leaves on the node, as half a sentence; empty for nothing."""
        return ""

    def write(self, host: Host, key: str, operator: str, value: str) -> None:
        """Write every place that does not satisfy. Raises OSError, Refused, Unsupported."""
        for path, text in self.to_write(host, key, operator, value).items():
            host.write_text(path, text)

    def to_write(self, host: Host, key: str, operator: str, value: str) -> dict[str, str]:
        """Return the value to write to each place that does not satisfy."""
        places = self.read(host, key).places
        return {path: value for path, now in places.items() if not satisfied(operator, value, now)}

    def put_back(self, host: Host, key: str, original: EffectiveValue) -> None:
        """Write the original to every place that differs. Raises OSError, Refused."""
        for path, text in self.to_put_back(host, key, original).items():
            host.write_text(path, text)

    def to_put_back(self, host: Host, key: str, original: EffectiveValue) -> dict[str, str]:
        """Return the original of each place that differs. Raises Refused.

        A place that came later (a new disk) gets the original only if that was the same everywhere.
        """
        if original.value is None:
            raise WriteRefused("it did not exist before, and this kind of key cannot be taken away")
        mixed = original.value.startswith(MIXED)
        if mixed and not original.places:
            raise WriteRefused(
                f"the original was {original.value}, and the journal that knew which place had which is lost"
            )
        out = {}
        for path, now in self.read(host, key).places.items():
            before = original.places.get(path, None if mixed else original.value)
            if before is not None and not satisfied(Operator.EQUALS, before, now):
                out[path] = before
        return out


class AtStart(Handler):
    """A kind that the kernel or a service reads at its start: its file is written with the other persisted ones."""

    def write(self, host: Host, key: str, operator: str, value: str) -> None:
        """Do nothing now: the file is rendered from the journal."""

    def take_away(self, host: Host, key: str, written: str, original: EffectiveValue) -> None:
        """Undo write, as far as the file does not. Raises Refused."""


def bracketed(text: str) -> str:
    """`always [madvise] never` is madvise; text without brackets is itself."""
    start = text.find("[")
    end = text.find("]", start)
    return text[start + 1 : end] if 0 <= start < end else canonical_value(text)


def choices(text: str) -> list[str]:
    return text.replace("[", " ").replace("]", " ").split()
