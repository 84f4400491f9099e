"""A node with a kubelet and a containerd that systemd started: each keeps what its files said when it began."""

from __future__ import annotations

import re
from typing import Any

import yaml

from agent.host import Command
from tests.agent.kernel import Agent, Kernel

CONFIG = "/var/lib/kubelet/config.yaml"
FOLDER = "/etc/kubernetes/kubelet.conf.d"
OWN = f"{FOLDER}/99-zz-setpoint.conf"
UNIT = "/usr/lib/systemd/system/containerd.service"
CONTAINERD_DROP_IN = "/etc/systemd/system/containerd.service.d/99-zz-setpoint.conf"
KUBELET_DROP_IN = "/etc/systemd/system/kubelet.service.d/99-zz-setpoint.conf"
DEFAULTS = {
    "podPidsLimit": -1,
    "maxPods": 110,
    "imageGCHighThresholdPercent": 85,
    "imageGCLowThresholdPercent": 80,
}
"""KubeletConfiguration v1beta1's."""
LIMITS = (
    "Limit                     Soft Limit           Hard Limit           Units     \n"
    "Max locked memory         {0:<20} {0:<20} bytes     \n"
    "Max open files            {1:<20} {1:<20} files     \n"
)
UNIT_DEFAULTS = {"LimitMEMLOCK": "8388608", "LimitNOFILE": "524288"}
"""What systemd gives a service that asks for nothing; of files the hard limit, which a Go program takes for itself."""


class ServicesNode(Kernel):
    """`files` are the node's own; what Setpoint persists is in `disk`. A second goes by with each effect."""

    def __init__(self, files: dict[str, str] | None = None, flags: str = f"--config={CONFIG} --config-dir={FOLDER}"):
        super().__init__()
        self.programs |= {"systemctl", "sh", "mv", "rm", "cat", "sleep"}
        self.seconds = 1000.0
        self.changed: dict[str, float] = {}
        self.files = {
            CONFIG: "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 110\n",
            UNIT: "[Service]\nExecStart=/usr/bin/containerd\nKillMode=process\n",
            "/lib/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\n",
        } | (files or {})
        self.flags = flags
        self.units: dict[str, dict[str, str]] = {}
        self.loaded: dict[str, Any] = {}
        """What the kubelet that runs was started with, by rules of its own."""
        self._read_units()
        self.start("containerd")
        self.start("kubelet")

    # ── the port ──────────────────────────────────────────────────────────────────────────────────────────────────
    def read_text(self, path: str) -> str | None:
        if path == "/proc/uptime":
            return f"{self.seconds:.2f} 1.00\n"
        text = super().read_text(path)
        return self.files.get(path) if text is None else text

    def glob(self, pattern: str) -> list[str]:
        kept, self.live = self.live, self.live | self.files
        try:
            return super().glob(pattern)
        finally:
            self.live = kept

    def age(self, path: str) -> float | None:
        return self.seconds - self.changed.get(path, 0.0)

    def persist(self, path: str, text: str | None, *, executable: bool = False) -> None:
        super().persist(path, text, executable=executable)
        self._touch(path)

    # ── how it behaves ────────────────────────────────────────────────────────────────────────────────────────────
    def _effect(self, what: tuple[str, ...], act: Any) -> None:
        self.seconds += 1
        super()._effect(what, act)

    def _touch(self, path: str) -> None:
        self.seconds += 1
        self.changed[path] = self.changed[path.rpartition("/")[0]] = self.seconds

    def put(self, path: str, text: str | None) -> None:
        """Change a file of the node's own, as its administrator does."""
        if text is None:
            self.files.pop(path, None)
        else:
            self.files[path] = text
        self._touch(path)

    def _run(self, command: Command, *words: str) -> None:
        if command is Command.RELOAD_UNITS:
            self._read_units()
        elif command is Command.RESTART_KUBELET:
            self.start("kubelet")
        elif command is Command.RESTART_CONTAINERD:
            self.start("containerd")
            self.start("kubelet")
        else:
            super()._run(command, *words)

    def _read_units(self) -> None:
        text = {name: self.read_text(path) or "" for name, path in _DROP_INS.items()}
        self.units = {
            name: UNIT_DEFAULTS | dict(re.findall(r"(?m)^(LimitMEMLOCK|LimitNOFILE)=(.*)$", drop_in))
            for name, drop_in in text.items()
        }

    def start(self, service: str) -> None:
        self.seconds += 1
        pid = {"containerd": "811", "kubelet": "4242"}[service]
        start = int(self.seconds * 100)
        self.live[f"/proc/{pid}/comm"] = service
        self.live[f"/proc/{pid}/stat"] = f"{pid} ({service}) S 1 {'0 ' * 17}{start} 0"
        limits = (limit.replace("infinity", "unlimited") for limit in self.units[service].values())
        self.live[f"/proc/{pid}/limits"] = LIMITS.format(*limits)
        if service == "kubelet":
            self.live[f"/proc/{pid}/cmdline"] = "\0".join(["/usr/bin/kubelet", *self.flags.split()])
            self.loaded = dict(DEFAULTS)
            for path in (CONFIG, *self.glob(f"{FOLDER}/*.conf")):
                self.loaded |= yaml.safe_load(self.read_text(path) or "") or {}
        self.seconds += 1

    def reboot(self) -> None:
        super().reboot()
        self._read_units()
        self.start("containerd")
        self.start("kubelet")

    def setpoints(self) -> dict[str, str]:
        return {path: text for path, text in self.disk.items() if path.startswith("/etc")}


_DROP_INS = {"containerd": CONTAINERD_DROP_IN, "kubelet": KUBELET_DROP_IN}


def restart(agent: Agent, action: str, **more: Any) -> Any:
    """Grant a restart with the agent's last spec, and let it be carried out."""
    from dataclasses import replace

    from contract.nodetuning import RestartGrant
    from tests.agent.kernel import EXPIRES

    agent.generation += 1
    name = f"grant-{agent.generation}"
    agent.spec = replace(agent.spec, restart=RestartGrant(name, action, agent.kernel.boot_id(), EXPIRES))
    agent.again()
    return agent.core.restart(agent.confirm, lambda status: None)
