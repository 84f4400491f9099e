"""Changes of network cards that cannot cut the node off: one that would is taken back by the node itself.

Before each write the journal holds the value to put back. Afterwards the interface must have its link again if it had
one, and the API server must answer this node on a new connection; if not, in TRIES looks, every value of the change is
put back. An agent that is killed in between finds the journal at its start, before it needs the network for anything.
After a boot there is nothing to put back: no file sets a card, so it has what its driver gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent import cards
from agent.host import Host
from agent.journal import Journal
from agent.kinds.base import WriteRefused
from contract.keys import canonical_value

TRIES = 8
PAUSE_SECONDS = 1.0
ANSWER_SECONDS = 2.0
"""All tries together end before an agent that was told to stop is killed (terminationGracePeriodSeconds), and before
the node counts as not Ready (node-monitor-grace-period, 40 s)."""


def _at_once(seconds: float) -> None:
    """A simulated machine's link needs no time."""


@dataclass(frozen=True, slots=True)
class Lifeline:
    reaches: Callable[[], bool] = lambda: True
    """Whether the API server answers this node now, on a new connection; takes ANSWER_SECONDS at most."""
    wait: Callable[[float], None] = _at_once

    def change(self, host: Host, journal: Journal, values: Mapping[str, str]) -> None:
        """Write the value of each place. Raises WriteRefused, OSError; what was written is put back then."""
        if not values:
            return
        if left := put_back(host, journal):
            raise WriteRefused(f"not changed: what an earlier change left could not be put back: {left}")
        if not self.reaches():
            raise WriteRefused(
                "not changed: the API server does not answer this node now, so nothing would show that the change cut "
                "it off"
            )
        try:
            for path, value in sorted(values.items()):
                self._change(host, journal, path, value)
        except (OSError, WriteRefused) as error:
            if left := put_back(host, journal):
                raise WriteRefused(f"{error}; and could not be put back: {left}") from error
            raise
        journal.content.guarded.places.clear()

    def _change(self, host: Host, journal: Journal, path: str, value: str) -> None:
        before, guarded = host.read_text(path), journal.content.guarded
        if before is None:
            return
        interface, attribute = cards.parsed(path) or (path, "it")
        had_link = has_link(host, interface)
        guarded.boot_id, guarded.places[path] = host.boot_id(), canonical_value(before)
        journal.save()
        host.write_text(path, value)
        for attempt in range(TRIES):
            if attempt:
                self.wait(PAUSE_SECONDS)
            lost = "has no link" if had_link and not has_link(host, interface) else ""
            if not lost and self.reaches():
                return
        what = f"{interface} {lost}" if lost else "the API server does not answer this node"
        raise WriteRefused(f"{what} with {attribute} {value} of {interface}, so {canonical_value(before)} was put back")


def has_link(host: Host, interface: str) -> bool:
    try:
        return (host.read_text(f"{cards.NET}{interface}/carrier") or "").strip() == "1"
    except OSError:  # the kernel does not say of an interface that is down
        return False


def put_back(host: Host, journal: Journal) -> str:
    """Put every guarded value back, the last first; return what could not be, as half a sentence. Raises nothing.

    What is left is tried again at the next look.
    """
    guarded, left = journal.content.guarded, []
    if guarded.boot_id != host.boot_id():
        guarded.places.clear()
    for path, value in reversed(list(guarded.places.items())):
        try:
            now = host.read_text(path)
            if now is not None and canonical_value(now) != value:
                host.write_text(path, value)
            del guarded.places[path]
        except (OSError, WriteRefused) as error:
            left.append(f"{path}: {error}")
    return ", ".join(left)
