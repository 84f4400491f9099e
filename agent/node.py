"""One node as the reconciler sees it: its kernel by key, and the journal of what was done to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent import kinds, persisted
from agent.gate import Denied, Gate
from agent.host import Host
from agent.journal import Journal, KeyOutcome, Pending
from agent.kinds.base import EffectiveValue, Handler, WriteRefused
from agent.kinds.kubelet_managers import KubeletManager
from agent.kinds.lifeline import Lifeline
from contract import isolation, keys, kubelet
from contract.fitness import MachineSize
from contract.keys import KeyKind
from contract.nodetuning import Operator, RestartAction, SettingStatus, Spec
from contract.resource_managers import CPUS, MEMORY_POLICY, NONE, ONLINE, cpu_list

MAY_BE_ABSENT = (KeyKind.MODULE, KeyKind.CMDLINE)
"""Kinds for which "not there" is an ordinary value, and one that can be restored."""
HOLDS = (SettingStatus.MOVED, SettingStatus.DENIED, SettingStatus.UNSUPPORTED, SettingStatus.FAILED)
"""Findings that keep the whole step from being written."""


def same(first: str | None, other: str | None) -> bool:
    """Return whether two answers of the kernel mean the same, absence included."""
    return first == other or (first is not None and keys.satisfied(Operator.EQUALS, first, other))


class Node:
    """One node's kernel by key, and the journal of what was done to it."""

    def __init__(self, host: Host, journal: Journal, lifeline: Lifeline) -> None:
        self.host = Gate(host)  # the host itself is given to no other part: every change of the node passes the gate
        self.journal = journal
        self._handlers = kinds.handlers(journal, lifeline)

    def handler(self, key: str) -> Handler:
        return self._handlers[keys.kind_of(key)]

    def read(self, key: str) -> EffectiveValue:
        """Raises OSError when the kernel has the key but will not say its value."""
        return self.handler(key).read(self.host, key)

    def machine(self) -> MachineSize:
        """Its memory and cores, as far as the kernel says."""
        lines = (self.host.read_text("/proc/meminfo") or "").splitlines()
        memory = next((int(line.split()[1]) for line in lines if line.startswith("MemTotal:")), 0)
        present = (self.host.read_text("/sys/devices/system/cpu/present") or "").strip()
        last = present.rpartition(",")[2].rpartition("-")[2]
        return MachineSize(memory * 1024, int(last) + 1 if last.isdecimal() else 0)

    def answer(self, key: str) -> str | None:
        """The effective value; None also when the kernel will not say, and for what is no key to this version."""
        try:
            return self.read(key).value
        except (keys.BadKey, OSError):
            return None

    def places(self, key: str) -> Mapping[str, str]:
        """The value in each of the key's files; none when the kernel will not say."""
        try:
            return self.read(key).places
        except (keys.BadKey, OSError):
            return {}

    def has_traces(self, key: str) -> bool:
        """Return whether an intent for a key left something that its value does not show; false of an unknown key."""
        try:
            return self.handler(key).has_traces(key)
        except keys.BadKey:
            return False

    def stops_kubelet(self, spec: Spec, key: str) -> str:
        """Return why no kubelet would start with what this spec makes of its fields; empty when one would."""
        if keys.kind_of(key) is KeyKind.KUBELET_MANAGER:
            return self._managers_stop_kubelet(spec)
        if keys.kind_of(key) is KeyKind.HUGEPAGES:
            return self._pages_stop_kubelet(spec, key)
        if key not in kubelet.TOGETHER:
            return ""
        values: dict[str, str | None] = {}
        for name in kubelet.TOGETHER:
            entry = self.journal.content.entries.get(name)
            values[name] = entry.written if entry and entry.written else self.answer(name)
            if restore := next((r for r in spec.restore if r.key == name), None):
                values[name] = entry.original if entry else restore.original
            if wanted := next((w for w in spec.settings if w.key == name), None):
                is_kept = keys.satisfied(wanted.operator, wanted.value, values[name])
                values[name] = values[name] if is_kept else wanted.value
        return kubelet.unstartable(values)

    def contradicts(self, spec: Spec, key: str) -> str:
        """Return what of this spec, or of this node, no value of the key may be together with; empty for nothing."""
        if key in (isolation.KEY, CPUS):
            settings = {w.key: w.value for w in spec.settings}
            online = cpu_list(self.answer(ONLINE) or "")
            reserved, isolated = (self._after(spec, name, settings) for name in (CPUS, isolation.KEY))
            if why := isolation.impossible(isolated, online, "" if reserved == NONE else reserved):
                return why
        rivals = {other for pair in isolation.RIVALS if key in pair for other in pair - {key}}
        wanted, entries = {w.key for w in spec.settings}, self.journal.content.entries
        for rival in sorted(rivals):
            if rival in wanted or ((entry := entries.get(rival)) and entry.written is not None):
                why = isolation.WHY_RIVALS
                return f"{rival} is set too, and {why}: remove one, in a revision before"
        return ""

    def _after(self, spec: Spec, key: str, settings: Mapping[str, str]) -> str:
        """Return the value of a key after this spec; empty for none."""
        entry = self.journal.content.entries.get(key)
        before = (entry.written if entry else None) or self.answer(key) or ""
        for restore in spec.restore:
            if restore.key == key:
                before = (entry.original if entry else restore.original) or ""
        return settings.get(key, before)

    def _managers_stop_kubelet(self, spec: Spec) -> str:
        """Judge all keys of the managers together, and only where this spec changes one of them."""
        handler = self._handlers[KeyKind.KUBELET_MANAGER]
        assert isinstance(handler, KubeletManager)
        before = handler.own_keys(self.host)
        after = {key: value for key, value in before.items() if all(r.key != key for r in spec.restore)}
        for wanted in spec.settings:
            is_one = keys.is_allowed(wanted.key) and keys.kind_of(wanted.key) is KeyKind.KUBELET_MANAGER
            if is_one and not keys.satisfied(wanted.operator, wanted.value, self.answer(wanted.key)):
                after[wanted.key] = wanted.value
        return "" if after == before else handler.unstartable(self.host, after)

    def _pages_stop_kubelet(self, spec: Spec, key: str) -> str:
        """The Static memory manager counted the huge pages, and does not start with others than it has noted."""
        if self.answer(MEMORY_POLICY) != "Static" or any(r.key == MEMORY_POLICY for r in spec.restore):
            return ""
        if any(w.key == MEMORY_POLICY and w.value != "Static" for w in spec.settings):
            return ""
        entry, answer = self.journal.content.entries.get(key), self.answer(key)
        is_met = all(keys.satisfied(w.operator, w.value, answer) for w in spec.settings if w.key == key)
        for restore in spec.restore:
            if restore.key == key:
                is_met = same(answer, entry.original if entry else restore.original)
        if is_met:
            return ""
        return (
            "the kubelet's memory manager is Static and does not start with other huge pages than it counted: set "
            f"{MEMORY_POLICY} to None first, or in the same revision"
        )

    def wait_for(self, key: str, action: RestartAction) -> None:
        content = self.journal.content
        content.pending[key] = Pending(str(action), self.host.boot_id())
        if outcome := content.attempt.outcomes.get(key):
            outcome.note = ""


