"""Fields of the kubelet's configuration: a drop-in of Setpoint's own, effective when the kubelet restarts.

The kubelet reads its files once, when it starts, and merges the drop-ins of `--config-dir` over `--config` in the order
of their names; its flags win over all (Kubernetes, "Kubelet Configuration Directory Merging"). So what it runs with is
what its files say if all of them are older than the process. That is read once per run and remembered in the journal;
a file that changes later changes nothing until the next start. The kubelet's own /configz would say the same, but to
ask it needs the right `nodes/proxy` before Kubernetes 1.33, and with that commands can be run in every pod.
"""

from __future__ import annotations

import hashlib
import re

from agent import services, trial_files
from agent.host import Host
from agent.journal import LoadedConfig
from agent.kinds import kubelet_files
from agent.kinds.base import AtStart, EffectiveValue, Unsupported, WriteRefused
from agent.kinds.kubelet_files import Start, Unreadable, files, place, top_level
from contract.kubelet import FIELDS
from contract.nodetuning import MAX_VALUE, RestartAction
from contract.resource_managers import RESERVED

FOLDERS = (
    "/etc/kubernetes/kubelet.conf.d",  # Kubernetes, "Set Kubelet Parameters Via A Configuration File"
    "/etc/kubernetes/kubelet/config.json.d",  # Amazon EKS, nodeadm
    "/etc/openshift/kubelet.conf.d",  # OpenShift, on workers
)
"""Directories in which the agent writes its drop-in: those of the distributions that name one below /etc."""
DROP_IN = "99-zz-setpoint.conf"
PODS = "/var/lib/kubelet/pods/*"
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}")


class Kubelet(AtStart):
    restart = RestartAction.KUBELET

    def __init__(self, loaded: LoadedConfig, running: services.Running) -> None:
        self._loaded, self._running = loaded, running

    def read(self, host: Host, key: str) -> EffectiveValue:
        return EffectiveValue(self.look(host).values.get(key))

    def look(self, host: Host) -> LoadedConfig:
        loaded, boot = self._loaded, host.boot_id()
        run = self._running.find(host, "kubelet", loaded.run)
        is_older = bool(loaded.values) and RESERVED not in loaded.values and not loaded.managers_unknown
        if (boot, run) != (loaded.boot_id, loaded.run) or is_older:
            values: dict[str, str] = {}
            digests: dict[str, str] = {}
            unknown = of_managers = ""
            try:
                values, digests = _loaded_by(host, run)
                try:
                    values |= _managers_of(host, run)
                except Unreadable as error:
                    of_managers = str(error)
            except Unreadable as error:
                unknown = str(error)
            # Only now: an OSError above says nothing about this run, and the next look reads it again.
            loaded.boot_id, loaded.run, loaded.values, loaded.unknown, loaded.files = (
                boot,
                run,
                values,
                unknown,
                digests,
            )
            loaded.managers_unknown = of_managers
        return loaded

    def check(self, host: Host, key: str, value: str) -> None:
        self.check_place(host, key, FIELDS[key][0], key.partition(".")[2])
        pods = len(host.glob(PODS))
        if key == "kubelet.maxPods" and pods > int(value):
            raise WriteRefused(f"the node holds {pods} pods, and a kubelet rejects those beyond {value} when it starts")

    def check_place(self, host: Host, key: str, flag: str, field: str) -> Start:
        """Return how the kubelet was started. Raises Unsupported, WriteRefused where it would not take a drop-in."""
        loaded = self.look(host)
        if not loaded.run:
            raise Unsupported("unsupported here: systemd runs no kubelet")
        if loaded.unknown:
            raise Unsupported(f"what the kubelet runs with is not known: {loaded.unknown}")
        start = Start.of(services.command_line(host, loaded.run))
        if flag in start.flags:
            raise Unsupported(f"unsupported here: the kubelet's flag --{flag} sets it, and wins over any file")
        if not start.folder:
            raise Unsupported(
                f"unsupported here: the kubelet has no --config-dir; add --config-dir={FOLDERS[0]} to its flags, which "
                "Kubernetes 1.30 and newer have, and make that directory"
            )
        if start.folder not in FOLDERS:
            raise Unsupported(
                f"unsupported here: the kubelet's --config-dir is {start.folder}, and Setpoint writes to "
                f"{', '.join(FOLDERS)} only"
            )
        self._check_files(host, field, start)
        return start

    @property
    def managers_unknown(self) -> str:
        """Return why the resource managers' configuration is not known, as half a sentence; empty when it is."""
        return self._loaded.unknown or self._loaded.managers_unknown

    def _check_files(self, host: Host, name: str, start: Start) -> None:
        """Raises WriteRefused where a restart would bring more than Setpoint's change, or not bring it."""
        own = f"{start.folder}/{DROP_IN}"
        there = dict(files(host, start))
        digests = {path: _digest(text) for path, text in there.items() if path not in _own(start)}
        for path in sorted({*digests, *self._loaded.files}):
            if digests.get(path) != self._loaded.files.get(path):
                raise WriteRefused(
                    f"{path} was changed since the kubelet started, and a restart would bring that change, too; "
                    "restart the kubelet first, or undo it"
                )
        for path, text in there.items():
            is_later = path not in (start.config, *_own(start)) and place(path) > place(own)
            if is_later and any(name == field for field, _ in top_level(path, text)):
                raise WriteRefused(f"{path} sets it, too, and the kubelet reads that after Setpoint's {DROP_IN}")


