"""Settings that are only observed, for now: a limit of the running containerd, what the kubelet reserves, CPUs and NUMA
nodes, whether a boot that fails falls back, and the node's local disks."""

from __future__ import annotations

from agent import services
from agent.disks import Disks
from agent.host import Host
from agent.kinds import cpu_isolation
from agent.kinds.base import EffectiveValue, Handler, WriteRefused
from agent.kinds.cmdline import can_fall_back
from agent.kinds.kubelet import Kubelet
from agent.kinds.kubelet_managers import PLACES
from contract import disks
from contract.isolation import SIBLINGS
from contract.key_lists import BOOT_FALLBACK

LIMITS = {"containerd.LimitSTACK": "Max stack size"}


class ReadOnly(Handler):
    def __init__(self, kubelet: Kubelet, running: services.Running, looks: Disks) -> None:
        self._kubelet, self._running = kubelet, running
        self._fallback: str | None = None
        self._disks = looks
        self._siblings: str | None = None

    def read(self, host: Host, key: str) -> EffectiveValue:
        if name := LIMITS.get(key):
            run = self._running.find(host, "containerd")
            return EffectiveValue(services.limit(host, run, name) if run else None)
        if key in disks.KEYS:
            disk = self._disks.read(host, key.partition(".")[2])
            return EffectiveValue(disk.to_text() if disk else None)
        if path := PLACES.get(key):
            return EffectiveValue((host.read_text(path) or "").strip() or None)
        if key == BOOT_FALLBACK:
            self._fallback = self._fallback or {True: "grub", False: "none", None: None}[can_fall_back(host)]
            return EffectiveValue(self._fallback)
        if key == SIBLINGS:  # hundreds of files that no change of a setting touches
            self._siblings = self._siblings or cpu_isolation.siblings(host)
            return EffectiveValue(self._siblings)
        return self._kubelet.read(host, key)

    def write(self, host: Host, key: str, operator: str, value: str) -> None:
        raise WriteRefused("it is only observed")

    def put_back(self, host: Host, key: str, original: EffectiveValue) -> None:
        raise WriteRefused("it is only observed")