def is_half_way(seen: Mapping[str, str] | None, now: EffectiveValue, arrived: Callable[[str, str], bool]) -> bool:
    """Return whether every place has the value that this attempt saw in it, or already the one it puts there."""
    return seen is not None and all(
        seen.get(path) == value or arrived(path, value) for path, value in now.places.items()
    )


@dataclass(slots=True)
class KeyAssessment:
    """Assessment of one key before anything is written."""

    outcome: KeyOutcome | None = None
    """Settled: nothing to write. None: it is to be written or restored."""
    reading: EffectiveValue | None = None

    @property
    def holds(self) -> bool:
        return self.outcome is not None and self.outcome.state in HOLDS


def failed(error: OSError) -> KeyOutcome:
    return KeyOutcome(SettingStatus.FAILED, f"the kernel refused: {error.strerror or error}")


def refused(error: WriteRefused) -> KeyOutcome:
    return KeyOutcome(SettingStatus.DENIED if isinstance(error, Denied) else SettingStatus.FAILED, str(error))


def group(key: str) -> set[str]:
    """The key and those that a write to it changes too."""
    return {key} | keys.coupled_with(key)


def rounded(wanted: str, answer: str | None) -> str:
    return f"{wanted} was written, the kernel answers {'nothing' if answer is None else answer}"


def persist(node: Node) -> str | None:
    """Bring the files of the node to the journal; returns why they could not be brought, or None. Raises nothing."""
    try:
        persisted.sync(node.host, node.journal)
    except WriteRefused as error:
        return str(error)
    except OSError as error:
        return f"{error.filename or 'a file of the node'}: {error.strerror or error}"
    return None
