"""A change of the kubelet's resource managers on trial: kept when the kubelet came up with it, else undone by systemd.

The kubelet must be down while its drop-in changes and the managers' state files are moved aside, and a node whose
kubelet stays down is lost: not even the agent's own pod would be started again. So the agent stops nothing. It prepares
files and a script that systemd runs before each start of the kubelet (ExecStartPre), and then asks for one restart:

- The first start moves the state files aside and brings the new drop-in.
- Any further start, before the agent has seen the new kubelet's own state files, is that of a kubelet that did not come
  up: it brings the old drop-in and the old state files back.

Also where the agent, the script or the machine is killed, the next start of the kubelet continues from the files. Each
state between two of the script's lines is one that a kubelet starts in: without a state file it makes a new one.

As long as Setpoint sets one of these keys, the script stays and removes the state files at the first start of a boot:
nothing runs then that they could tell of, and a kubelet with the Static memory manager would not start if the kernel
counts another byte of memory than in the boot before (kubernetes/kubernetes#131253). OpenShift removes both at every
start (openshift/machine-config-operator#2718).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace

from agent import services
from agent.host import Command
from agent.journal import Grant, JournalEntry, KeyOutcome, ManagerTrial
from agent.kinds import kubelet, kubelet_files
from agent.kinds.base import WriteRefused
from agent.kinds.kubelet_managers import STATE_FOLDER, KubeletManager, own_keys
from agent.node import Node
from agent.trial_files import APPLY, AT, BOOT, DROP_IN, FAILED, NEW, OLD, SCRIPT, STATES, TRIED, UNIT, UNIT_TEXT, script
from contract import keys
from contract.keys import KeyKind
from contract.nodetuning import SettingStatus, Spec
from contract.resource_managers import CPU_POLICY

LONGEST_WAIT_SECONDS = 900.0
"""How long what is prepared waits for its restart: as long as a node may take to go down."""
TRIAL_SECONDS = 180.0
"""How long a kubelet that runs may take to write its state files: it waits for the container runtime and the API
server first. A judgment."""


def is_manager(key: str) -> bool:
    """Return whether a key of the journal is a resource manager's; one that only a newer agent knows is none."""
    try:
        return keys.kind_of(key) is KeyKind.KUBELET_MANAGER
    except keys.BadKey:
        return False


def target(node: Node, spec: Spec) -> dict[str, str]:
    """Return the keys that Setpoint's drop-in should have: those that it has, changed where this spec names them.

    What an earlier spec noted and no restart brought is left out: no node was drained for it now.
    """
    entries, out = node.journal.content.entries, _handler(node).own_keys(node.host)
    for key in [*(wanted.key for wanted in spec.settings), *(restore.key for restore in spec.restore)]:
        if keys.is_allowed(key) and is_manager(key):
            entry = entries.get(key)
            out.pop(key, None)
            if entry and entry.done and entry.written is not None:
                out[key] = entry.written
    return out


def due(node: Node, spec: Spec) -> bool:
    """Return whether a restart now has to bring a change of the managers."""
    if kubelet.folder_of(node.host) not in kubelet.FOLDERS or node.journal.content.managers:
        return False
    return target(node, spec) != _handler(node).own_keys(node.host)


def _handler(node: Node) -> KubeletManager:
    handler = node.handler(CPU_POLICY)
    assert isinstance(handler, KubeletManager)
    return handler


def begin(node: Node, spec: Spec, grant: str) -> str:
    """Prepare the change for the next start of the kubelet. Returns why not, or nothing. Raises OSError.

    The last file is the one that counts: until then a start of the kubelet is like any other.
    """
    host, content, wanted = node.host, node.journal.content, target(node, spec)
    if why := _handler(node).unstartable(host, wanted):
        return why
    folder = kubelet.folder_of(host)
    run, uptime = services.run_of(host, "kubelet"), services.uptime(host) or 0.0
    content.managers = ManagerTrial(grant, host.boot_id(), run, uptime, folder, wanted)
    node.journal.save()
    for path in (APPLY, TRIED, FAILED, *(f"{AT}.{name}" for name in STATES)):
        _remove(node, path)
    # An earlier change's script keeps the boot that it saw last; a first one has seen this boot.
    if host.read_text(BOOT) is None:
        host.persist(BOOT, f"{host.boot_id()}\n")
    host.persist(OLD, host.read_text(f"{folder}/{DROP_IN}") or "")
    host.persist(NEW, kubelet_files.rendered(wanted) or "")
    host.persist(SCRIPT, script(folder))
    host.persist(UNIT, UNIT_TEXT)
    ran = host.run(Command.RELOAD_UNITS)
    if ran.code:
        withdraw(node)
        return f"systemctl daemon-reload answered {ran.code}: {ran.output}"
    host.persist(APPLY, "")
    return ""


def withdraw(node: Node) -> bool:
    """Take back what no start of the kubelet has carried out; False where one has. Raises OSError."""
    if node.host.read_text(TRIED) is not None or node.host.read_text(FAILED) is not None:
        return False
    _remove(node, APPLY)
    node.journal.content.managers = None
    node.journal.save()
    _clear(node)
    return True


def is_under_way(node: Node, grant: str) -> bool:
    """Return whether this grant's restart is one whose end only the trial tells."""
    trial = node.journal.content.managers
    return trial is not None and trial.grant == grant and node.host.read_text(APPLY) is None


