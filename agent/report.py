"""Status of the node in the contract's terms. Everything is cut to the contract's bounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from agent import boot_loader
from agent.journal import KeyOutcome
from agent.node import MAY_BE_ABSENT, Node, same
from contract import keys
from contract.keys import KeyKind
from contract.nodetuning import (
    MAX_KEY,
    MAX_OBSERVED,
    MAX_REASON,
    MAX_SETTINGS,
    MAX_VALUE,
    Condition,
    Mode,
    RestartAction,
    SettingReport,
    SettingStatus,
    Spec,
    Wanted,
)

SHORT = MAX_KEY

_GOOD = (SettingStatus.EFFECTIVE, SettingStatus.RESTORED, SettingStatus.ORPHANED)
_NOT_APPLIED = (
    SettingStatus.DENIED,
    SettingStatus.MOVED,
    SettingStatus.UNSUPPORTED,
    SettingStatus.FAILED,
    SettingStatus.OBSERVED,
)


def settle(node: Node, spec: Spec) -> None:
    """Note in the journal's attempt what has come true since: a boot that made a kernel argument effective."""
    content = node.journal.content
    for wanted in spec.settings:
        outcome = content.attempt.outcomes.get(wanted.key)
        waits = outcome and outcome.state in (SettingStatus.PENDING_RESTART, SettingStatus.NOT_EFFECTIVE)
        if outcome and waits and wanted.key not in content.pending:
            answer = node.answer(wanted.key)
            if keys.satisfied(wanted.operator, wanted.value, answer):
                outcome.state, outcome.reason = SettingStatus.EFFECTIVE, ""
            elif outcome.state == SettingStatus.PENDING_RESTART:
                outcome.state = SettingStatus.NOT_EFFECTIVE
                outcome.reason = _fallback(node, wanted.key) or _after_start(node, wanted.key, answer)
    named = {w.key for w in spec.settings} | {r.key for r in spec.restore}
    for key, entry in list(content.entries.items()):
        coupled = any(k in named or k in content.entries for k in keys.coupled_with(key))
        coupled = coupled or node.has_traces(key)
        if key not in named and not entry.done and not coupled and same(node.answer(key), entry.original):
            del content.entries[key]  # an intent that never reached the kernel, and that is wanted no more


def settings(
    node: Node, spec: Spec, fight: Callable[[Wanted, str | None], str], not_persisted: str | None
) -> list[SettingReport]:
    """Every key of the spec, then the orphans, at most MAX_SETTINGS."""
    out = [_setting(node, spec, wanted, fight, not_persisted) for wanted in spec.settings]
    out += [_restored(node, spec, r.key) for r in spec.restore]
    named = {s.key for s in out}
    for key, entry in node.journal.content.entries.items():
        if key not in named and entry.written is not None:
            out.append(_report(node, key, KeyOutcome(SettingStatus.ORPHANED), _answer(node, key)))
    return out[:MAX_SETTINGS]


def _setting(
    node: Node, spec: Spec, wanted: Wanted, fight: Callable[[Wanted, str | None], str], not_persisted: str | None
) -> SettingReport:
    content, answer = node.journal.content, _answer(node, wanted.key)
    outcome = content.attempt.outcomes.get(wanted.key)
    if spec.mode == Mode.OBSERVE or outcome is None:
        return _report(node, wanted.key, KeyOutcome(SettingStatus.OBSERVED), answer)
    is_so = keys.satisfied(wanted.operator, wanted.value, answer)
    state, reason = outcome.state, outcome.reason
    if state in (SettingStatus.DENIED, SettingStatus.CONTENDED):
        pass
    elif not_persisted and wanted.key in content.entries and keys.kind_of(wanted.key) in keys.AT_START and not is_so:
        state, reason = SettingStatus.FAILED, not_persisted
    elif wanted.key in content.pending and (is_so or state == SettingStatus.PENDING_RESTART):
        state = SettingStatus.PENDING_RESTART
        reason = f"waits for a restart: {content.pending[wanted.key].action}"
    elif is_so:
        state, reason = SettingStatus.EFFECTIVE, reason or outcome.note
        if not_persisted and wanted.key in content.entries:
            reason = f"until the next boot: {not_persisted}"
    elif state == SettingStatus.EFFECTIVE:
        state = SettingStatus.DRIFTED
        reason = reason or f"the kernel answers {'nothing' if answer is None else answer}{fight(wanted, answer)}"
    return _report(node, wanted.key, KeyOutcome(state, reason), answer)


