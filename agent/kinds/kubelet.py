"""Fields of the kubelet's configuration: a drop-in of Setpoint's own, effective when the kubelet restarts.

The kubelet reads its files once, when it starts, and merges the drop-ins of `--config-dir` over `--config` in the order
of their names; its flags win over all (Kubernetes, "Kubelet Configuration Directory Merging"). So what it runs with is
what its files say if all of them are older than the process. That is read once per run and remembered in the journal;
a file that changes later changes nothing until the next start. The kubelet's own /configz would say the same, but to
ask it needs the right `nodes/proxy` before Kubernetes 1.33, and with that commands can be run in every pod.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from agent import services
from agent.host import Host
from agent.journal import LoadedConfig
from agent.kinds.base import AtStart, EffectiveValue, Unsupported, WriteRefused
from contract.kubelet import FIELDS, SHOWN
from contract.nodetuning import MAX_VALUE, RestartAction

FOLDERS = (
    "/etc/kubernetes/kubelet.conf.d",  # Kubernetes, "Set Kubelet Parameters Via A Configuration File"
    "/etc/kubernetes/kubelet/config.json.d",  # Amazon EKS, nodeadm
    "/etc/openshift/kubelet.conf.d",  # OpenShift, on workers
)
"""Directories in which the agent writes its drop-in: those of the distributions that name one below /etc."""
DROP_IN = "99-zz-setpoint.conf"
PODS = "/var/lib/kubelet/pods/*"
READS = {**FIELDS, **SHOWN}
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_WORD = re.compile(r"(?!null$)[A-Za-z][A-Za-z-]*")


class _Unreadable(Exception):
    """`str()` says what of a file of the kubelet's cannot be read here, as half a sentence."""


@dataclass(frozen=True, slots=True)
class _Start:
    """Flags of a kubelet, and where they tell it to read its configuration."""

    config: str
    folder: str
    flags: Mapping[str, str]

    @classmethod
    def of(cls, arguments: list[str]) -> _Start:
        flags: dict[str, str] = {}
        for word, following in pairwise([*arguments[1:], "--"]):
            name, equals, value = word.partition("=")
            if name.startswith("--"):  # `--max-pods=110` or `--max-pods 110`; a switch alone has no value
                flags[name[2:].replace("_", "-")] = value if equals or following.startswith("--") else following
        return cls(flags.get("config", ""), flags.get("config-dir", "").rstrip("/"), flags)


class Kubelet(AtStart):
    restart = RestartAction.KUBELET

    def __init__(self, loaded: LoadedConfig, running: services.Running) -> None:
        self._loaded, self._running = loaded, running

    def read(self, host: Host, key: str) -> EffectiveValue:
        return EffectiveValue(self._look(host).values.get(key))

    def _look(self, host: Host) -> LoadedConfig:
        loaded, boot = self._loaded, host.boot_id()
        run = self._running.find(host, "kubelet", loaded.run)
        if (boot, run) != (loaded.boot_id, loaded.run):
            values: dict[str, str] = {}
            files: dict[str, str] = {}
            unknown = ""
            try:
                values, files = _loaded_by(host, run)
            except _Unreadable as error:
                unknown = str(error)
            # Only now: an OSError above says nothing about this run, and the next look reads it again.
            loaded.boot_id, loaded.run, loaded.values, loaded.unknown, loaded.files = boot, run, values, unknown, files
        return loaded

    def check(self, host: Host, key: str, value: str) -> None:
        loaded = self._look(host)
        if not loaded.run:
            raise Unsupported("unsupported here: systemd runs no kubelet")
        if loaded.unknown:
            raise Unsupported(f"what the kubelet runs with is not known: {loaded.unknown}")
        start = _Start.of(services.command_line(host, loaded.run))
        if READS[key][0] in start.flags:
            raise Unsupported(f"unsupported here: the kubelet's flag --{READS[key][0]} sets it, and wins over any file")
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
        self._check_files(host, key, start)
        pods = len(host.glob(PODS))
        if key == "kubelet.maxPods" and pods > int(value):
            raise WriteRefused(f"the node holds {pods} pods, and a kubelet rejects those beyond {value} when it starts")

    def _check_files(self, host: Host, key: str, start: _Start) -> None:
        """Raises WriteRefused where a restart would bring more than Setpoint's change, or not bring it."""
        own, name = f"{start.folder}/{DROP_IN}", key.partition(".")[2]
        files = dict(_files(host, start))
        digests = {path: _digest(text) for path, text in files.items() if path != own}
        for path in sorted({*digests, *self._loaded.files}):
            if digests.get(path) != self._loaded.files.get(path):
                raise WriteRefused(
                    f"{path} was changed since the kubelet started, and a restart would bring that change, too; "
                    "restart the kubelet first, or undo it"
                )
        for path, text in files.items():
            is_later = path != start.config and _place(path) > _place(own)
            if is_later and name in _fields(path, text):
                raise WriteRefused(f"{path} sets it, too, and the kubelet reads that after Setpoint's {DROP_IN}")


