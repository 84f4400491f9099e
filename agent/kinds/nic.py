"""Attributes of network cards, each on every card of a class: ring sizes, channels, offloads, MTU.

An interface on which a key was written stays that key's until it is put back, although the default route moved
meanwhile, or an RDMA driver came. One that came to the class later is shown, and not written before the key was put
back once: its original would be in no plan.

Written through the lifeline, one interface at a time, and to no file of the next boot: a node whose power was cut comes
up with what its drivers give it, with which it was reachable, and the agent writes again (apply.after_boot).
Files of systemd.link would take effect with no agent there to take them back, and the first that matches an interface
hides the distribution's own, which names it.
"""

from __future__ import annotations

from agent import cards
from agent.ethtool import MAXIMUM
from agent.host import CARDS, Host
from agent.journal import Journal
from agent.kinds.base import EffectiveValue, Handler, Unsupported, WriteRefused
from agent.kinds.lifeline import Lifeline
from agent.services import uptime
from contract import nics
from contract.keys import KeyKind, kind_of


class Nic(Handler):
    def __init__(self, journal: Journal, lifeline: Lifeline) -> None:
        self._journal, self._lifeline = journal, lifeline
        self._classes: tuple[float | None, dict[str, str]] = (None, {})
        """At which uptime of the node, and what: a node has hundreds of interfaces, and all keys of a look ask."""

    def _look(self, host: Host) -> dict[str, str]:
        now, (at, known) = uptime(host), self._classes
        if now is None or at is None or not 0 <= now - at < 1.0:
            known = cards.classes(host)
            self._classes = (now, known)
        return known

    def paths(self, host: Host, key: str) -> list[str]:
        _, of, attribute = key.split(".")
        members = {cards.place(name, attribute) for name, its_class in self._look(host).items() if its_class == of}
        there = {cards.place(name, attribute) for name in self._look(host)}
        for other, entry in self._journal.content.entries.items():
            if kind_of(other) is KeyKind.NIC and nics.attribute_of(other) == attribute:
                held = there & set(entry.places)
                members = members | held if other == key else members - held
        return sorted(members)

    def check(self, host: Host, key: str, value: str) -> None:
        attribute = nics.attribute_of(key)
        for path in self.read(host, key).places:
            interface, _ = cards.parsed(path) or (path, "")
            most = host.read_text(f"{CARDS}{interface}/{attribute}{MAXIMUM}")
            if self._came_later(key, path):
                raise WriteRefused(f"{interface} came to this class after {key} was written: put that back first")
            if most is not None and int(value) > int(most):
                raise WriteRefused(f"{interface}: {value} is more than {int(most)}, the maximum of its driver")
            if attribute == "mtu" and (above := host.glob(f"{cards.NET}{interface}/upper_*")):
                names = ", ".join(path.rpartition("/upper_")[2] for path in above)
                raise Unsupported(f"unsupported here: {interface} carries {names}, with an MTU of its own")

    def write(self, host: Host, key: str, operator: str, value: str) -> None:
        changes = self.to_write(host, key, operator, value)
        changes = {path: text for path, text in changes.items() if not self._came_later(key, path)}
        self._lifeline.change(host, self._journal, changes)
        self._journal.content.cards_boot = self._journal.content.cards_boot or host.boot_id()

    def put_back(self, host: Host, key: str, original: EffectiveValue) -> None:
        changes = self.to_put_back(host, key, original)
        changes = {path: text for path, text in changes.items() if not self._came_later(key, path)}
        self._lifeline.change(host, self._journal, changes)

    def _came_later(self, key: str, path: str) -> bool:
        entry = self._journal.content.entries.get(key)
        return entry is not None and bool(entry.places) and path not in entry.places