def folder_of(host: Host) -> str:
    """Return the running kubelet's --config-dir; empty if it has none, or if none runs."""
    run = services.run_of(host, "kubelet")
    return Start.of(services.command_line(host, run)).folder if run else ""


def _own(start: Start) -> tuple[str, str]:
    return f"{start.folder}/{DROP_IN}", f"{start.folder}/{trial_files.DROP_IN}"


def _loaded_by(host: Host, run: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return value by key, and the digests of the files that they are from. Raises Unreadable."""
    if not run:
        return {}, {}
    start = Start.of(services.command_line(host, run))
    there = dict(files(host, start))
    if start.config not in there and start.config:
        raise Unreadable(f"{start.config} cannot be read")
    ages = {path: host.age(path) for path in [*there, *([start.folder] if start.folder else [])]}
    began = services.age(host, run)  # after theirs: what takes time here makes a file look newer, never older
    if began is None:
        raise Unreadable("the kernel does not say when it started")
    for path, age in ages.items():
        if age is None or age < began:
            raise Unreadable(f"{path} was changed after it started; restart the kubelet once")
    values = {key: default for key, (_, default) in FIELDS.items()}
    for path, text in there.items():
        for name, value in _fields(path, text).items():
            values[f"kubelet.{name}"] = value
    for key, (flag, default) in FIELDS.items():
        values[key] = _as_kubelet_has_it(key, start.flags.get(flag, values[key]), default)
    return values, {path: _digest(text) for path, text in there.items() if path not in _own(start)}


def _managers_of(host: Host, run: str) -> dict[str, str]:
    """Return value by key of the resource managers, and what the kubelet reserves. Raises Unreadable."""
    if not run:
        return {}
    start = Start.of(services.command_line(host, run))
    merged = kubelet_files.managers(files(host, start), start)
    values = merged.reported() | {RESERVED: merged.reserved()}
    return {key: value[:MAX_VALUE] for key, value in values.items()}


def _as_kubelet_has_it(key: str, value: str, default: str) -> str:
    """Return a value as SetDefaults_KubeletConfiguration leaves it."""
    is_unset = (key == "kubelet.maxPods" and value == "0") or (key == "kubelet.podPidsLimit" and value.startswith("-"))
    return default if is_unset else value[:MAX_VALUE]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _fields(path: str, text: str) -> dict[str, str]:
    """Top-level fields of a file that are known here. Raises Unreadable where one is not written as a plain value."""
    fields = {}
    for name, value in top_level(path, text):
        if f"kubelet.{name}" in FIELDS:
            if not _NUMBER.fullmatch(str(value)):
                raise Unreadable(f"{path} has a {name} that is no plain value")
            fields[name] = str(value)
    return fields