def folder_of(host: Host) -> str:
    """Return the running kubelet's --config-dir; empty if it has none, or if none runs."""
    run = services.run_of(host, "kubelet")
    return _Start.of(services.command_line(host, run)).folder if run else ""


def _loaded_by(host: Host, run: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return value by key, and the digests of the files that they are from. Raises _Unreadable."""
    if not run:
        return {}, {}
    start = _Start.of(services.command_line(host, run))
    files = dict(_files(host, start))
    if start.config not in files and start.config:
        raise _Unreadable(f"{start.config} cannot be read")
    ages = {path: host.age(path) for path in [*files, *([start.folder] if start.folder else [])]}
    began = services.age(host, run)  # after theirs: what takes time here makes a file look newer, never older
    if began is None:
        raise _Unreadable("the kernel does not say when it started")
    for path, age in ages.items():
        if age is None or age < began:
            raise _Unreadable(f"{path} was changed after it started; restart the kubelet once")
    values = {key: default for key, (_, default) in READS.items()}
    for path, text in files.items():
        for name, value in _fields(path, text).items():
            values[f"kubelet.{name}"] = value
    for key, (flag, default) in READS.items():
        values[key] = _as_kubelet_has_it(key, start.flags.get(flag, values[key]), default)
    own = f"{start.folder}/{DROP_IN}"
    return values, {path: _digest(text) for path, text in files.items() if path != own}


def _as_kubelet_has_it(key: str, value: str, default: str) -> str:
    """Return a value as SetDefaults_KubeletConfiguration leaves it."""
    is_unset = (key == "kubelet.maxPods" and value == "0") or (key == "kubelet.podPidsLimit" and value.startswith("-"))
    return default if is_unset else value[:MAX_VALUE]


def _files(host: Host, start: _Start) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of each file that a kubelet with this start would read now, in its order."""
    paths = [start.config] if start.config else []
    if start.folder:
        patterns = ("*.conf", ".*.conf", "*/*.conf", "*/.*.conf")
        paths += sorted({p for pattern in patterns for p in host.glob(f"{start.folder}/{pattern}")}, key=_place)
    for path in paths:
        if (text := host.read_text(path)) is not None:
            yield path, text


def _place(path: str) -> list[str]:
    """Sort as filepath.WalkDir does: each directory's entries by their names."""
    return path.split("/")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _fields(path: str, text: str) -> dict[str, str]:
    """Top-level fields of a file that are known here. Raises _Unreadable where one is not written as a plain value."""
    fields = {}
    for name, value in _top_level(path, text):
        if f"kubelet.{name}" in READS:
            plain = _NUMBER if f"kubelet.{name}" in FIELDS else _WORD
            if not plain.fullmatch(str(value)):
                raise _Unreadable(f"{path} has a {name} that is no plain value")
            fields[name] = str(value)
    return fields


def _top_level(path: str, text: str) -> Iterator[tuple[str, object]]:
    """Yield (name, value) of a JSON object, or of a YAML mapping in block style, of which nested lines are indented."""
    if text.lstrip().startswith("{"):
        try:
            parsed = json.loads(text)
        except ValueError as error:
            raise _Unreadable(f"{path} is neither JSON nor YAML in block style") from error
        yield from parsed.items()
        return
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and not line.startswith((" ", "\t", "#", "-")):
            value = value.split(" #")[0].strip()
            is_special = value.startswith(("&", "*", "!", "|", ">", "{", "["))
            yield name.strip().strip("\"'"), None if is_special else value.strip("\"'")
