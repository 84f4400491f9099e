"""The NodeTuning object: what the control plane asks of one node and what the agent answers.

`Spec` is written only by the control plane, `Status` only by the node's own agent. Both are plain data with
`to_json`/`from_json`; `from_json` raises Malformed on anything outside the bounds below, because an agent may lie and a
cluster's objects may be newer than this code.

What is observed, keys and values, travels as one text each. The API server decodes, checks and encodes an object value
by value with every write; hundreds of values that only Setpoint reads were a fifth of that (docs/performance.md).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from contract.bounded_json import (
    Malformed,
    check_object,
    entries,
    entry_lines,
    lines,
    list_of_objects,
    one_of,
    optional_text,
    text,
    whole_number,
)

__all__ = [
    "LONGEST_GRANT_SECONDS", "MAX_CONDITIONS", "MAX_KEY", "MAX_OBSERVED", "MAX_OBSERVED_TEXT", "MAX_OBSERVE_TEXT",
    "MAX_REASON", "MAX_SETTINGS", "MAX_VALUE", "Condition", "Malformed", "Mode", "Operator", "RestartAction",
    "RestartGrant", "RestartReport", "Restore", "SettingReport", "SettingStatus", "Spec", "Status", "Wanted",
]  # fmt: skip

MAX_SETTINGS = 256
MAX_OBSERVED = 512
MAX_OBSERVE_TEXT = 66_048
"""MAX_OBSERVED keys of MAX_KEY, each with its line's end."""
MAX_OBSERVED_TEXT = 400_000
"""As many keys with values of MAX_VALUE, and the quotes and escapes that JSON adds to most of them."""
MAX_KEY = 128
MAX_VALUE = 512
MAX_REASON = 512
MAX_CONDITIONS = 16
LONGEST_GRANT_SECONDS = 90_000
"""The longest deadline of a step, and an hour for clocks. An end that is further away was not meant as one."""


class Mode(enum.StrEnum):
    OBSERVE = "observe"
    """Report values, write nothing."""
    APPLY = "apply"
    """Bring `settings` and `restore` about once per generation; report drift, do not repair it."""
    ENFORCE = "enforce"
    """As apply, and repair drift; three repairs in ten minutes end in Contended."""


class Operator(enum.StrEnum):
    EQUALS = "="
    AT_LEAST = ">="
    AT_MOST = "<="


class SettingStatus(enum.StrEnum):
    """State of one key, as the agent reports it."""

    OBSERVED = "Observed"
    EFFECTIVE = "Effective"
    """The kernel answers what is wanted (or better, for >= and <=)."""
    PENDING_RESTART = "PendingRestart"
    """Written where the next kubelet restart or boot reads it."""
    MOVED = "Moved"
    """Neither `expect` nor the wanted value: it was changed since the plan. Not written (law 2)."""
    DRIFTED = "Drifted"
    """Was effective, is not any more; mode apply leaves it."""
    NOT_EFFECTIVE = "NotEffective"
    """Written, but the kernel answers something else: rounded, clamped or beaten by another writer."""
    CONTENDED = "Contended"
    FAILED = "Failed"
    """The write was refused; `reason` says by what."""
    UNSUPPORTED = "Unsupported"
    """This node has no such key, or no way to change it."""
    DENIED = "Denied"
    """On the agent's own deny-list, or not on its allow-list."""
    ORPHANED = "Orphaned"
    """Written by Setpoint once, in spec no longer: left as it is."""
    RESTORED = "Restored"


class RestartAction(enum.StrEnum):
    KUBELET = "kubelet"
    CONTAINERD = "containerd"
    """Restarts containerd, and the kubelet with it."""
    REBOOT = "reboot"


@dataclass(frozen=True, slots=True)
class Wanted:
    key: str
    operator: str
    value: str
    expect: str | None
    """The effective value the plan saw; None when the node had no such key then (a kernel argument, a module)."""

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"key": self.key, "operator": self.operator, "value": self.value}
        if self.expect is not None:
            out["expect"] = self.expect
        return out


@dataclass(frozen=True, slots=True)
class Restore:
    key: str
    original: str | None
    """Fallback from the control plane's database when the host's journal is lost; None: absent before us."""
    expect: str | None
    """What Setpoint believes is effective now. Another value means another party wrote since: Moved."""

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"key": self.key}
        if self.original is not None:
            out["original"] = self.original
        if self.expect is not None:
            out["expect"] = self.expect
        return out


