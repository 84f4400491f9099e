"""Files that a kubelet reads at its start, and the configuration that it makes of them and of its flags.

Read without a YAML library: JSON, and YAML in block style with plain values and one level of mappings below them, as
kubeadm and the distributions write it. What is written otherwise is not guessed at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from agent.host import Host
from contract import quantities, resource_managers
from contract.resource_managers import CPU_POLICY, CPUS, FLAGS, MEMORY, MEMORY_POLICY, NONE, OPTION, SCOPE, TOPOLOGY

DEFAULT_EVICTION = {"memory.available": "100Mi"}
"""pkg/kubelet/eviction/defaults_linux.go: for a kubelet that is given no evictionHard at all."""
MAPS = {
    "systemReserved": "system-reserved",
    "kubeReserved": "kube-reserved",
    "evictionHard": "eviction-hard",
    "cpuManagerPolicyOptions": "cpu-manager-policy-options",
    "featureGates": "feature-gates",
    "topologyManagerPolicyOptions": "topology-manager-policy-options",
}
"""Fields that are mappings, with their flags. Drop-ins add their entries, a flag replaces all of them."""
SCALARS = {key.partition(".")[2]: key for key in (CPU_POLICY, CPUS, MEMORY_POLICY, TOPOLOGY, SCOPE)}


class Unreadable(Exception):
    """`str()` says what of a file of the kubelet's cannot be read here, as half a sentence."""


@dataclass(frozen=True, slots=True)
class Start:
    """Flags of a kubelet, and where they tell it to read its configuration."""

    config: str
    folder: str
    flags: Mapping[str, str]

    @classmethod
    def of(cls, arguments: list[str]) -> Start:
        flags: dict[str, str] = {}
        for word, following in pairwise([*arguments[1:], "--"]):
            name, equals, value = word.partition("=")
            if name.startswith("--"):  # `--max-pods=110` or `--max-pods 110`; a switch alone has no value
                flags[name[2:].replace("_", "-")] = value if equals or following.startswith("--") else following
        return cls(flags.get("config", ""), flags.get("config-dir", "").rstrip("/"), flags)


@dataclass(slots=True)
class Managers:
    """Configuration of a kubelet's resource managers, by files and flags together."""

    values: dict[str, str] = field(default_factory=dict)
    """By field, in the contract's writing; `none` where a list was not given."""
    maps: dict[str, dict[str, str]] = field(default_factory=dict)

    def given(self) -> dict[str, str]:
        """Return value by key, without those that are not given: what `resource_managers.unstartable` judges."""
        out = {f"kubelet.{name}": value for name, value in self.values.items() if value != NONE}
        return out | {OPTION + name: value for name, value in self.maps.get("cpuManagerPolicyOptions", {}).items()}

    def reported(self) -> dict[str, str]:
        """Value by key, as the running kubelet has it."""
        given = self.given()
        return {key: given.get(key, default) for key, (_, default) in FLAGS.items()}

    def reserved_cpu(self) -> int | None:
        """Thousandths of a CPU; None where it cannot be known."""
        amounts = [self.maps.get(name, {}).get("cpu", "0") for name in ("systemReserved", "kubeReserved")]
        try:
            return int(sum(quantities.read(amount) for amount in amounts) * 1000)
        except quantities.BadQuantity:
            return None

    def reserved_memory(self) -> int | None:
        """Bytes; None where it cannot be known, as for a threshold in percent."""
        amounts = [self.maps.get(name, {}).get("memory", "0") for name in ("systemReserved", "kubeReserved")]
        amounts.append(self.maps.get("evictionHard", DEFAULT_EVICTION).get("memory.available", "0"))
        try:
            return int(sum(quantities.read(amount, whole=True) for amount in amounts))
        except quantities.BadQuantity:
            return None

    def reserved(self) -> str:
        """`cpu=500,memory=104857600`, in thousandths of a CPU and in bytes, without what is not known."""
        amounts = {"cpu": self.reserved_cpu(), "memory": self.reserved_memory()}
        return ",".join(f"{name}={amount}" for name, amount in amounts.items() if amount is not None)


def managers(files: Iterable[tuple[str, str]], start: Start) -> Managers:
    """Merge files, in the kubelet's order, and flags. Raises Unreadable where one of its fields is not understood."""
    out = Managers()
    for path, text in files:
        for name, value in top_level(path, text):
            _take(out, path, name, value)
    for name, flag in MAPS.items():
        if flag in start.flags:
            separator = "<" if name == "evictionHard" else "="
            out.maps[name] = dict(part.partition(separator)[::2] for part in start.flags[flag].split(",") if part)
    for name, key in SCALARS.items():
        if FLAGS[key][0] in start.flags:
            _take(out, f"--{FLAGS[key][0]}", name, start.flags[FLAGS[key][0]])
    if FLAGS[MEMORY][0] in start.flags:
        _take(out, "--reserved-memory", "reservedMemory", _of_flag(start.flags[FLAGS[MEMORY][0]]))
    return out


