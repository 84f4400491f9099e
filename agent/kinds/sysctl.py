"""Sysctls: `vm.swappiness` is /proc/sys/vm/swappiness."""

from __future__ import annotations

from agent.host import Host
from agent.kinds.base import EffectiveValue, Handler, WriteRefused
from contract.keys import canonical_value

PROC_SYS = "/proc/sys/"


class Sysctl(Handler):
    def paths(self, host: Host, key: str) -> list[str]:
        return [PROC_SYS + key.replace(".", "/")]


def put_group_back(host: Host, originals: dict[str, EffectiveValue]) -> None:
    """Put back keys of which writing one sets the others to 0. Raises OSError, Refused.

    Only the one that was in use is written: the kernel zeroes the rest, and writing their 0 would zero the one just
    put back (or is refused, as for vm.dirty_bytes).
    """
    handler = Sysctl()
    in_use = {key: was for key, was in originals.items() if was.value not in (None, "0")}
    if len(in_use) > 1:
        raise WriteRefused(f"{' and '.join(sorted(in_use))} cannot both have been set before")
    if in_use:
        [(key, original)] = in_use.items()
        handler.put_back(host, key, original)
        return
    # All were 0. Only the ratio takes a 0, and it zeroes the bytes only when its own value changes.
    ratio = next(key for key in originals if key.endswith("_ratio"))
    if any(handler.read(host, key).value != "0" for key in originals):
        host.write_text(handler.paths(host, ratio)[0], "1")
        host.write_text(handler.paths(host, ratio)[0], "0")


FOLDERS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/lib/sysctl.d")
"""In systemd-sysctl's order: the first folder that has a file of a name hides the others'."""
LAST = "/etc/sysctl.conf"
"""Read last of all by `sysctl --system`."""


def fighting_file(host: Host, key: str, wanted: str, own: str) -> str | None:
    """`path:line` of the last line, in reading order, that sets this key to another value; None if none does."""
    by_name: dict[str, str] = {}
    for folder in FOLDERS:
        for path in host.glob(f"{folder}/*.conf"):
            by_name.setdefault(path.rpartition("/")[2], path)
    place = None
    for path in [*(by_name[name] for name in sorted(by_name)), LAST]:
        if path == own:
            continue
        try:
            text = host.read_text(path) or ""
        except OSError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            name, equals, value = line.strip().lstrip("-").partition("=")
            # `net/ipv4/x` and `net.ipv4.x` are the same key to systemd and to procps.
            if equals and name.strip().replace("/", ".") == key and canonical_value(value) != wanted:
                place = f"{path}:{number}"
    return place
