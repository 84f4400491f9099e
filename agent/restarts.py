"""Restarts by grant: each is carried out at most once, journalled before it begins, and names the boot it may end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent import boot_loader, manager_trial, services
from agent.host import Command
from agent.journal import Grant
from agent.kinds.base import WriteRefused
from agent.node import Node
from contract import clock as instants
from contract.nodetuning import LONGEST_GRANT_SECONDS, Mode, RestartAction, RestartGrant, RestartReport, Spec

JOURNALLED, DONE, REFUSED = "Journalled", "Done", "Refused"
CONFIRMED_SECONDS = 30.0
"""How long a confirmed grant may wait for its command. A control plane that has withdrawn it waits for longer."""
COMMANDS = {
    RestartAction.KUBELET: Command.RESTART_KUBELET,
    RestartAction.CONTAINERD: Command.RESTART_CONTAINERD,
    RestartAction.REBOOT: Command.REBOOT,
}
SERVICES = {RestartAction.KUBELET: "kubelet", RestartAction.CONTAINERD: "containerd"}
ENDS = {
    RestartAction.KUBELET: (RestartAction.KUBELET,),
    RestartAction.CONTAINERD: (RestartAction.CONTAINERD, RestartAction.KUBELET),
}
"""The waits that a restart of services ends."""


def settle(node: Node) -> None:
    """Settle journalled grants and pending restarts after a start of the agent.

    A restart whose end was not seen is never repeated; the control plane grants again. Raises OSError (journal).
    """
    content, boot = node.journal.content, node.host.boot_id()
    for name, grant in content.grants.items():
        if grant.state != JOURNALLED or (grant.action in ENDS and manager_trial.is_under_way(node, name)):
            continue
        if grant.boot_id != boot:
            grant.state = DONE
        elif grant.action in ENDS:
            if services.run_of(node.host, "kubelet") != grant.run:
                _restarted(node, grant)
            else:
                grant.state = REFUSED
                grant.reason = f"the agent was stopped before it could restart {_named(grant)}; it needs a new grant"
    was_tried = boot_loader.settle(node.host, content)
    for key, pending in list(content.pending.items()):
        if pending.boot_id == boot:
            continue
        if manager_trial.is_manager(key):
            pending.boot_id = boot  # no boot brings it, but for one with a trial, which tells its own end
        elif (content.boot_loader_stale or not was_tried) and boot_loader.is_argument(key):
            pending.boot_id = boot  # that boot cannot have seen the argument: the boot loader did not give it
        elif _was_granted(node, RestartAction.REBOOT, pending.boot_id):
            del content.pending[key]
        else:
            _ended_by_others(node, key, "the node was booted, and not by Setpoint")
    manager_trial.tidy(node)
    node.journal.save()


def notice(node: Node) -> None:
    """See whether another party restarted a service: another run than the one there when the write was over.

    A kubelet counts huge pages and reads its files once, when it starts, so a run that started after the write has seen
    what was written. Costs nothing while nothing waits, and two small files of /proc at a look while something does.
    """
    for action, service in SERVICES.items():
        waiting = {
            key: wait
            for key, wait in node.journal.content.pending.items()
            if wait.action == action and not manager_trial.is_manager(key)
        }
        if not waiting:
            continue
        known = next((wait.run for wait in waiting.values() if wait.run), "")
        run = services.run_of(node.host, service, known)
        for key, wait in waiting.items():
            if wait.run is None:
                wait.run = run
            elif run and run != wait.run:
                _ended_by_others(node, key, f"{_THE[service]} was restarted, and not by Setpoint")


_THE = {"kubelet": "the kubelet", "containerd": "containerd"}


def _was_granted(node: Node, action: str, boot_id: str) -> bool:
    grants = node.journal.content.grants.values()
    return any(g.action == action and g.boot_id == boot_id and g.state == DONE for g in grants)


def _ended_by_others(node: Node, key: str, why: str) -> None:
    content = node.journal.content
    del content.pending[key]
    if outcome := content.attempt.outcomes.get(key):
        outcome.note = why


def due(node: Node, spec: Spec) -> bool:
    """Return whether the spec holds a grant that this host has not seen, and the settings are dealt with."""
    grant, content = spec.restart, node.journal.content
    dealt_with = content.attempt.done or spec.mode == Mode.OBSERVE
    return grant is not None and grant.id not in content.grants and dealt_with


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The spec as the API server has it now, past every cache."""

    spec: Spec
    date: float | None
    """When it said so, by its own clock (s since the epoch); None when it did not say."""


