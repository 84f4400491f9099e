"""The settings catalog: what is known of each key, read from *.yaml beside this module when this module is imported.

The YAML holds what a person must know (title, unit, range, risk, source). What both sides must agree on (which keys may
be written, apply class, coupled keys) is `contract.keys`; an entry states its class for its readers, and one that
disagrees does not load.
"""

from __future__ import annotations

import difflib
import enum
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from common import yaml
from contract import disks, key_lists, keys
from contract.keys import ApplyClass, KeyKind
from contract.nodetuning import Operator
from profiles.catalog import known_labels, weakening

HERE = Path(__file__).parent
PLATFORMS_FILE = "platforms.yaml"
"""What node pools of managed platforms take: read by profiles.catalog.platforms."""
OTHER_FILES = ("sources.yaml", PLATFORMS_FILE, known_labels.FILE, weakening.FILE)
NUMA_NODES_OBSERVED = 8
"""Huge pages are observed on NUMA nodes 0 to 7: two sockets in four parts each. Agents leave out what is absent."""


class Namespace(enum.StrEnum):
    """Kernel namespace that a key's value belongs to: the agent must run in the host's."""

    NONE = "none"
    """One value for the node."""
    NET = "net"
    IPC = "ipc"
    PID = "pid"


class Shape(enum.StrEnum):
    INT = "int"
    INTS = "ints"
    """A fixed number of whole numbers, separated by spaces."""
    CHOICE = "choice"
    WORD = "word"
    """Text that the kernel judges."""


@dataclass(frozen=True, slots=True)
class SettingCitation:
    key: str
    text: str
    url: str
    """Empty for what was measured or judged."""


@dataclass(frozen=True, slots=True)
class PlatformLimit:
    """Values that a managed platform accepts. Both bounds None: it offers the key and publishes no range."""

    platform: str
    minimum: int | None
    maximum: int | None

    def permits(self, number: int) -> bool:
        return (self.minimum is None or number >= self.minimum) and (self.maximum is None or number <= self.maximum)


@dataclass(frozen=True, slots=True)
class SettingInfo:
    key: str
    family: str
    title: str
    unit: str
    default: str | None
    """The upstream kernel's; None when it depends on the machine, see `default_note`."""
    default_note: str
    shape: Shape
    minimum: int | None
    maximum: int | None
    """Bounds of the number, or of each number of a list."""
    choices: tuple[str, ...]
    count: int
    """How many numbers a list has; 1 otherwise."""
    is_ascending: bool
    platforms: tuple[PlatformLimit, ...]
    namespace: Namespace
    namespace_note: str
    apply_class: ApplyClass
    coupled: tuple[str, ...]
    """Keys that a write to this one changes; a profile may hold one of them."""
    owner: str
    """Other writers: kubelet, cni, kube-proxy, or empty."""
    observe_only: bool
    raise_only: bool
    """Best asked for with >=: a machine may already have more."""
    caution: str
    """Said whenever a profile sets it."""
    caution_values: Mapping[str, str]
    """By value, or by the name of an option in a value that is a list of them."""
    effect: str
    risk: str
    sources: tuple[SettingCitation, ...]
    since_kernel: str
    until_kernel: str
    default_outside_range: bool
    is_unordered: bool
    """A number of which one value means no limit, so that more is not always a greater one."""

    @property
    def kind(self) -> KeyKind:
        return keys.kind_of(self.key)

    @property
    def is_number(self) -> bool:
        return self.shape in (Shape.INT, Shape.INTS)

    @property
    def operators(self) -> tuple[str, ...]:
        """Operators that mean something for this key."""
        is_ordered = self.is_number and self.owner != "kubelet" and not self.is_unordered
        return tuple(Operator) if is_ordered else (Operator.EQUALS,)

    @property
    def suggested_operator(self) -> str:
        return Operator.AT_LEAST if self.raise_only else Operator.EQUALS

    @property
    def range_text(self) -> str:
        """`0 to 200`, `always, madvise or never`, or empty when the kernel alone judges."""
        if self.choices:
            return " or ".join(filter(None, (", ".join(self.choices[:-1]), self.choices[-1])))
        if self.minimum is None or self.maximum is None:
            return ""
        each = f"{self.count} numbers, each " if self.count > 1 else ""
        return f"{each}{self.minimum} to {self.maximum}{', ascending' if self.is_ascending else ''}"


class BadSettingsCatalog(ValueError):
    """An entry is wrong: a mistake of this project's, found when the module is imported."""


_FIELD_NAMES = """
    title unit default default_note default_outside_range range choices shape count ascending platforms namespace
    namespace_note class owner observe_only raise_only caution caution_values effect risk sources since until unordered
"""
_FIELDS = frozenset(_FIELD_NAMES.split())


def load_sources() -> dict[str, SettingCitation]:
    """Return what `sources` of entries name, by key."""
    raw = yaml.load((HERE / "sources.yaml").read_bytes()).data
    return {key: SettingCitation(key, entry["text"], entry["url"]) for key, entry in raw.items()}


def _load() -> dict[str, SettingInfo]:
    sources = load_sources()
    out: dict[str, SettingInfo] = {}
    for path in sorted(HERE.glob("*.yaml")):
        if path.name in OTHER_FILES:
            continue
        file = yaml.load(path.read_bytes()).data
        for key, raw in file["settings"].items():
            if key in out:
                raise BadSettingsCatalog(f"{path.name}: {key} is described twice")
            try:
                out[key] = _entry(key, {**file, **raw}, set(raw), sources)
            except (KeyError, TypeError, ValueError) as error:
                raise BadSettingsCatalog(f"{path.name}: {key}: {error!r}") from error
    return out