@dataclass(frozen=True, slots=True)
class RestartGrant:
    """Permission to end exactly one boot, one run of the kubelet, or one of containerd and of the kubelet. Spent once
    `bootID` no longer matches, when journalled done, or when its time is over."""

    id: str
    action: str
    boot_id: str
    expires: str = ""
    """Until when it may be carried out, in the API server's clock (`contract.clock`). Empty: not at all. Agents before
    it was added know no end."""

    def to_json(self) -> dict[str, Any]:
        out = {"id": self.id, "action": self.action, "bootID": self.boot_id}
        return out | {"expires": self.expires} if self.expires else out


@dataclass(frozen=True, slots=True)
class Spec:
    node_uid: str
    mode: str = Mode.OBSERVE
    protocol: int = 1
    rollout: str = ""
    step: str = ""
    attempt: int = 0
    revision: str = ""
    """Digest of the profile revision, `sha256:...`."""
    settings: tuple[Wanted, ...] = ()
    restore: tuple[Restore, ...] = ()
    observe: tuple[str, ...] = ()
    """Keys to report in `status.observed` besides those in `settings`; the control plane sends its catalog."""
    restart: RestartGrant | None = None

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "nodeUID": self.node_uid,
            "mode": str(self.mode),
            "protocol": self.protocol,
            "rollout": self.rollout,
            "step": self.step,
            "attempt": self.attempt,
            "revision": self.revision,
            "settings": [w.to_json() for w in self.settings],
            "restore": [r.to_json() for r in self.restore],
            "observe": "\n".join(self.observe),
        }
        # A merge patch removes a field only when it is null, and an old grant must never survive a new spec.
        out["restart"] = self.restart.to_json() if self.restart else None
        return out

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Spec:
        """Read `spec`. Raises Malformed."""
        check_object(raw, "spec")
        grant = raw.get("restart")
        return cls(
            node_uid=text(raw, "nodeUID", MAX_KEY),
            mode=one_of(raw, "mode", Mode, Mode.OBSERVE),
            protocol=whole_number(raw, "protocol", 1),
            rollout=text(raw, "rollout", MAX_KEY, ""),
            step=text(raw, "step", MAX_KEY, ""),
            attempt=whole_number(raw, "attempt", 0),
            revision=text(raw, "revision", MAX_KEY, ""),
            settings=tuple(
                Wanted(
                    text(w, "key", MAX_KEY),
                    one_of(w, "operator", Operator, Operator.EQUALS),
                    text(w, "value", MAX_VALUE),
                    optional_text(w, "expect", MAX_VALUE),
                )
                for w in list_of_objects(raw, "settings", MAX_SETTINGS)
            ),
            restore=tuple(
                Restore(
                    text(r, "key", MAX_KEY),
                    optional_text(r, "original", MAX_VALUE),
                    optional_text(r, "expect", MAX_VALUE),
                )
                for r in list_of_objects(raw, "restore", MAX_SETTINGS)
            ),
            observe=lines(raw, "observe", MAX_OBSERVE_TEXT, MAX_OBSERVED, MAX_KEY),
            restart=None
            if not grant
            else RestartGrant(
                text(grant, "id", MAX_KEY),
                one_of(grant, "action", RestartAction),
                text(grant, "bootID", MAX_KEY),
                text(grant, "expires", MAX_KEY, ""),
            ),
        )


@dataclass(frozen=True, slots=True)
class SettingReport:
    key: str
    state: str
    written: str | None = None
    effective: str | None = None
    original: str | None = None
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"key": self.key, "state": str(self.state)}
        for name in ("written", "effective", "original"):
            if (value := getattr(self, name)) is not None:
                out[name] = value
        if self.reason:
            out["reason"] = self.reason[:MAX_REASON]
        return out


@dataclass(frozen=True, slots=True)
class Condition:
    type: str
    """Applied, Effective, RestartRequired or Degraded."""
    status: str
    """True, False or Unknown."""
    reason: str = ""
    message: str = ""
    last_transition: str = ""
    """RFC 3339, UTC."""

    def to_json(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "status": self.status,
            "reason": self.reason or "AsExpected",
            "message": self.message[:MAX_REASON],
            "lastTransitionTime": self.last_transition,
        }