def look(node: Node) -> None:
    """Keep the change when the kubelet has come up with it; note that it was put back when it has not. Raises OSError.

    Costs nothing while no change is on trial.
    """
    trial, host = node.journal.content.managers, node.host
    if trial is None:
        return
    if host.read_text(APPLY) is not None:
        if _ignored(node, trial):
            _end(
                node, trial, "systemd started the kubelet without Setpoint's ExecStartPre, which another drop-in resets"
            )
        elif _is_given_up(node, trial):
            withdraw(node)
    elif host.read_text(TRIED) is not None:
        if _has_come_up(node, trial):
            _remove(node, TRIED)
            _end(node, trial, "")
        elif _is_late(node, trial):
            host.run(Command.RESTART_KUBELET)  # one more start: the script puts everything back
    elif host.read_text(FAILED) is not None:
        _end(node, trial, "the kubelet did not come up with it, and has its old configuration and state files again")
    elif (host.read_text(f"{trial.folder}/{DROP_IN}") or "") == (kubelet_files.rendered(trial.keys) or ""):
        _end(node, trial, "")  # the agent was killed between removing the mark and saying so
    else:
        withdraw(node)


def _ignored(node: Node, trial: ManagerTrial) -> bool:
    run = services.run_of(node.host, "kubelet")
    return bool(run) and (node.host.boot_id(), run) != (trial.boot_id, trial.run)


def _is_given_up(node: Node, trial: ManagerTrial) -> bool:
    """Return whether no restart is coming any more that would begin the trial."""
    grant, now = node.journal.content.grants.get(trial.grant), services.uptime(node.host)
    return grant is None or grant.state == "Refused" or now is None or now - trial.began >= LONGEST_WAIT_SECONDS


def _has_come_up(node: Node, trial: ManagerTrial) -> bool:
    """Return whether a kubelet runs that has what is wanted and has made its own state files, which name its policies.

    It makes them only when all managers have started (pkg/kubelet/cm/container_manager_linux.go, Start).
    """
    if not services.run_of(node.host, "kubelet"):
        return False
    if any(node.answer(key) != value for key, value in trial.keys.items()):
        return False
    for name, policy in STATES.items():
        text = node.host.read_text(f"{STATE_FOLDER}/{name}")
        if text is None and node.host.read_text(f"{AT}.{name}") is None and name != "cpu_manager_state":
            continue  # a kubelet that never had it
        if _policy(text) != node.answer(policy):
            return False
    return True


def _policy(text: str | None) -> str:
    try:
        state = json.loads(text or "")
    except (ValueError, RecursionError):
        return ""
    return str(state.get("policyName", "")) if isinstance(state, Mapping) else ""


def _is_late(node: Node, trial: ManagerTrial) -> bool:
    run = services.run_of(node.host, "kubelet")
    since = services.age(node.host, run) if run else None
    if since is None:
        now = services.uptime(node.host)
        began = trial.began if trial.boot_id == node.host.boot_id() else 0.0
        since = None if now is None else now - began
    return since is not None and since >= TRIAL_SECONDS


def _end(node: Node, trial: ManagerTrial, why: str) -> None:
    """Settle the grant and the keys: kept if there is no `why`, else as before. The journal first, then the files."""
    content = node.journal.content
    grant = content.grants.setdefault(trial.grant, Grant("kubelet", trial.boot_id, ""))
    grant.state, grant.reason = ("Refused", why) if why else ("Done", "")
    if why:
        _forget_change(node, trial, why)
    for key in [key for key in content.pending if is_manager(key)]:
        entry = content.entries.get(key)
        if why or (entry.written if entry else None) == trial.keys.get(key):
            del content.pending[key]
    content.managers = None
    node.journal.save()
    _clear(node)


def _forget_change(node: Node, trial: ManagerTrial, why: str) -> None:
    """Let the journal say of each key what Setpoint's drop-in says again, and fail what was asked."""
    content = node.journal.content
    there = own_keys(node.host.read_text(f"{trial.folder}/{DROP_IN}"))
    unsettled = (SettingStatus.PENDING_RESTART, SettingStatus.RESTORED)
    for key, outcome in content.attempt.outcomes.items():
        if key in content.pending and is_manager(key) and outcome.state in unsettled:
            content.attempt.outcomes[key] = replace(outcome, state=SettingStatus.FAILED, reason=why, note="")
    for key, value in there.items():
        outcome = content.attempt.outcomes.get(key, KeyOutcome(""))
        entry = content.entries.setdefault(key, JournalEntry(outcome.original))
        entry.written = entry.answered = value
        entry.done, entry.before = True, None
    for key in [key for key in content.entries if is_manager(key) and key not in there]:
        del content.entries[key]


def tidy(node: Node) -> None:
    """Remove what an agent that was killed left: of a trial that had ended, or of one whose restart it never gave.

    To be called when an agent starts. A reboot that comes after all finds the kubelet as it was. Raises OSError.
    """
    trial = node.journal.content.managers
    if trial is None:
        with contextlib.suppress(OSError, WriteRefused):  # they do nothing, and the next trial removes them, too
            _clear(node)
    elif (trial.boot_id, trial.run) == (node.host.boot_id(), services.run_of(node.host, "kubelet")):
        withdraw(node)


def _clear(node: Node) -> None:
    """Remove what the trial needed; the script stays while Setpoint sets a key. Raises OSError."""
    for path in (NEW, OLD, APPLY, TRIED, FAILED, *(f"{AT}.{name}" for name in STATES)):
        _remove(node, path)
    if any(node.host.read_text(f"{folder}/{DROP_IN}") is not None for folder in kubelet.FOLDERS):
        return
    is_known = node.host.read_text(UNIT) is not None
    for path in (UNIT, SCRIPT, BOOT):
        _remove(node, path)
    if is_known:
        node.host.run(Command.RELOAD_UNITS)


def _remove(node: Node, path: str) -> None:
    if node.host.read_text(path) is not None:
        node.host.persist(path, None)
