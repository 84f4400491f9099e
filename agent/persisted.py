"""Files that make what was written survive a boot. All are Setpoint's own, rendered whole from the journal.

Names: files of sysctl.d are read in the order of their names, the last one winning. `99-zz-setpoint.conf` comes after
the distributions' `99-sysctl.conf`, and before Cilium's `99-zzz-override_cilium.conf`: the network plugin keeps the
last word on its own keys. The boot loader's files are in agent/boot_loader.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from agent import boot_loader
from agent.gate import Gate
from agent.host import Command
from agent.journal import Journal, JournalEntry
from agent.kinds import kubelet, service_limits
from agent.kinds.base import WriteRefused
from contract.keys import KeyKind, kind_of
from contract.kubelet import SERVICE_LIMITS

SYSCTL = "/etc/sysctl.d/99-zz-setpoint.conf"
MODULES = "/etc/modules-load.d/setpoint.conf"
MODULE_OPTIONS = "/etc/modprobe.d/setpoint.conf"
TMPFILES = "/etc/tmpfiles.d/setpoint.conf"

HEADER = "# Written by the Setpoint agent; changes here are overwritten.\n"

Lines = list[str]


def _written(entries: Mapping[str, JournalEntry], *kinds: KeyKind) -> Iterable[tuple[str, str]]:
    for key in sorted(entries):
        entry = entries[key]
        if entry.done and entry.written is not None and kind_of(key) in kinds:
            yield key, entry.written


def _sysctl(entries: Mapping[str, JournalEntry]) -> Lines:
    return [f"{key} = {value}" for key, value in _written(entries, KeyKind.SYSCTL)]


def _modules(entries: Mapping[str, JournalEntry]) -> Lines:
    return [key.partition(".")[2] for key, _ in _written(entries, KeyKind.MODULE)]


def _module_options(entries: Mapping[str, JournalEntry]) -> Lines:
    """List the options of modules that load after boot; the line in tmpfiles.d is for those that are built in."""
    options = []
    for key, value in _written(entries, KeyKind.MODULE_PARAMETER):
        _, module, parameter = key.split(".")
        options.append(f"options {module} {parameter}={value}")
    return options


def _tmpfiles(entries: Mapping[str, JournalEntry]) -> Lines:
    """systemd-tmpfiles writes these early in the boot, before the kubelet counts huge pages."""
    kinds = (
        KeyKind.HUGEPAGES, KeyKind.THP, KeyKind.GOVERNOR, KeyKind.CPU_LATENCY, KeyKind.BLOCK, KeyKind.MODULE_PARAMETER,
    )  # fmt: skip
    return [f"w {_pattern(key)} - - - - {value}" for key, value in _written(entries, *kinds)]


def _pattern(key: str) -> str:
    parts = key.split(".")
    match kind_of(key):
        case KeyKind.HUGEPAGES:
            size = {"2Mi": "hugepages-2048kB", "1Gi": "hugepages-1048576kB"}[parts[0].removeprefix("hugepages-")]
            where = "kernel/mm" if len(parts) == 1 else f"devices/system/node/{parts[1]}"
            return f"/sys/{where}/hugepages/{size}/nr_hugepages"
        case KeyKind.THP:
            return f"/sys/kernel/mm/transparent_hugepage/{parts[1]}"
        case KeyKind.GOVERNOR:
            return "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor"
        case KeyKind.CPU_LATENCY:
            return "/sys/devices/system/cpu/cpu[0-9]*/power/pm_qos_resume_latency_us"
        case KeyKind.BLOCK:
            disks = {"nvme": "nvme*n*"}.get(parts[1], f"{parts[1]}*")
            return f"/sys/block/{disks}/queue/{parts[2]}"
        case _:
            return f"/sys/module/{parts[1]}/parameters/{parts[2]}"


def _unit(service: str) -> Callable[[Mapping[str, JournalEntry]], Lines]:
    """Return what renders the drop-in of a service's unit."""

    def render(entries: Mapping[str, JournalEntry]) -> Lines:
        limits = [
            f"{key.partition('.')[2]}={value}"
            for key, value in _written(entries, KeyKind.SERVICE_LIMIT)
            if SERVICE_LIMITS[key][0] == service
        ]
        return ["[Service]", *limits] if limits else []

    return render


UNITS: Mapping[str, Callable[[Mapping[str, JournalEntry]], Lines]] = {
    service_limits.drop_in(service): _unit(service) for service in ("containerd", "kubelet")
}
FILES: Mapping[str, Callable[[Mapping[str, JournalEntry]], Lines]] = {
    SYSCTL: _sysctl,
    MODULES: _modules,
    MODULE_OPTIONS: _module_options,
    TMPFILES: _tmpfiles,
}


def sync(host: Gate, journal: Journal) -> None:
    """Bring the files to what the journal says was written. Raises OSError, WriteRefused (a command failed).

    What may not be written to the kernel is not left to the next boot either.
    """
    known = journal.content.entries.items()
    entries = {key: entry for key, entry in known if entry.written is None or not host.refusal(key, entry.written)}
    _replace(host, {path: render(entries) for path, render in FILES.items()})
    _replace(host, _kubelet(host, entries))
    _sync_units(host, journal, {path: render(entries) for path, render in UNITS.items()})
    boot_loader.sync(host, journal)


def _replace(host: Gate, files: Mapping[str, Lines]) -> None:
    for path, lines in files.items():
        if host.read_text(path) != (text := _text(lines)):
            host.persist(path, text)


def _text(lines: Lines) -> str | None:
    return HEADER + "\n".join(lines) + "\n" if lines else None


def _kubelet(host: Gate, entries: Mapping[str, JournalEntry]) -> dict[str, Lines]:
    """Return the drop-in in the directory that the kubelet reads; where none runs to say which, it stays as it is."""
    fields = [f"{key.partition('.')[2]}: {value}" for key, value in _written(entries, KeyKind.KUBELET)]
    folder = kubelet.folder_of(host) if fields else ""
    if fields and not folder:
        return {}
    head = ["apiVersion: kubelet.config.k8s.io/v1beta1", "kind: KubeletConfiguration"]
    return {f"{of}/{kubelet.DROP_IN}": [*head, *fields] if fields and of == folder else [] for of in kubelet.FOLDERS}


def _sync_units(host: Gate, journal: Journal, files: Mapping[str, Lines]) -> None:
    """systemd reads units only when told to; a reload that did not happen is made up for at the next look."""
    content = journal.content
    if any(host.read_text(path) != _text(lines) for path, lines in files.items()):
        content.units_stale = True
        journal.save()
        _replace(host, files)
    if content.units_stale:
        ran = host.run(Command.RELOAD_UNITS)
        if ran.code:
            raise WriteRefused(f"systemctl daemon-reload answered {ran.code}: {ran.output}")
        content.units_stale = False