Confirm = Callable[[], Confirmed | None]


def carry_out(
    node: Node, spec: Spec, confirm: Confirm, announce: Callable[[], None], clock: Callable[[], float]
) -> None:
    """Spend the grant. `confirm` reads the object past every cache; `announce` publishes that the restart begins.

    Raises OSError (journal; nothing is restarted then).
    """
    restart = spec.restart
    if restart is None or not due(node, spec):
        return
    boot, confirmed_at = node.host.boot_id(), clock()
    grant = Grant(str(restart.action), restart.boot_id, JOURNALLED)
    if spec.mode == Mode.OBSERVE:
        grant.state, grant.reason = REFUSED, "mode observe changes nothing on the node"
    elif restart.boot_id != boot:
        grant.state, grant.reason = REFUSED, f"it may end boot {restart.boot_id}, and this is {boot}"
    else:
        fresh = confirm()
        if fresh is None or fresh.spec.node_uid != spec.node_uid or fresh.spec.restart != restart:
            return
        grant.run = services.run_of(node.host, "kubelet")
        if why := _is_over(restart, fresh.date):
            grant.state, grant.reason = REFUSED, why
    node.journal.remember_grant(restart.id, grant, boot)
    node.journal.save()
    if grant.state == REFUSED:
        return
    announce()
    if not 0 <= clock() - confirmed_at <= CONFIRMED_SECONDS:
        grant.state, grant.reason = REFUSED, "too much time went by after it was confirmed; it needs a new grant"
        node.journal.save()
        return
    if why := _prepared(node, spec, restart):
        grant.state, grant.reason = REFUSED, why
        node.journal.save()
        return
    ran = node.host.run(COMMANDS[RestartAction(restart.action)])
    if restart.action == RestartAction.REBOOT and not ran.is_known:
        return  # a node that goes down ends `systemctl reboot`, too: the next boot shows whether it did
    if ran.code:
        if node.journal.content.managers is None or manager_trial.withdraw(node):
            grant.state, grant.reason = REFUSED, f"the command answered {ran.code}: {ran.output}"
        boot_loader.disarm(node.host, node.journal.content)
    elif restart.action in ENDS:
        _restarted(node, grant)
    node.journal.save()


def _prepared(node: Node, spec: Spec, restart: RestartGrant) -> str:
    """Prepare what the restart brings; return why it cannot, with nothing left of it. Raises OSError (journal)."""
    content = node.journal.content
    try:
        if manager_trial.due(node, spec) and (why := manager_trial.begin(node, spec, restart.id)):
            return why
    except (OSError, WriteRefused) as error:
        manager_trial.withdraw(node)
        return f"the change of the kubelet's resource managers cannot be prepared: {error}"
    if restart.action == RestartAction.REBOOT and (why := boot_loader.arm(node.host, node.journal)):
        boot_loader.disarm(node.host, content)
        if content.managers is not None:
            manager_trial.withdraw(node)
        return why
    return ""


def _is_over(grant: RestartGrant, date: float | None) -> str:
    """Return the reason why the grant has expired, or why that is unknown; empty while it may be carried out."""
    if not grant.expires:
        return "it names no end: upgrade the control plane, and apply its deploy/setpoint.yaml to the cluster"
    until = instants.parsed(grant.expires)
    if until is None:
        return f"its end {grant.expires} is no time"
    if date is None:
        return "the API server's answer has no Date to hold its end against"
    if until - date > LONGEST_GRANT_SECONDS:
        return f"its end {grant.expires} is more than {LONGEST_GRANT_SECONDS // 3600} hours away"
    return "" if date < until else f"its time was over at {grant.expires}, by the API server's clock"


def _restarted(node: Node, grant: Grant) -> None:
    """Settle the grant and its keys, but for a change of the kubelet's resource managers, which its trial settles."""
    if node.journal.content.managers is None:
        grant.state = DONE
    pending, ends = node.journal.content.pending, ENDS[RestartAction(grant.action)]
    for key in [key for key, wait in pending.items() if wait.action in ends and not manager_trial.is_manager(key)]:
        del pending[key]


def _named(grant: Grant) -> str:
    return "the kubelet" if grant.action == RestartAction.KUBELET else "containerd and the kubelet"


def report(node: Node, spec: Spec) -> RestartReport | None:
    """Return the report on the grant in the spec; None if the host has not seen it."""
    grant = node.journal.content.grants.get(spec.restart.id) if spec.restart else None
    return RestartReport(spec.restart.id, grant.state, grant.reason) if grant and spec.restart else None