def _take(out: Managers, path: str, name: str, value: object) -> None:
    key = SCALARS.get(name)
    if name in MAPS:
        if value == "":
            value = {}
        if not isinstance(value, Mapping):
            raise Unreadable(f"{path} has a {name} that is no plain mapping")
        # Drop-ins are merged entry by entry (Kubernetes, "Kubelet Configuration Directory Merging").
        entries = {str(entry): _plain(path, name, amount) for entry, amount in value.items()}
        out.maps[name] = out.maps.get(name, {}) | entries
    elif name == "reservedMemory":
        out.values[name] = _reserved(path, value)
    elif key == CPUS:
        cpus = resource_managers.cpu_list(str(value)) if value not in (None, "") else frozenset()
        if cpus is None or value is None:
            raise Unreadable(f"{path} has a {name} that is no list of CPUs")
        out.values[name] = resource_managers.cpu_text(cpus) or NONE
    elif key:
        text = _plain(path, name, value)
        if text or name in out.values:
            out.values[name] = text or FLAGS[key][1]  # an empty one is given its default
        if text and (why := resource_managers.bad_value(key, text)):
            raise Unreadable(f"{path} has the {name} {text[:40]!a}, which {why}")


def _plain(path: str, name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise Unreadable(f"{path} has a {name} that is no plain value")
    return str(value)


def _reserved(path: str, value: object) -> str:
    """Return the contract's writing of `[{numaNode: 0, limits: {memory: 1Gi}}]`; `none` for an empty list."""
    try:
        out: dict[int, int] = {}
        for entry in value if isinstance(value, list) else _refuse():
            limits = entry["limits"]
            if not isinstance(entry["numaNode"], int) or set(limits) != {"memory"} or entry["numaNode"] in out:
                _refuse()
            out[entry["numaNode"]] = int(quantities.read(limits["memory"], whole=True))
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"{path} has a reservedMemory that is more than memory of NUMA nodes, in JSON") from error
    return resource_managers.memory_text(out) or NONE


def _refuse() -> Any:
    raise ValueError


def _of_flag(text: str) -> object:
    """Return `0:memory=1Gi;1:memory=1Gi` as the field has it; None where it says more than memory."""
    out = []
    for part in text.split(";"):
        match = re.fullmatch(r"([0-9]{1,4}):memory=([^,=]+)", part)
        if not match:
            return None
        out.append({"numaNode": int(match[1]), "limits": {"memory": match[2]}})
    return out


def rendered(values: Mapping[str, str]) -> str | None:
    """Return a drop-in with these keys, as JSON, which is YAML; None for none of them."""
    if not values:
        return None
    out: dict[str, Any] = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    for key, value in sorted(values.items()):
        if key.startswith(OPTION):
            out.setdefault("cpuManagerPolicyOptions", {})[key.removeprefix(OPTION)] = value
        elif key == MEMORY:
            reserved = resource_managers.memory_list(value) or {}
            out["reservedMemory"] = [
                {"numaNode": node, "limits": {"memory": str(size)}} for node, size in sorted(reserved.items())
            ]
        else:
            out[key.partition(".")[2]] = value
    return json.dumps(out, indent=2) + "\n"


def files(host: Host, start: Start) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of each file that a kubelet with this start would read now, in its order."""
    paths = [start.config] if start.config else []
    if start.folder:
        patterns = ("*.conf", ".*.conf", "*/*.conf", "*/.*.conf")
        paths += sorted({p for pattern in patterns for p in host.glob(f"{start.folder}/{pattern}")}, key=place)
    for path in paths:
        if (text := host.read_text(path)) is not None:
            yield path, text


def place(path: str) -> list[str]:
    """Sort as filepath.WalkDir does: each directory's entries by their names."""
    return path.split("/")


def top_level(path: str, text: str) -> Iterator[tuple[str, object]]:
    """Yield (name, value) of a JSON object, or of a YAML mapping in block style.

    A value is text, a mapping of texts, or None where it is written otherwise. Raises Unreadable.
    """
    if text.lstrip().startswith("{"):
        try:
            parsed = json.loads(text)
        except ValueError as error:
            raise Unreadable(f"{path} is neither JSON nor YAML in block style") from error
        yield from parsed.items()
        return
    entries: list[tuple[str, str, list[str]]] = []
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if line.startswith((" ", "\t", "-")):
            if entries and line.strip() and not line.strip().startswith("#"):
                entries[-1][2].append(line)
        elif colon and not line.startswith("#"):
            entries.append((_bare(name), value.split(" #")[0].strip(), []))
    for name, value, below in entries:
        yield name, (None if value else _mapping(below)) if below else _value(value)


def _value(text: str) -> object:
    if re.fullmatch(r"\{[^{}\[\]]*\}", text):
        pairs = [part.partition(":") for part in text[1:-1].split(",") if part.strip()]
        return {_bare(name): _bare(value) for name, _, value in pairs}
    return None if text.startswith(("&", "*", "!", "|", ">", "{", "[")) else _bare(text)


def _mapping(lines: list[str]) -> dict[str, str] | None:
    """Read indented `name: value` lines of one depth; None for anything else."""
    out: dict[str, str] = {}
    depths = set()
    for line in lines:
        stripped = line.strip()
        name, colon, value = stripped.partition(":")
        plain = _value(value.split(" #")[0].strip())
        if not colon or line.startswith("-") or stripped.startswith("-") or not isinstance(plain, str) or not plain:
            return None
        depths.add(len(line) - len(line.lstrip()))
        out[_bare(name)] = plain
    return out if len(depths) == 1 else None


def _bare(text: str) -> str:
    return text.strip().strip("\"'")