@dataclass(frozen=True, slots=True)
class RestartReport:
    id: str
    state: str
    """Journalled (about to end it), Done, or Refused."""
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "state": self.state, "reason": self.reason[:MAX_REASON]}


@dataclass(frozen=True, slots=True)
class Status:
    observed_generation: int = 0
    node_uid: str = ""
    protocol: int = 1
    agent_version: str = ""
    boot_id: str = ""
    kernel: str = ""
    step: str = ""
    attempt: int = 0
    revision: str = ""
    settings: tuple[SettingReport, ...] = ()
    observed: Mapping[str, str] = field(default_factory=dict)
    """Effective value per key; an absent key is one the kernel lacks."""
    conditions: tuple[Condition, ...] = ()
    restart: RestartReport | None = None

    def setting(self, key: str) -> SettingReport | None:
        return next((s for s in self.settings if s.key == key), None)

    def condition(self, type_: str) -> Condition | None:
        return next((c for c in self.conditions if c.type == type_), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "observedGeneration": self.observed_generation,
            "nodeUID": self.node_uid,
            "protocol": self.protocol,
            "agentVersion": self.agent_version,
            "bootID": self.boot_id,
            "kernel": self.kernel,
            "step": self.step,
            "attempt": self.attempt,
            "revision": self.revision,
            "settings": [s.to_json() for s in self.settings],
            "observed": entry_lines(self.observed),
            "conditions": [c.to_json() for c in self.conditions],
            "restart": self.restart.to_json() if self.restart else None,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Status:
        """Read `status`; an empty mapping is an agent that has not answered yet. Raises Malformed."""
        check_object(raw, "status")
        restart = raw.get("restart")
        return cls(
            observed_generation=whole_number(raw, "observedGeneration", 0),
            node_uid=text(raw, "nodeUID", MAX_KEY, ""),
            protocol=whole_number(raw, "protocol", 1),
            agent_version=text(raw, "agentVersion", MAX_KEY, ""),
            boot_id=text(raw, "bootID", MAX_KEY, ""),
            kernel=text(raw, "kernel", MAX_KEY, ""),
            step=text(raw, "step", MAX_KEY, ""),
            attempt=whole_number(raw, "attempt", 0),
            revision=text(raw, "revision", MAX_KEY, ""),
            settings=tuple(
                SettingReport(
                    key=text(s, "key", MAX_KEY),
                    state=text(s, "state", MAX_KEY),
                    written=optional_text(s, "written", MAX_VALUE),
                    effective=optional_text(s, "effective", MAX_VALUE),
                    original=optional_text(s, "original", MAX_VALUE),
                    reason=text(s, "reason", MAX_REASON, ""),
                )
                for s in list_of_objects(raw, "settings", MAX_SETTINGS)
            ),
            observed=entries(
                raw, "observed", limit=MAX_OBSERVED_TEXT, count=MAX_OBSERVED, key=MAX_KEY, value=MAX_VALUE
            ),
            conditions=tuple(
                Condition(
                    text(c, "type", MAX_KEY),
                    text(c, "status", MAX_KEY),
                    text(c, "reason", MAX_KEY, ""),
                    text(c, "message", MAX_REASON, ""),
                    text(c, "lastTransitionTime", MAX_KEY, ""),
                )
                for c in list_of_objects(raw, "conditions", MAX_CONDITIONS)
            ),
            restart=None
            if not restart
            else RestartReport(
                text(restart, "id", MAX_KEY),
                text(restart, "state", MAX_KEY),
                text(restart, "reason", MAX_REASON, ""),
            ),
        )


_WRITES_NOTHING = ("WrongNode", "Skew", "BadSpec", "JournalCorrupt", "JournalUnwritable")
"""Reasons of the condition Degraded with which an agent carries out nothing of its spec."""


def reason_not_to_work(status: Mapping[str, Any]) -> str:
    """Return the agent's reason for carrying out nothing of its spec; empty while it works."""
    for condition in status.get("conditions", ()):
        is_degraded = (condition["type"], condition["status"]) == ("Degraded", "True")
        if is_degraded and condition.get("reason") in _WRITES_NOTHING:
            return f"The agent refuses to work: {condition.get('message') or condition['reason']}."
    return ""
