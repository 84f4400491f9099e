"""Kernel modules: loaded with modprobe, unloaded only to put an original back, and only when unused."""

from __future__ import annotations

from collections.abc import Sequence

from agent.host import Command, Host
from agent.kinds.base import EffectiveValue, Handler, Unsupported, WriteRefused
from contract import keys
from contract.key_lists import ALLOWED_MODULES
from contract.keys import KeyKind

LOADED = "loaded"


class InUse(WriteRefused):
    """The module stays until the next boot."""


def _module(key: str) -> str:
    return key.partition(".")[2]


def users_first(host: Host, names: Sequence[str]) -> list[str]:
    """Return these keys in an order in which modules can be unloaded: none before those of them that use it.

    The kernel names the modules that use one in its `holders`; keys of other kinds keep their places.
    """
    left = [key for key in names if keys.kind_of(key) is KeyKind.MODULE]
    held = {key: host.glob(f"/sys/module/{_module(key)}/holders/*") for key in left}
    users = {key: {f"module.{path.rpartition('/')[2]}" for path in paths} for key, paths in held.items()}
    ordered: list[str] = []
    while left:
        free = [key for key in left if not users[key] & set(left)] or left  # the kernel has no circles
        ordered.append(free[0])
        left.remove(free[0])
    modules = iter(ordered)
    return [next(modules) if key in users else key for key in names]


class Module(Handler):
    def __init__(self) -> None:
        self._built_in: tuple[str, frozenset[str]] = ("", frozenset())
        """Of which kernel, and what: the list is long, and changes only with the kernel."""

    def read(self, host: Host, key: str) -> EffectiveValue:
        # A built-in module without parameters has no folder here; modules.builtin says so, and check() accepts it.
        name = _module(key)
        if host.glob(f"/sys/module/{name}/initstate"):
            state = (host.read_text(f"/sys/module/{name}/initstate") or "").strip()
            return EffectiveValue(LOADED if state == "live" else None)
        return EffectiveValue(LOADED if host.glob(f"/sys/module/{name}") or self._is_built_in(host, name) else None)

    def _is_built_in(self, host: Host, name: str) -> bool:
        kernel = host.kernel()
        if self._built_in[0] != kernel:
            listing = host.read_text(f"/lib/modules/{kernel}/modules.builtin") or ""
            modules = (line.rpartition("/")[2].removesuffix(".ko").replace("-", "_") for line in listing.splitlines())
            self._built_in = (kernel, frozenset(modules) & ALLOWED_MODULES)
        return name in self._built_in[1]

    def check(self, host: Host, key: str, value: str) -> None:
        if self.read(host, key).value is None and not host.has("modprobe"):
            raise Unsupported("unsupported here: the host has no modprobe")

    def write(self, host: Host, key: str, operator: str, value: str) -> None:
        ran = host.run(Command.MODPROBE, _module(key))
        if ran.code:
            raise WriteRefused(f"modprobe answered {ran.code}: {ran.output}")

    def put_back(self, host: Host, key: str, original: EffectiveValue) -> None:
        if original.value is not None or self.read(host, key).value is None:
            return
        name = _module(key)
        users = (host.read_text(f"/sys/module/{name}/refcnt") or "").strip()
        if users != "0":
            raise InUse(f"in use ({users or 'built in'}): it stays until the next boot")
        ran = host.run(Command.UNLOAD, name)
        if ran.code:
            raise InUse(f"rmmod answered {ran.code}: {ran.output}; it stays until the next boot")
