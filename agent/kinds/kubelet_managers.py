"""The kubelet's resource managers: a drop-in of its own, which comes with a restart that moves their state files aside.

Each manager keeps its assignments in a file and refuses to start when that disagrees with its configuration or with
the machine. So what is wanted is only noted here; `agent.manager_trial` brings file and state together, at the granted
restart.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent import services
from agent.host import Host
from agent.kinds import kubelet_files
from agent.kinds.base import AtStart, EffectiveValue, Unsupported, WriteRefused
from agent.kinds.kubelet import Kubelet, folder_of
from agent.kinds.kubelet_files import Managers, Start, Unreadable, files, top_level
from agent.trial_files import DROP_IN
from contract import resource_managers
from contract.nodetuning import RestartAction
from contract.resource_managers import CPU_POLICY, CPUS, FLAGS, MEMORY_POLICY, NODES, ONLINE, OPTION, NodeFacts

STATE_FOLDER = "/var/lib/kubelet"
PLACES = {ONLINE: "/sys/devices/system/cpu/online", NODES: "/sys/devices/system/node/online"}
RESTARTED = ("always", "on-failure")
"""Values of a unit's Restart= with which systemd starts a kubelet again that did not come up."""
PROGRAMS = ("systemctl", "sh", "mv", "rm", "cat", "sleep")
"""What the restart runs on the node."""
_BETA_GATE = "CPUManagerPolicyBetaOptions"


class KubeletManager(AtStart):
    restart = RestartAction.KUBELET

    def __init__(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet

    def read(self, host: Host, key: str) -> EffectiveValue:
        return self._kubelet.read(host, key)

    def check(self, host: Host, key: str, value: str) -> None:
        field = key.removeprefix("kubelet.").partition(".")[0]
        start = self._kubelet.check_place(host, key, FLAGS[key][0], field)
        if why := self._kubelet.managers_unknown:
            raise Unsupported(f"what the kubelet's resource managers run with is not known: {why}")
        if start.flags.get("root-dir", STATE_FOLDER).rstrip("/") != STATE_FOLDER:
            raise Unsupported(f"unsupported here: the kubelet's --root-dir is not {STATE_FOLDER}")
        if missing := [program for program in PROGRAMS if not host.has(program)]:
            raise Unsupported(f"unsupported here: the host has no {missing[0]}")
        if services.unit_file(host, "kubelet") is None:
            raise Unsupported("unsupported here: no kubelet.service runs the kubelet")
        restart = [value for _, value in services.assignments(host, "kubelet", "Restart")][-1:]
        if restart[:1] not in ([word] for word in RESTARTED):
            raise Unsupported(
                "unsupported here: kubelet.service has no Restart=always, so a kubelet that did not come up with the "
                "change would not be put back"
            )
        if key == CPUS and (name := _reserved_group(host, start)):
            raise WriteRefused(f"the kubelet does not start with reservedSystemCPUs and {name}, which is set")

    def own_keys(self, host: Host) -> dict[str, str]:
        """Return what Setpoint's drop-in says, in the directory that the running kubelet reads."""
        return own_keys(host.read_text(f"{folder_of(host)}/{DROP_IN}"))

    def unstartable(self, host: Host, values: Mapping[str, str]) -> str:
        """Return why this node's kubelet would not start with these keys as Setpoint's own; empty when it would.

        Judged by the files that are there now, for they are what it would read.
        """
        loaded = self._kubelet.look(host)
        if not loaded.run or self._kubelet.managers_unknown:
            return ""  # nothing is written then, which `check` says better
        for key, value in values.items():
            if why := resource_managers.bad_value(key, value):
                return f"{key} {value!r}: it {why}"
        start = Start.of(services.command_line(host, loaded.run))
        own = f"{start.folder}/{DROP_IN}"
        layers = [(path, text) for path, text in files(host, start) if path != own]
        try:
            merged = kubelet_files.managers([*layers, (own, kubelet_files.rendered(values) or "{}")], start)
        except Unreadable as error:
            return f"what the kubelet would start with is not known: {error}"
        return _unknown(merged) or resource_managers.unstartable(merged.given(), facts(host, merged))[1]


def own_keys(text: str | None) -> dict[str, str]:
    """Return value by key of Setpoint's own drop-in; none where there is none, or not as Setpoint writes it."""
    try:
        given = kubelet_files.managers([("", text or "{}")], Start("", "", {})).given()
    except Unreadable:
        return {}
    return {key: value for key, value in given.items() if key in FLAGS}


def _unknown(merged: Managers) -> str:
    """Return what would have to be known to judge this configuration, and is not."""
    given = merged.given()
    if given.get(CPU_POLICY) == "static" and CPUS not in given and merged.reserved_cpu() is None:
        return f"how many CPUs the kubelet reserves is not known: set {CPUS}"
    if given.get(MEMORY_POLICY) == "Static" and merged.reserved_memory() is None:
        return "how much memory the kubelet reserves is not known: its evictionHard must say memory.available in bytes"
    is_off = merged.maps.get("featureGates", {}).get(_BETA_GATE) == "false"
    beta = [name for name, since in resource_managers.OPTIONS.items() if since > 32 and OPTION + name in given]
    return f"the kubelet's feature gate {_BETA_GATE} is off, and {beta[0]} needs it" if is_off and beta else ""


def facts(host: Host, merged: Managers) -> NodeFacts:
    cpus, nodes = (resource_managers.cpu_list((host.read_text(PLACES[key]) or "").strip()) for key in (ONLINE, NODES))
    return NodeFacts(cpus, nodes, merged.reserved_cpu(), merged.reserved_memory())


def _reserved_group(host: Host, start: Start) -> str:
    """Return the field with which no reservedSystemCPUs is permitted; empty when none is set."""
    for name, flag in (
        ("systemReservedCgroup", "system-reserved-cgroup"),
        ("kubeReservedCgroup", "kube-reserved-cgroup"),
    ):
        in_files = any(
            n == name and value != "" for path, text in files(host, start) for n, value in top_level(path, text)
        )
        if in_files or start.flags.get(flag):
            return name
    return ""
