"""One attempt at one spec: examine every key, journal the originals, write, put back, persist.

Nothing is written unless every key of the step is as the plan saw it (law 2). Every function here may be cut short at
any line and run again: what it finds then is the journal's word and the kernel's answer, never its own memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent import kinds, memory, restore
from agent.journal import Attempt, JournalEntry, KeyOutcome
from agent.kinds import modules
from agent.kinds.base import AtStart, EffectiveValue, Unsupported, WriteRefused
from agent.kinds.cpu_isolation import keeps_in_part
from agent.kinds.disk_layout import DiskLayouts
from agent.node import MAY_BE_ABSENT, KeyAssessment, Node, failed, group, is_half_way, refused, rounded, same
from contract import fitness, keys
from contract.keys import KeyKind
from contract.nodetuning import Operator, SettingStatus, Spec, Wanted


def run(node: Node, spec: Spec, attempt_id: str) -> None:
    """Carry out `settings` and `restore` once. Raises OSError when the journal cannot be written, and stops there."""
    content = node.journal.content
    if content.attempt.id != attempt_id:
        content.attempt = Attempt(attempt_id, absent=[w.key for w in spec.settings if _absent(node, w.key)])
        content.repairs.clear()
    attempt = content.attempt
    assessments = {w.key: _examine(node, spec, w) for w in spec.settings}
    restores = {r.key: restore.examine(node, spec, r) for r in spec.restore}
    findings = assessments | restores
    if any(finding.holds for finding in findings.values()):
        attempt.outcomes = _held(findings)
    else:
        to_write = [w for w in spec.settings if assessments[w.key].outcome is None and not follows(spec, w)]
        to_write.sort(key=lambda w: kinds.ORDER.index(keys.kind_of(w.key)))
        originals = {key: restore.original_of(node, spec, key) for r in spec.restore for key in group(r.key)}
        for setting in to_write:
            if (reading := assessments[setting.key].reading) and reading.value is not None:
                _enter(node, setting, reading)
                node.handler(setting.key).intend(node.host, setting.key, setting.value, setting.expect)
        for key in restores:
            action = node.handler(key).restart_of(key)
            if action and findings[key].outcome is None and not same(node.answer(key), originals[key].value):
                node.wait_for(key, action)
        for key, finding in findings.items():
            if finding.reading and len(finding.reading.places) > 1:
                attempt.seen.setdefault(key, dict(finding.reading.places))
        attempt.outcomes = {key: f.outcome for key, f in findings.items() if f.outcome}
        node.journal.save()  # the originals, before the kernel hears anything (law 7)
        for setting in to_write:
            attempt.outcomes[setting.key] = write(node, setting)
        for setting in spec.settings:
            if setting.key not in attempt.outcomes:
                attempt.outcomes[setting.key] = _answered(setting, node.answer(setting.key))
        to_put_back = [r.key for r in spec.restore if findings[r.key].outcome is None]
        for key in modules.users_first(node.host, to_put_back):
            attempt.outcomes[key] = restore.put_back(node, spec, key, originals)
    attempt.done = True
    node.journal.save()


def after_boot(node: Node, spec: Spec) -> None:
    """Write what network cards lost in a boot, once for each boot: no file of the node does (agent.kinds.nic)."""
    content, boot = node.journal.content, node.host.boot_id()
    if content.cards_boot in ("", boot):
        return
    for wanted in spec.settings:
        outcome = content.attempt.outcomes.get(wanted.key)
        was_written = wanted.key in content.entries and keys.kind_of(wanted.key) is KeyKind.NIC
        if not (was_written and outcome and outcome.state == SettingStatus.EFFECTIVE):
            continue
        if not keys.satisfied(wanted.operator, wanted.value, node.answer(wanted.key)):
            again = write(node, wanted)
            outcome.reason = "" if again.state == SettingStatus.EFFECTIVE else f"after a boot: {again.reason}"
    content.cards_boot = boot
    node.journal.save()


def follows(spec: Spec, wanted: Wanted) -> bool:
    """Return whether this 0 is what the kernel does by itself when the step writes the coupled key."""
    partners = keys.coupled_with(wanted.key)
    return wanted.value == "0" and any(w.key in partners for w in spec.settings)


def _absent(node: Node, key: str) -> bool:
    try:
        return node.read(key).value is None
    except (keys.BadKey, OSError):
        return False


def _held(findings: Mapping[str, KeyAssessment]) -> dict[str, KeyOutcome]:
    because = ", ".join(key for key, finding in findings.items() if finding.holds)
    not_written = KeyOutcome(SettingStatus.OBSERVED, f"not written, because of {because}")
    return {key: finding.outcome or not_written for key, finding in findings.items()}


def _examine(node: Node, spec: Spec, wanted: Wanted) -> KeyAssessment:
    """Compare and decide: what the kernel answers must be what is wanted, or what the plan saw."""
    if (
        reason := node.host.refusal(wanted.key, wanted.value)
        or _unfit(node, spec, wanted)
        or _contradicts(spec, wanted)
        or node.stops_kubelet(spec, wanted.key)
        or node.contradicts(spec, wanted.key)
    ):
        return KeyAssessment(KeyOutcome(SettingStatus.DENIED, reason))
    content = node.journal.content
    try:
        reading = node.read(wanted.key)
        if keys.satisfied(wanted.operator, wanted.value, reading.value):
            _adopt(content.entries.get(wanted.key), wanted, reading.value)
            return KeyAssessment(KeyOutcome(SettingStatus.EFFECTIVE))
        if reason := _unfit_to_write(node, wanted):
            return KeyAssessment(KeyOutcome(SettingStatus.DENIED, reason))
        node.handler(wanted.key).check(node.host, wanted.key, wanted.value)
    except OSError as error:
        return KeyAssessment(failed(error))
    except WriteRefused as error:
        return KeyAssessment(refused(error))
    except Unsupported as error:
        return KeyAssessment(KeyOutcome(SettingStatus.UNSUPPORTED, str(error)))
    if reading.value is None and not _may_appear(spec, wanted.key):
        return KeyAssessment(KeyOutcome(SettingStatus.UNSUPPORTED, "the kernel has no such key"))
    brought = wanted.expect is None and wanted.key in content.attempt.absent
    half_way = is_half_way(
        content.attempt.seen.get(wanted.key),
        reading,
        lambda _, value: keys.satisfied(wanted.operator, wanted.value, value),
    )
    if not (brought or half_way or same(reading.value, wanted.expect)):
        entry = content.entries.get(wanted.key)
        if entry and entry.written == wanted.value:
            if same(entry.answered, reading.value) or keeps_in_part(wanted.key, wanted.value, reading.value):
                return KeyAssessment(KeyOutcome(SettingStatus.NOT_EFFECTIVE, rounded(wanted.value, reading.value)))
            if not isinstance(node.handler(wanted.key), DiskLayouts) and _was_cut_short(entry, reading.value):
                _adopt(entry, wanted, reading.value)
                return KeyAssessment(KeyOutcome(SettingStatus.NOT_EFFECTIVE, _cut_short(wanted.value, reading.value)))
        was = "absent" if wanted.expect is None else wanted.expect
        return KeyAssessment(KeyOutcome(SettingStatus.MOVED, f"the plan saw {was}, the kernel answers {reading.value}"))
    return KeyAssessment(reading=reading)


def _was_cut_short(entry: JournalEntry, answer: str | None) -> bool:
    """Return whether a write was journalled, its end never was, and the value is no longer the one from before.

    Most likely the kernel rounded what was written; or another party wrote meanwhile. The two cannot be told apart, so
    nothing is written over it: the value is reported, and the next plan sees it.
    """
    before = entry.original if entry.before is None else entry.before
    return not entry.done and not same(answer, before)


def _cut_short(wanted: str, answer: str | None) -> str:
    return f"{wanted} was being written when the agent was stopped; the kernel answers {answer}"


def _unfit(node: Node, spec: Spec, wanted: Wanted) -> str:
    """Return the reason why this machine could not be used with this value; empty when it could.

    The gate judges how much a value would take. Too low a value is refused here, for wanted settings alone: an original
    that goes back was there before.
    """
    if why := memory.too_much(node, spec, wanted.key):
        return why
    if wanted.key not in fitness.LIMITS:
        return ""
    return fitness.unfit(wanted.key, wanted.operator, wanted.value, node.machine())


def _unfit_to_write(node: Node, wanted: Wanted) -> str:
    """Judge as `_unfit` a setting to be written: `>=` assigns then too, now and, by a file, at the next boot."""
    return fitness.unfit(wanted.key, Operator.EQUALS, wanted.value, node.machine())


def _contradicts(spec: Spec, wanted: Wanted) -> str | None:
    partners = keys.coupled_with(wanted.key)
    rivals = [w.key for w in spec.settings if w.key in partners and w.value != "0"]
    return f"{rivals[0]} is set too, and the kernel keeps only one of them" if rivals and wanted.value != "0" else None


def _may_appear(spec: Spec, key: str) -> bool:
    """Return whether an absent key can appear in this step: its kind allows it, or a module of the step may add it."""
    if keys.kind_of(key) in MAY_BE_ABSENT:
        return True
    brings = any(w.key.startswith("module.") for w in spec.settings)
    return brings and keys.kind_of(key) in (KeyKind.SYSCTL, KeyKind.MODULE_PARAMETER)


def _adopt(entry: JournalEntry | None, wanted: Wanted, answer: str | None) -> None:
    """Settle an intent that a crash cut short, and let no earlier step's file undo this one at the next boot."""
    if entry is None or entry.written is None:
        return
    if not keys.satisfied(wanted.operator, wanted.value, entry.written):
        entry.written = wanted.value
    entry.answered, entry.done, entry.before = answer, True, None


