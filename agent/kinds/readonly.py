"""Settings that are only observed, for now: limits of the running containerd, policies in the kubelet's configuration,
and whether a boot that fails falls back."""

from __future__ import annotations

from agent.host import Host
from agent.kinds.base import EffectiveValue, Handler, WriteRefused
from agent.kinds.cmdline import can_fall_back
from contract.key_lists import BOOT_FALLBACK

KUBELET_CONFIG = "/var/lib/kubelet/config.yaml"
LIMITS = {"containerd.LimitMEMLOCK": "Max locked memory", "containerd.LimitSTACK": "Max stack size"}


class ReadOnly(Handler):
    def __init__(self) -> None:
        self._containerd = ""
        self._fallback: str | None = None

    def read(self, host: Host, key: str) -> EffectiveValue:
        if name := LIMITS.get(key):
            return EffectiveValue(self._limit(host, name))
        if key == BOOT_FALLBACK:
            self._fallback = self._fallback or {True: "grub", False: "none", None: None}[can_fall_back(host)]
            return EffectiveValue(self._fallback)
        field = key.removeprefix("kubelet.")
        for line in (host.read_text(KUBELET_CONFIG) or "").splitlines():
            name, colon, value = line.partition(":")
            if colon and name == field:  # a top-level field: nested ones are indented
                return EffectiveValue(value.split("#")[0].strip().strip("\"'") or None)
        return EffectiveValue(None)

    def _limit(self, host: Host, name: str) -> str | None:
        """The soft limit of the running containerd: a unit file says what the next one would get."""
        for line in (self._limits_file(host) or "").splitlines():
            if line.startswith(name):
                soft = line.removeprefix(name).split()[0]
                return "infinity" if soft == "unlimited" else soft
        return None

    def _limits_file(self, host: Host) -> str | None:
        if not self._containerd or host.read_text(f"{self._containerd}/comm") != "containerd\n":
            containerd_paths = (p for p in host.glob("/proc/[0-9]*/comm") if host.read_text(p) == "containerd\n")
            self._containerd = next(containerd_paths, "").removesuffix("/comm")
        return host.read_text(f"{self._containerd}/limits") if self._containerd else None

    def write(self, host: Host, key: str, operator: str, value: str) -> None:
        raise WriteRefused("it is only observed")

    def put_back(self, host: Host, key: str, original: EffectiveValue) -> None:
        raise WriteRefused("it is only observed")
