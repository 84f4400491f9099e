"""Talos: a patch of the machine configuration."""

from __future__ import annotations

from typing import Any

from contract.keys import KeyKind
from profiles.content.content import Content
from profiles.exports.parts import (
    ExportDraft,
    dump,
    miss_cards,
    miss_disks,
    miss_isolation,
    module_name,
    module_parameter,
    of_kind,
    sysfs_path,
)


def write(content: Content, draft: ExportDraft) -> str:
    machine: dict[str, Any] = {}
    sysctls = draft.exact(of_kind(content, KeyKind.SYSCTL), "Talos")
    if entries := {setting.key: setting.value for setting in sysctls}:
        machine["sysctls"] = entries
    attributes = draft.exact(of_kind(content, KeyKind.THP, KeyKind.HUGEPAGES), "Talos")
    if entries := {_dotted(str(sysfs_path(setting))): setting.value for setting in attributes}:
        machine["sysfs"] = entries
    for setting in of_kind(content, KeyKind.GOVERNOR, KeyKind.CPU_LATENCY, KeyKind.BLOCK):
        draft.miss(setting, "Talos names single files under /sys, and these differ from node to node")
    for setting in of_kind(content, KeyKind.CMDLINE):
        draft.miss(setting, "belongs to the image: extraKernelArgs of an Image Factory schematic")
    fields = draft.exact(of_kind(content, KeyKind.KUBELET), "Talos")
    if overrides := {setting.key.removeprefix("kubelet."): int(setting.value) for setting in fields}:
        machine["kubelet"] = {"extraConfig": overrides}
        draft.remark("Talos writes the kubelet's file with it, and restarts the kubelet.")
    for setting in of_kind(content, KeyKind.KUBELET_MANAGER):
        draft.miss(setting, "needs the kubelet's state files moved aside while it is down, which the patch does not do")
    for setting in of_kind(content, KeyKind.SERVICE_LIMIT):
        draft.miss(setting, "Talos has no systemd, and starts its services with limits of its own")
    miss_cards(content, draft)
    miss_disks(content, draft)
    miss_isolation(content, draft, "belongs to the image: isolcpus, nohz_full and irqaffinity of a schematic")
    if modules := _modules(content, draft):
        machine["kernel"] = {"modules": modules}
    for part, name in (("labels", "nodeLabels"), ("annotations", "nodeAnnotations")):
        if marks := {mark.key: mark.value for mark in getattr(content, part)}:
            machine[name] = marks
    _taints(content, draft, machine)
    return dump({"machine": machine})


def _dotted(path: str) -> str:
    return path.removeprefix("/sys/").replace("/", ".")


def _modules(content: Content, draft: ExportDraft) -> list[dict[str, Any]]:
    """Parameters are given to a module that Talos loads: one without the other cannot be said."""
    names = {module_name(setting): list[str]() for setting in of_kind(content, KeyKind.MODULE)}
    for setting in draft.exact(of_kind(content, KeyKind.MODULE_PARAMETER), "Talos"):
        module, parameter = module_parameter(setting)
        if module in names:
            names[module].append(f"{parameter}={setting.value}")
        else:
            draft.miss(
                setting, f"Talos gives parameters only to modules it loads; module.{module} is not in the profile"
            )
    return [
        {"name": name, **({"parameters": parameters} if parameters else {})}
        for name, parameters in sorted(names.items())
    ]


def _taints(content: Content, draft: ExportDraft, machine: dict[str, Any]) -> None:
    """One of a key, `value:effect`; on workers the API server refuses a kubelet's own taints after it joined."""
    taints: dict[str, str] = {}
    for taint in content.taints:
        if taint.key in taints:
            only = Content(taints=(taint,))
            draft.miss_marks(only, "Talos holds one taint of a key", "taints")
        else:
            taints[taint.key] = f"{taint.value}:{taint.effect}"
    if taints:
        draft.remark(
            "Kubernetes lets a worker set its taints when it joins, not later: on nodes there already, use kubectl."
        )
        machine["nodeTaints"] = taints