def _enter(node: Node, wanted: Wanted, reading: EffectiveValue) -> None:
    """Put the intent to write in the journal, with the original if this is Setpoint's first write of the key."""
    entries = node.journal.content.entries
    _intend(entries.setdefault(wanted.key, JournalEntry(reading.value, dict(reading.places))), wanted)
    for key in keys.coupled_with(wanted.key):
        _intend(entries.setdefault(key, JournalEntry(node.answer(key))), None)
    if action := node.handler(wanted.key).restart_of(wanted.key):
        node.wait_for(wanted.key, action)


def _intend(entry: JournalEntry, wanted: Wanted | None) -> None:
    """None: the write of a coupled key supersedes what was written here."""
    if entry.done:
        entry.before = entry.written
    entry.written = wanted.value if wanted else None
    entry.answered, entry.done = None, False


def write(node: Node, wanted: Wanted) -> KeyOutcome:
    """Write one examined key and say what the kernel answers. The journal must hold its original, or get it here."""
    entries = node.journal.content.entries
    handler = node.handler(wanted.key)
    if reason := _unfit_to_write(node, wanted):
        return KeyOutcome(SettingStatus.DENIED, reason)
    try:
        before = node.read(wanted.key)
        if before.value is None and keys.kind_of(wanted.key) not in MAY_BE_ABSENT:
            return KeyOutcome(SettingStatus.UNSUPPORTED, "the kernel has no such key")
        entry = entries.get(wanted.key)
        if entry is None or entry.written != wanted.value or entry.done:
            _enter(node, wanted, before)  # a key that a module brought, an absent one, or a repair
            node.journal.save()
            entry = entries[wanted.key]
        elif wanted.key not in node.journal.content.pending and (action := handler.restart_of(wanted.key)):
            node.wait_for(wanted.key, action)  # a restart came between the intent and this write, and saw nothing of it
            node.journal.save()
        handler.write(node.host, wanted.key, wanted.operator, wanted.value)
        answer = handler.read(node.host, wanted.key).value
    except (OSError, WriteRefused, Unsupported) as error:
        _undo_intent(node, wanted.key)
        if isinstance(error, Unsupported):
            return KeyOutcome(SettingStatus.FAILED, str(error))
        return failed(error) if isinstance(error, OSError) else refused(error)
    entry.answered, entry.done = answer, True
    for key in group(wanted.key) & set(entries):
        entries[key].before = None
    if isinstance(handler, AtStart):
        return KeyOutcome(SettingStatus.PENDING_RESTART)
    return _answered(wanted, answer)


def _answered(wanted: Wanted, answer: str | None) -> KeyOutcome:
    if keys.satisfied(wanted.operator, wanted.value, answer):
        return KeyOutcome(SettingStatus.EFFECTIVE)
    return KeyOutcome(SettingStatus.NOT_EFFECTIVE, rounded(wanted.value, answer))


def _undo_intent(node: Node, key: str) -> None:
    """A refused write leaves no trace in the journal, unless some place of the key did change."""
    entries = node.journal.content.entries
    for name in group(key) & set(entries):
        entry, answer = entries[name], node.answer(name)
        if entry.before is not None and same(answer, entry.before):
            entry.written, entry.answered, entry.done, entry.before = entry.before, answer, True, None
    left = group(key) & set(entries)
    if node.handler(key).has_traces(key):
        return
    if not any(entries[name].done for name in left) and all(
        same(node.answer(name), entries[name].original) for name in left
    ):
        for name in left:
            del entries[name]
        node.journal.content.pending.pop(key, None)
