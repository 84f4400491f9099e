"""Parts that the formats share: the list of what is missing, and the place of a setting on a host."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import yaml as pyyaml

from contract import keys
from contract.keys import KeyKind
from contract.nodetuning import Operator
from profiles.catalog import host_paths
from profiles.catalog.host_paths import PAGE_SIZES
from profiles.content.content import Content, WantedComponent, WantedSetting


@dataclass(frozen=True, slots=True)
class MissingPart:
    """One wish that the file does not carry, or carries less exactly."""

    part: str
    """One of profiles.content.content.PARTS."""
    key: str
    wanted: str
    why: str

    @property
    def kind(self) -> str:
        return {"policies": "object"}.get(self.part, self.part.removesuffix("s"))

    def __str__(self) -> str:
        return f"{self.kind} {self.key} {self.wanted}: {self.why}".replace("\n", " ")


@dataclass(slots=True)
class ExportDraft:
    name: str
    is_fixed: bool = False
    missing: list[MissingPart] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """What applying this very file takes, beyond its format's caveat."""

    def remark(self, sentence: str) -> None:
        self.remarks.append(sentence)

    def miss(self, setting: WantedSetting, why: str) -> None:
        self.missing.append(MissingPart("settings", setting.key, f"{setting.operator} {setting.value}", why))

    def miss_marks(self, content: Content, why: str, *parts: str) -> None:
        for part in parts or ("labels", "annotations", "taints"):
            for mark in getattr(content, part):
                key = mark.name if part == "taints" else mark.key
                self.missing.append(MissingPart(part, key, f"= {mark.value}", why))

    def miss_component(self, component: WantedComponent, why: str) -> None:
        self.missing.append(MissingPart("components", component.name, _version_text(component), why))

    def miss_cluster(self, content: Content, why: str) -> None:
        for component in content.components:
            self.miss_component(component, why)
        for policy in content.policies:
            self.missing.append(MissingPart("policies", policy.title, policy.api_version, why))

    def exact(self, settings: Iterable[WantedSetting], what: str) -> Iterable[WantedSetting]:
        """Those wanted with =; the others are named as missing, or taken as they are when the person asked for it."""
        for setting in settings:
            if setting.operator == Operator.EQUALS or self.is_fixed:
                yield setting
            else:
                self.miss(setting, f"{what} cannot say {setting.operator}; a plain value may make a node worse")


def _version_text(component: WantedComponent) -> str:
    return "removed" if component.is_gone else component.version or "newest tested"


def kind(setting: WantedSetting) -> KeyKind:
    return keys.kind_of(setting.key)


def of_kind(content: Content, *kinds: KeyKind) -> list[WantedSetting]:
    return [setting for setting in content.settings if kind(setting) in kinds]


def others(content: Content, *kinds: KeyKind) -> list[WantedSetting]:
    return [setting for setting in content.settings if kind(setting) not in kinds]


def module_name(setting: WantedSetting) -> str:
    return setting.key.removeprefix("module.")


def module_parameter(setting: WantedSetting) -> tuple[str, str]:
    _, module, parameter = setting.key.split(".")
    return module, parameter


def argument(setting: WantedSetting) -> str:
    """Return `cmdline.iommu = pt` as it is written on the kernel's command line."""
    name = setting.key.removeprefix("cmdline.")
    return name if setting.value == "present" else f"{name}={setting.value}"


def sysfs_path(setting: WantedSetting) -> str | None:
    """Return the path of a setting under /sys, as a glob; None where it is not there."""
    return host_paths.sysfs_path(setting.key)


def in_order_of_the_kernel(arguments: Iterable[WantedSetting]) -> list[WantedSetting]:
    """Sort kernel arguments so that `hugepages` counts pages of the size that the profile means.

    The kernel reads from left to right, and `hugepages` is about the size before it: Documentation/admin-guide/mm/
    hugetlbpage.rst. The rest keeps its order.
    """
    order = ["cmdline.default_hugepagesz", "cmdline.hugepagesz"]
    return sorted(arguments, key=lambda setting: order.index(setting.key) if setting.key in order else len(order))


def page_arguments(pages: Iterable[WantedSetting], refuse: Callable[[WantedSetting, str], None]) -> list[str]:
    """Huge pages as boot arguments, each size before its count. Those of single NUMA nodes (5.15) are left out."""
    out: list[str] = []
    for setting in pages:
        if setting.key not in PAGE_SIZES:
            refuse(setting, "boot arguments are written for all NUMA nodes only")
            continue
        out += [f"hugepagesz={PAGE_SIZES[setting.key][1]}", f"hugepages={setting.value}"]
    return out


def miss_services(content: Content, draft: ExportDraft, why: str) -> None:
    """Name what belongs to the kubelet's configuration and to limits of services as missing."""
    for setting in of_kind(content, KeyKind.KUBELET, KeyKind.KUBELET_MANAGER, KeyKind.SERVICE_LIMIT):
        draft.miss(setting, why)


def miss_cards(content: Content, draft: ExportDraft) -> None:
    """Name settings of network cards as missing: a file names interfaces, and a class has others on each node."""
    for setting in of_kind(content, KeyKind.NIC):
        draft.miss(setting, "is of a class of network cards, and the file could only name interfaces of one node")


def miss_disks(content: Content, draft: ExportDraft) -> None:
    """Name the layout of disks as missing: a file would format any disk that is empty when it runs, unapproved."""
    for setting in of_kind(content, KeyKind.DISK_LAYOUT):
        draft.miss(setting, "formats disks, and only a plan names them by serial number and has them approved")


def miss_isolation(content: Content, draft: ExportDraft, why: str) -> None:
    """Name isolated CPUs as missing: irqaffinity is of each node's other CPUs, which a file for all does not know."""
    for setting in of_kind(content, KeyKind.CPU_ISOLATION):
        draft.miss(setting, why)


def dump(document: Any) -> str:
    return pyyaml.dump(document, Dumper=_ExportDumper, sort_keys=False, allow_unicode=True, width=110)


class _ExportDumper(pyyaml.SafeDumper):
    """Long texts as blocks, which people can read; lists indented under their key."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: _ExportDumper, value: str) -> pyyaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_ExportDumper.add_representer(str, _text)
