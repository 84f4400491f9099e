"""The agent's core: a spec and a node in, writes and a status out. No network, no threads, no wall clock.

The simulated fleet runs this same class on its virtual kernel.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable

from agent import apply, manager_trial, report, restarts
from agent.host import Host
from agent.journal import Journal, JournalCorrupt
from agent.kinds.lifeline import Lifeline, put_back
from agent.kinds.sysctl import fighting_file
from agent.node import Node, persist
from agent.persisted import SYSCTL
from contract import keys
from contract.keys import ApplyClass, KeyKind
from contract.names import MAX_SKEW, PROTOCOL
from contract.nodetuning import Condition, Mode, SettingReport, SettingStatus, Spec, Status, Wanted

REPAIRS = 3
REPAIR_WINDOW_SECONDS = 600.0
PERSIST_RETRY_SECONDS = 600.0


class Reconciler:
    """Brings one node to its spec.

    `clock` gives seconds since the epoch, `steady` seconds that no correction of the clock moves (without it: `clock`).
    `journal` outlives the reconciler; everything kept only here may be lost.
    """

    def __init__(
        self,
        host: Host,
        journal: Journal,
        clock: Callable[[], float],
        *,
        node_uid: str,
        agent_version: str,
        steady: Callable[[], float] | None = None,
        lifeline: Lifeline | None = None,
    ) -> None:
        self._node = Node(host, journal, lifeline or Lifeline())
        self._clock = clock
        self._steady = steady or clock
        self._node_uid = node_uid
        self._version = agent_version
        self._spec: Spec | None = None
        self._generation = 0
        self._observed: dict[str, str] = {}
        self._conditions: tuple[Condition, ...] = ()
        self._fights: dict[tuple[str, str | None], str] = {}
        self._not_persisted: str | None = None
        self._persist_again = 0.0
        self._started = False
        self._is_waiting = False

    def recover(self) -> list[str]:
        """Put back the network cards that an agent was changing when it was killed; return their places.

        To be called before anything is asked of the network, which may be gone. Raises nothing.
        """
        journal = self._node.journal
        places = [] if journal.corrupt else list(journal.content.guarded.places)
        if places:
            put_back(self._node.host, journal)
            with contextlib.suppress(OSError):  # then the next agent puts the same values back
                journal.save()
        return places

    def remember(self, status: Status) -> None:
        """Take the conditions of the status in the cluster, so that a restart of the agent does not re-date them."""
        self._conditions = status.conditions

    def reconcile(self, spec: Spec, generation: int) -> Status:
        """Carry out a spec, once per generation, and return the node's status."""
        self._spec, self._generation = spec, generation
        self._fights.clear()
        self._persist_again = 0.0
        return self.verify()

    def verify(self, *, observe: bool = True) -> Status:
        """Look again: finish what was cut short, repair drift in mode enforce, report. `observe` re-reads all keys."""
        spec = self._spec
        if spec is None:
            raise RuntimeError("verify() before reconcile()")
        refusal = self._refusal(spec)
        if refusal is None:
            try:
                self._work(spec)
            except JournalCorrupt as error:
                refusal = ("JournalCorrupt", str(error))
            except OSError as error:
                refusal = ("JournalUnwritable", f"the journal: {error.strerror or error}")
        if observe or not self._observed:
            self._observed = report.observed(self._node, spec)
        return self._status(spec, refusal)

    def refuse(self, reason: str, message: str, generation: int) -> Status:
        """The status for a spec that cannot even be read. Nothing is written to the node."""
        self._spec, self._generation = None, generation
        return self._status(Spec(self._node_uid), (reason, message))

    def forget(self) -> None:
        """The object is gone: nothing is asked of this node, and nothing is changed (absent means nothing)."""
        self._spec = None

    def restart(self, confirm: restarts.Confirm, announce: Callable[[Status], None]) -> Status | None:
        """Spend the spec's restart grant if it is new; None if there is none to spend. See `restarts.carry_out`."""
        spec = self._spec
        is_busy = self._is_waiting or self._node.journal.content.managers is not None
        if spec is None or self._refusal(spec) or not self._started or is_busy or not restarts.due(self._node, spec):
            return None
        try:
            restarts.carry_out(self._node, spec, confirm, lambda: announce(self._status(spec, None)), self._steady)
        except (OSError, JournalCorrupt) as error:
            return self._status(spec, ("JournalUnwritable", f"the journal: {error}"))
        return self.verify(observe=False)

    def _refusal(self, spec: Spec) -> tuple[str, str] | None:
        """Return the reason and message with which the whole spec is refused; None if it is not."""
        if spec.node_uid != self._node_uid:
            return "WrongNode", f"the spec is for node {spec.node_uid}, and this is {self._node_uid}"
        if abs(spec.protocol - PROTOCOL) > MAX_SKEW:
            behind = "the agent" if spec.protocol > PROTOCOL else "the control plane"
            return "Skew", f"the control plane speaks protocol {spec.protocol}, the agent {PROTOCOL}: upgrade {behind}"
        if self._node.journal.corrupt:
            return "JournalCorrupt", f"nothing is written until somebody looks: {self._node.journal.corrupt}"
        named = [w.key for w in spec.settings] + [r.key for r in spec.restore]
        if len(named) != len(set(named)):
            twice = next(key for key in named if named.count(key) > 1)
            return "BadSpec", f"{twice} is named twice in settings and restore"
        return None

    def _work(self, spec: Spec) -> None:
        if not self._started:
            restarts.settle(self._node)
            self._started = True
        content = self._node.journal.content
        self.recover()
        manager_trial.look(self._node)
        attempt_id = _attempt_id(spec, self._generation)
        # A spec that came meanwhile waits until the kubelet has come up with the old or the new configuration.
        self._is_waiting = content.managers is not None and content.attempt.id != attempt_id
        if self._is_waiting:
            return
        if spec.mode != Mode.OBSERVE:
            if content.attempt.id != attempt_id or not content.attempt.done:
                apply.run(self._node, spec, attempt_id)
            else:
                apply.after_boot(self._node, spec)
                if spec.mode == Mode.ENFORCE:
                    self._repair(spec)
            report.settle(self._node, spec)
        if self._clock() >= self._persist_again:
            self._not_persisted = persist(self._node)
            retry = PERSIST_RETRY_SECONDS if self._not_persisted else float("inf")
            self._persist_again = self._clock() + retry
        restarts.notice(self._node)  # after the files: a run that began before them has not seen them
        self._node.journal.save()

    # ── enforce ───────────────────────────────────────────────────────────────────────────────────────────────────
    def _repair(self, spec: Spec) -> None:
        for wanted in spec.settings:
            if self._has_drifted(wanted) and not apply.follows(spec, wanted):
                self._repair_one(wanted)

    def _has_drifted(self, wanted: Wanted) -> bool:
        content = self._node.journal.content
        outcome = content.attempt.outcomes.get(wanted.key)
        return (
            outcome is not None
            and outcome.state == SettingStatus.EFFECTIVE
            and keys.kind_of(wanted.key) not in keys.AT_START  # only a restart could repair it, and that needs a grant
            and keys.apply_class(wanted.key) is not ApplyClass.DRAIN  # under running pods nothing is disturbed
            and not keys.satisfied(wanted.operator, wanted.value, self._node.answer(wanted.key))
        )

    def _repair_one(self, wanted: Wanted) -> None:
        content, now = self._node.journal.content, self._clock()
        times = [t for t in content.repairs.get(wanted.key, []) if now - t < REPAIR_WINDOW_SECONDS]
        outcome = content.attempt.outcomes[wanted.key]
        fight = self._fight(wanted, self._node.answer(wanted.key))
        if len(times) >= REPAIRS:
            outcome.state = SettingStatus.CONTENDED
            outcome.reason = f"repaired {REPAIRS} times in ten minutes, and changed again{fight}"
        else:
            content.repairs[wanted.key] = [*times, now]
            repaired = apply.write(self._node, wanted)  # journals the repair with the intent
            # Still EFFECTIVE when the repair failed: it drifted, and the next look tries again until contended.
            outcome.reason = f"repaired {len(times) + 1} times in ten minutes{fight}"
            if repaired.state != SettingStatus.EFFECTIVE:
                outcome.reason = f"could not be repaired: {repaired.reason}{fight}"
            self._persist_again = 0.0
        self._node.journal.save()

    def _fight(self, wanted: Wanted, effective: str | None) -> str:
        """`; /etc/sysctl.d/x.conf:3 sets it to something else`, or nothing. Remembered: it reads many files."""
        if keys.kind_of(wanted.key) is not KeyKind.SYSCTL:
            return ""
        if (wanted.key, effective) not in self._fights:
            place = fighting_file(self._node.host, wanted.key, wanted.value, SYSCTL)
            self._fights[wanted.key, effective] = f"; {place} sets it to another value" if place else ""
        return self._fights[wanted.key, effective]

    def _seen(self, reports: Iterable[SettingReport]) -> dict[str, str]:
        """The last round of all keys, with the newer answers of the spec's own: one status never contradicts itself."""
        for setting_report in reports:
            if setting_report.key in self._observed and setting_report.effective is not None:
                self._observed[setting_report.key] = setting_report.effective
        return dict(self._observed)

    # ── saying it ─────────────────────────────────────────────────────────────────────────────────────────────────
    def _status(self, spec: Spec, refusal: tuple[str, str] | None) -> Status:
        node = self._node
        reports: list[SettingReport] = []
        if refusal is None:
            reports = report.settings(node, spec, self._fight, self._not_persisted)
        if refusal is None and self._not_persisted:
            refusal = ("NotPersisted", self._not_persisted)
        fresh = report.conditions(node, spec, reports, refusal)
        self._conditions = report.dated(fresh, self._conditions, self._clock())
        return Status(
            observed_generation=self._generation - self._is_waiting,
            node_uid=self._node_uid,
            protocol=PROTOCOL,
            agent_version=self._version,
            boot_id=node.host.boot_id()[: report.SHORT],
            kernel=node.host.kernel()[: report.SHORT],
            step=spec.step,
            attempt=spec.attempt,
            revision=spec.revision,
            settings=tuple(reports),
            observed=self._seen(reports),
            conditions=self._conditions,
            restart=restarts.report(node, spec),
        )


def _attempt_id(spec: Spec, generation: int) -> str:
    """Names what was asked, not only the generation: an object that is made again counts from 1."""
    identity = json.dumps(
        [spec.step, spec.attempt, [w.to_json() for w in spec.settings], [r.to_json() for r in spec.restore]]
    )
    return f"{generation}:{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
