"""Putting originals back: only keys that the control plane lists, and only while they are as Setpoint left them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent import memory
from agent.journal import JournalEntry, KeyOutcome
from agent.kinds.base import AtStart, EffectiveValue, WriteRefused
from agent.kinds.cmdline import Cmdline, uses_drop_in
from agent.kinds.cpu_isolation import keeps_in_part
from agent.kinds.modules import InUse, Module
from agent.kinds.sysctl import put_group_back
from agent.node import MAY_BE_ABSENT, KeyAssessment, Node, failed, group, is_half_way, refused, rounded, same
from contract import fitness, key_lists, keys
from contract.keys import KeyKind
from contract.nodetuning import Operator, RestartAction, Restore, SettingStatus, Spec


def examine(node: Node, spec: Spec, restore: Restore) -> KeyAssessment:
    """The value must be what Setpoint believes it to be, or the original already."""
    done = node.journal.content.attempt.outcomes.get(restore.key)
    if done and done.state == SettingStatus.RESTORED:
        return KeyAssessment(done)  # cut short after this key's part was journalled
    try:
        if not keys.is_allowed(restore.key) or restore.key in key_lists.DENIED:
            return KeyAssessment(KeyOutcome(SettingStatus.DENIED, "it is not on the list of keys that may be set"))
        reading = node.read(restore.key)
    except (keys.BadKey, ValueError) as error:
        return KeyAssessment(KeyOutcome(SettingStatus.DENIED, str(error)))
    except OSError as error:
        return KeyAssessment(failed(error))
    original = original_of(node, None, restore.key, restore.original)
    if disagrees := _disagree(node, restore):
        return KeyAssessment(KeyOutcome(SettingStatus.MOVED, disagrees, restore.original))
    if (
        reason := _forbidden(node, restore.key, reading, original)
        or _unfit(node, spec, restore.key, reading, original)
        or node.stops_kubelet(spec, restore.key)
    ):
        return KeyAssessment(KeyOutcome(SettingStatus.DENIED, reason, original.value))
    # Where no kubelet runs none answers, and the drop-in is still Setpoint's to take away.
    absent_is_fine = keys.kind_of(restore.key) in (*MAY_BE_ABSENT, *keys.AT_START)
    if reading.value is None and not absent_is_fine:
        node.journal.content.entries.pop(restore.key, None)
        return KeyAssessment(KeyOutcome(SettingStatus.RESTORED, "the kernel has no such key any more"))
    entry = node.journal.content.entries.get(restore.key)
    waiting = entry is not None and restore.key in node.journal.content.pending
    silent = entry is not None and reading.value is None and keys.kind_of(restore.key) not in MAY_BE_ABSENT
    half_way = is_half_way(
        node.journal.content.attempt.seen.get(restore.key),
        reading,
        lambda path, value: same(value, original.places.get(path, original.value)),
    )
    as_left = (
        same(reading.value, original.value)
        or same(reading.value, restore.expect)
        or keeps_in_part(restore.key, restore.expect, reading.value)
        or _cards_are_as_left(reading, entry, restore)
        or (entry is not None and keys.kind_of(restore.key) is KeyKind.DISK_LAYOUT)  # only its own mounts are ended
    )
    # The control plane may not have heard yet what the kernel made of the value that it asked for.
    rounded_it = entry is not None and entry.written == restore.expect and same(entry.answered, reading.value)
    if not (as_left or rounded_it or waiting or half_way or silent):
        reason = f"Setpoint left {restore.expect}, the kernel answers {reading.value}"
        return KeyAssessment(KeyOutcome(SettingStatus.MOVED, reason, original.value))
    return KeyAssessment(reading=reading)


def _cards_are_as_left(reading: EffectiveValue, entry: JournalEntry | None, restore: Restore) -> bool:
    """Return whether each network card that was written is as it was left: others may have come to its class since."""
    if entry is None or keys.kind_of(restore.key) is not KeyKind.NIC:
        return False
    held = {path: value for path, value in reading.places.items() if path in entry.places}
    return bool(held) and all(
        same(value, restore.expect) or same(value, entry.places[path]) for path, value in held.items()
    )


def _disagree(node: Node, restore: Restore) -> str:
    """Both originals, where the node's journal knows another one than the plan was approved with; else empty.

    Which of them is right, no machine can say: the journal may be older than the cluster's last move, or the database
    a restored backup. A sysctl that did not exist when the plan was made has none in the plan.
    """
    entry = node.journal.content.entries.get(restore.key)
    if entry is None:
        return ""
    # Places are what is put back, so they are what is compared.
    known = node.handler(restore.key).join(entry.places) if entry.places else entry.original
    if same(known, restore.original):
        return ""
    if restore.original is None and keys.kind_of(restore.key) not in MAY_BE_ABSENT:
        return ""
    ours, theirs = known or "absent", restore.original or "absent"
    return f"the approved original is {theirs}, the one in this node's journal {ours}; none of them is put back"


def _forbidden(node: Node, key: str, now: EffectiveValue, original: EffectiveValue) -> str | None:
    """Return the reason why this original may not be written; None where it may, or where nothing is to be written: it
    is there already, or only a line of a drop-in is removed."""
    if original.value is None or same(now.value, original.value) or keys.kind_of(key) is KeyKind.DISK_LAYOUT:
        return None
    handler = node.handler(key)
    if isinstance(handler, AtStart) and (not isinstance(handler, Cmdline) or uses_drop_in(node.host)):
        return None  # the drop-in loses its line; the value without it is the node's own
    values = dict.fromkeys([*keys.parts(original.value), *original.places.values()])
    return next((why for value in values if (why := node.host.refusal(key, value))), None)


def _unfit(node: Node, spec: Spec, key: str, now: EffectiveValue, original: EffectiveValue) -> str:
    """Return the reason why this node could not be used with this original; empty when it could, or was with it before.

    An original that the journal does not know is only the spec's word, and is judged like a wanted value.
    """
    if original.value is None or same(now.value, original.value):
        return ""
    if why := memory.too_much(node, spec, key):
        return why
    if key in node.journal.content.entries or isinstance(node.handler(key), AtStart):
        return ""
    return fitness.unfit(key, Operator.EQUALS, original.value, node.machine())


def original_of(node: Node, spec: Spec | None, key: str, reported: str | None = None) -> EffectiveValue:
    """The journal's, which also knows the places; the control plane's where the journal is lost. See `_disagree`."""
    if entry := node.journal.content.entries.get(key):
        return EffectiveValue(entry.original, entry.places)
    if spec is not None:
        reported = next((r.original for r in spec.restore if r.key == key), None)
    return EffectiveValue(reported)


def put_back(node: Node, spec: Spec, key: str, originals: Mapping[str, EffectiveValue]) -> KeyOutcome:
    """`originals` were gathered before the first of a coupled group was put back and forgotten."""
    content, original = node.journal.content, originals[key]
    handler = node.handler(key)
    reason = kept = ""
    try:
        if keys.coupled_with(key):
            _put_coupled_back(node, spec, key, originals)
        elif isinstance(handler, AtStart):
            if entry := content.entries.get(key):
                handler.take_away(node.host, key, entry.written or "", original)
        elif isinstance(handler, Module) and key not in content.entries and node.answer(key) is not None:
            raise InUse("this node's journal does not know that Setpoint loaded it: it stays until the next boot")
        else:
            kept = handler.left_behind(key)
            handler.put_back(node.host, key, original)
    except InUse as error:
        node.wait_for(key, RestartAction.REBOOT)
        reason = str(error)
    except (OSError, WriteRefused) as error:
        outcome = failed(error) if isinstance(error, OSError) else refused(error)
        return replace(outcome, original=original.value)
    answer = node.answer(key)
    if isinstance(handler, AtStart):
        content.pending.pop(key, None)
        if not same(answer, original.value) and (action := handler.restart_of(key)):
            node.wait_for(key, action)
    elif not reason and not same(answer, original.value) and not _is_back(node, key, original, answer):
        deviation = rounded(original.value or "nothing", answer)
        return KeyOutcome(SettingStatus.NOT_EFFECTIVE, deviation, original.value)
    content.entries.pop(key, None)
    _forget_partners(node, key)
    return KeyOutcome(SettingStatus.RESTORED, reason or kept, original.value)


def _is_back(node: Node, key: str, original: EffectiveValue, answer: str | None) -> bool:
    if keys.kind_of(key) is KeyKind.DISK_LAYOUT:
        return keys.is_restored(key, original.value, answer)
    return _is_back_where_it_is(node, key, original)


def _is_back_where_it_is(node: Node, key: str, original: EffectiveValue) -> bool:
    """Return whether every place that the original knew and that still exists has its own again: a disk may be gone."""
    places = {path: value for path, value in node.places(key).items() if path in original.places}
    return bool(places) and all(same(value, original.places[path]) for path, value in places.items())


def _put_coupled_back(node: Node, spec: Spec, key: str, originals: Mapping[str, EffectiveValue]) -> None:
    """Put a group back as one, unless the step itself sets one of its keys. Raises OSError, Refused."""
    if any(w.key in group(key) for w in spec.settings):
        return
    known = {name: originals[name] for name in group(key) if originals[name].value is not None}
    if key not in known:
        raise WriteRefused("its original is unknown: the journal is lost, and the control plane sent none")
    if all(same(node.answer(name), was.value) for name, was in known.items()):
        return
    if len(known) < len(group(key)) and known[key].value == "0":
        unknown = ", ".join(sorted(group(key) - set(known)))
        raise WriteRefused(f"the original of {unknown} is unknown, and without it 0 cannot be put back")
    put_group_back(node.host, known)


def _forget_partners(node: Node, key: str) -> None:
    """Entries that only held the original of a coupled key go when the last written key of the group does."""
    entries = node.journal.content.entries
    partners = [k for k in keys.coupled_with(key) if k in entries]
    if not any(entries[k].written is not None for k in partners):
        for k in partners:
            del entries[k]