def _restored(node: Node, spec: Spec, key: str) -> SettingReport:
    content, answer = node.journal.content, _answer(node, key)
    outcome = content.attempt.outcomes.get(key)
    if spec.mode == Mode.OBSERVE or outcome is None:
        return _report(node, key, KeyOutcome(SettingStatus.OBSERVED), answer)
    shown = outcome
    if outcome.state == SettingStatus.RESTORED and key in content.pending:
        why = outcome.reason or f"waits for a restart: {content.pending[key].action}"
        shown = replace(outcome, state=SettingStatus.PENDING_RESTART, reason=why)
    elif (
        outcome.state == SettingStatus.RESTORED
        and keys.kind_of(key) in (*MAY_BE_ABSENT, *keys.AT_START)
        and not same(answer, outcome.original)
    ):
        why = _fallback(node, key) or f"the kernel still answers {answer}"
        shown = replace(outcome, state=SettingStatus.NOT_EFFECTIVE, reason=why)
    elif outcome.state == SettingStatus.RESTORED and outcome.note:
        shown = replace(outcome, reason=outcome.note)
    return _report(node, key, shown, answer)


def _after_start(node: Node, key: str, answer: str | None) -> str:
    """Return what was there after the restart that should have brought another value."""
    if keys.kind_of(key) is KeyKind.CMDLINE:
        return f"booted, and /proc/cmdline has {'no such argument' if answer is None else answer}"
    if keys.kind_of(key) is KeyKind.CPU_ISOLATION:
        return f"booted, and the kernel isolates {answer or 'nothing'}"
    if answer is None and keys.kind_of(key) in (KeyKind.KUBELET, KeyKind.KUBELET_MANAGER):
        loaded = node.journal.content.kubelet
        why = loaded.unknown or loaded.managers_unknown or "none runs"
        return f"restarted, and what the kubelet runs with is not known: {why}"
    return f"restarted, and it runs with {'none' if answer is None else answer}"


def _fallback(node: Node, key: str) -> str:
    """Return the reason why a kernel argument is as it was before its boot, where that boot failed; empty elsewhere."""
    if keys.kind_of(key) in keys.KERNEL_ARGUMENTS and boot_loader.fell_back(node.host):
        return "the node did not come up with the change, and booted with the arguments from before"
    return ""


def _report(node: Node, key: str, outcome: KeyOutcome, answer: str | None) -> SettingReport:
    entry = node.journal.content.entries.get(key)
    original = entry.original if entry else outcome.original
    return SettingReport(
        key=key[:MAX_KEY],
        state=str(outcome.state),
        written=_cut(entry.written if entry and entry.done else None),
        effective=_cut(answer),
        original=_cut(original),
        reason=outcome.reason[:MAX_REASON],
    )


def _answer(node: Node, key: str) -> str | None:
    """None also for a key that is none: the spec may hold anything."""
    try:
        return node.answer(key)
    except keys.BadKey:
        return None


def _cut(value: str | None) -> str | None:
    return None if value is None else value[:MAX_VALUE]


def observed(node: Node, spec: Spec) -> dict[str, str]:
    """Effective value of every key that the control plane asks for and may know, at most MAX_OBSERVED."""
    wanted: Iterable[str] = dict.fromkeys(
        [*(w.key for w in spec.settings), *(r.key for r in spec.restore), *spec.observe]
    )
    answers: dict[str, str] = {}
    for key in wanted:
        if keys.is_observable(key) and len(answers) < MAX_OBSERVED:
            answer = node.answer(key)
            if answer is not None:
                answers[key] = answer[:MAX_VALUE]
    return answers


def conditions(
    node: Node, spec: Spec, reports: list[SettingReport], refusal: tuple[str, str] | None
) -> list[Condition]:
    waits = {pending.action for pending in node.journal.content.pending.values()}
    restart = next((action for action in reversed(RestartAction) if action in waits), None)
    degraded = Condition("Degraded", "True", *refusal) if refusal else Condition("Degraded", "False")
    if refusal and not reports:
        applied = effective = ("Unknown", *refusal)
    elif spec.mode == Mode.OBSERVE:
        applied = effective = ("Unknown", "Observing", "mode observe writes nothing")
    else:
        # The finding that held the step comes before the keys that were held with it.
        first = next((r for state in _NOT_APPLIED for r in reports if r.state == state), None)
        applied = _judged(first)
        effective = _judged(first or next((r for r in reports if r.state not in _GOOD), None))
    return [
        Condition("Applied", *applied),
        Condition("Effective", *effective),
        Condition("RestartRequired", "True" if restart else "False", restart.capitalize() if restart else ""),
        degraded,
    ]


def _judged(bad: SettingReport | None) -> tuple[str, str, str]:
    if bad is None:
        return "True", "", ""
    return "False", str(bad.state), f"{bad.key}: {bad.reason}"[:MAX_REASON]


def dated(fresh: list[Condition], before: Iterable[Condition], now: float) -> tuple[Condition, ...]:
    """Keep the time of a condition whose status did not change."""
    known = {c.type: c for c in before}
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    return tuple(
        replace(
            c,
            reason=c.reason or "AsExpected",
            last_transition=known[c.type].last_transition
            if c.type in known and known[c.type].status == c.status
            else stamp,
        )
        for c in fresh
    )