def _entry(key: str, raw: Mapping[str, Any], given: set[str], sources: Mapping[str, SettingCitation]) -> SettingInfo:
    if unknown := given - _FIELDS:
        raise ValueError(f"unknown fields {sorted(unknown)}")
    example = _example(key)
    apply_class = ApplyClass(raw["class"])
    if apply_class is not keys.apply_class(example):
        raise ValueError(f"class {apply_class} is not the contract's {keys.apply_class(example)}")
    low, high = raw.get("range", (None, None))
    shape = Shape(raw["shape"]) if "shape" in raw else Shape.INT if "range" in raw else Shape.CHOICE
    choices = tuple(str(choice) for choice in raw.get("choices", ()))
    if shape is Shape.CHOICE and not choices:
        raise ValueError("neither range nor choices nor shape")
    return SettingInfo(
        key=key,
        family=raw["family"],
        title=raw["title"],
        unit=raw.get("unit", ""),
        default=raw.get("default"),
        default_note=raw.get("default_note", ""),
        shape=shape,
        minimum=low,
        maximum=high,
        choices=choices,
        count=raw.get("count", 1),
        is_ascending=raw.get("ascending", False),
        platforms=tuple(_platform(name, limit) for name, limit in raw.get("platforms", {}).items()),
        namespace=Namespace(raw["namespace"]),
        namespace_note=raw.get("namespace_note", ""),
        apply_class=apply_class,
        coupled=tuple(sorted(keys.coupled_with(example))),
        owner=raw.get("owner", ""),
        observe_only=raw.get("observe_only", False),
        raise_only=raw.get("raise_only", False),
        caution=raw.get("caution", ""),
        caution_values=raw.get("caution_values", {}),
        effect=raw["effect"],
        risk=raw["risk"],
        sources=tuple(sources[name] for name in raw["sources"]),
        since_kernel=raw.get("since", ""),
        until_kernel=raw.get("until", ""),
        default_outside_range=raw.get("default_outside_range", False),
        is_unordered=raw.get("unordered", False),
    )


def _platform(name: str, limit: Any) -> PlatformLimit:
    return PlatformLimit(name, None, None) if limit == "listed" else PlatformLimit(name, limit[0], limit[1])


def _example(key: str) -> str:
    """A real key that a family entry speaks for."""
    key = key.replace("block.*", "block.nvme").replace("disk.*", disks.KEYS[0]).replace("nic.*", "nic.rdma")
    return key.replace("*", "iommu" if key.startswith("cmdline") else "dummy")


_ENTRIES = _load()


def get(key: str) -> SettingInfo | None:
    """Return the catalog's entry of a key in canonical spelling, or None. Families answer for their members."""
    if "*" in key:
        return None
    if info := _ENTRIES.get(key):
        return info
    family = _family_of(key)
    return replace(_ENTRIES[family], key=key) if family in _ENTRIES else None


def _family_of(key: str) -> str:
    if key.startswith("hugepages-") and keys.is_allowed(key):
        return key.partition(".")[0]
    if key in disks.KEYS:
        return "disk.*"
    if not keys.is_allowed(key):
        return ""
    first, *rest = key.split(".")
    if first in ("block", "nic"):
        return f"{first}.*.{rest[-1]}"
    return f"{first}.*" if first in ("module", "cmdline") else ""


def families() -> Mapping[str, SettingInfo]:
    """Entries that speak for several keys, by pattern (`module.*`)."""
    return {key: info for key, info in _ENTRIES.items() if "*" in key}


def all() -> tuple[SettingInfo, ...]:
    """Every key that may be set or shown, families spelled out; but for huge pages of single NUMA nodes."""
    return _ALL


def _every_key() -> Iterator[str]:
    yield from (key for key in _ENTRIES if "*" not in key)
    yield from key_lists.ALLOWED
    yield from disks.KEYS


_ALL: tuple[SettingInfo, ...] = tuple(info for key in sorted(set(_every_key())) if (info := get(key)))


def observable_keys() -> tuple[str, ...]:
    """List the keys that every agent is asked to report (`spec.observe`).

    They are those of the catalog, and huge pages of the first NUMA nodes.
    """
    per_node = (
        f"{info.key}.node{number}"
        for info in _ALL
        if info.kind is KeyKind.HUGEPAGES
        for number in range(NUMA_NODES_OBSERVED)
    )
    return tuple(sorted({info.key for info in _ALL if keys.is_observable(info.key)} | set(per_node)))


def nearest(key: str) -> str | None:
    """The settable key most like this one, for "did you mean".

    Only the few that share most groups of three letters with it are compared letter by letter: a document may hold
    thousands of keys that are none, and comparing each with all took 3 ms.
    """
    shared = Counter(name for letters in _threes(key) for name in _BY_LETTERS.get(letters, ()))
    likely = [name for name, _ in sorted(shared.items(), key=lambda item: (-item[1], item[0]))[:_COMPARED]]
    matches = difflib.get_close_matches(key, likely, n=1, cutoff=0.75)
    return matches[0] if matches else None


def _threes(text: str) -> set[str]:
    padded = f" {text} "
    return {padded[at : at + 3] for at in range(len(padded) - 2)}


_COMPARED = 5
_BY_LETTERS: dict[str, list[str]] = defaultdict(list)
for _info in _ALL:
    for _letters in () if _info.observe_only else _threes(_info.key):
        _BY_LETTERS[_letters].append(_info.key)


def search(words: str) -> tuple[SettingInfo, ...]:
    """Entries in which every word occurs in key, title, effect or family; all of them for no words."""
    wanted = words.lower().split()
    return tuple(info for info in _ALL if not any(word not in _haystack(info) for word in wanted))


def _haystack(info: SettingInfo) -> str:
    return f"{info.key} {info.title} {info.effect} {info.family}".lower()
