"""The node's services that Setpoint may restart: which process runs, since when, how it was started, and its unit.

A file that such a process reads only at its start says what it runs with exactly if the file is older than it.
"""

from __future__ import annotations

from agent.host import Host

TICKS = 100
"""A second, in which /proc counts the start of a process (USER_HZ, the same on x86 and Arm)."""
UNIT_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
"""In systemd's order: the first folder that has a file of a name hides the others' (systemd.unit(5))."""


SEARCH_SECONDS = 30.0
"""How long a service that was not there is not looked for again: that takes a file of every process on the node."""


class Running:
    """Runs of the node's services as they were seen last, shared by the kinds that ask for them at every look."""

    def __init__(self) -> None:
        self._runs: dict[str, str] = {}
        self._searched: dict[str, float] = {}
        """The node's uptime at which a service was not there."""

    def find(self, host: Host, service: str, known: str = "") -> str:
        """Return the service's run as `run_of` does; empty for a while after there was none."""
        known = self._runs.get(service) or known
        now = uptime(host)
        since = self._searched.get(service)
        if not known and now is not None and since is not None and 0 <= now - since < SEARCH_SECONDS:
            return ""
        run = self._runs[service] = run_of(host, service, known)
        self._searched.pop(service, None)
        if not run and now is not None:
            self._searched[service] = now
        return run


def run_of(host: Host, service: str, known: str = "") -> str:
    """`pid:start` of the running service, empty if there is none: another value is another run.

    `known`, an earlier answer, is looked at first: it spares reading the name of every process.
    """
    if known and _run(host, service, known.partition(":")[0]) == known:
        return known
    pids = (path.split("/")[2] for path in host.glob("/proc/[0-9]*/comm"))
    return next((run for pid in pids if (run := _run(host, service, pid))), "")


def _run(host: Host, service: str, pid: str) -> str:
    """Return the pid and start of the node's service; empty for any other process.

    Only a child of the node's first process is its service: clusters may run inside of its pods.
    """
    if host.read_text(f"/proc/{pid}/comm") != f"{service}\n":
        return ""
    fields = (host.read_text(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    return f"{pid}:{fields[19]}" if len(fields) > 19 and fields[1] == "1" else ""


def uptime(host: Host) -> float | None:
    """Seconds since the node's boot; None where the kernel does not say."""
    words = (host.read_text("/proc/uptime") or "").split()
    return float(words[0]) if words else None


def age(host: Host, run: str) -> float | None:
    """Seconds since the run began; None where the kernel does not say."""
    now, start = uptime(host), run.partition(":")[2]
    return None if now is None or not start.isdecimal() else now - int(start) / TICKS


def command_line(host: Host, run: str) -> list[str]:
    return (host.read_text(f"/proc/{run.partition(':')[0]}/cmdline") or "").strip("\n").rstrip("\0").split("\0")


def limit(host: Host, run: str, name: str, *, hard: bool = False) -> str | None:
    """A limit of the running process, as systemd writes it: a unit file says what the next one would get."""
    for line in (host.read_text(f"/proc/{run.partition(':')[0]}/limits") or "").splitlines():
        if line.startswith(name):
            value = line.removeprefix(name).split()[hard]
            return "infinity" if value == "unlimited" else value
    return None


def unit_file(host: Host, service: str) -> str | None:
    """Return the path of the service's unit, None if it has none."""
    paths = (f"{folder}/{service}.service" for folder in UNIT_FOLDERS)
    return next((path for path in paths if host.read_text(path) is not None), None)


def assignments(host: Host, service: str, directive: str) -> list[tuple[str, str]]:
    """List (path, value) of each line that gives the directive to the service, in systemd's order: the last counts.

    Drop-ins follow the unit, all folders' together, by the names of the files; those of `service.d` are for every unit.
    """
    drop_ins: dict[str, str] = {}
    for of in (f"{service}.service.d", "service.d"):
        for folder in UNIT_FOLDERS:
            for path in host.glob(f"{folder}/{of}/*.conf"):
                drop_ins.setdefault(path.rpartition("/")[2], path)
    unit = unit_file(host, service)
    out = []
    for path in [*([unit] if unit else []), *(drop_ins[name] for name in sorted(drop_ins))]:
        section = ""
        for line in map(str.strip, (host.read_text(path) or "").splitlines()):
            section = line if line.startswith("[") else section
            name, equals, value = line.partition("=")
            if section == "[Service]" and equals and name.strip() == directive:
                out.append((path, value.strip()))
    return out
