"""OpenShift's MachineConfig: kernel arguments, and files that systemd reads at boot."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from contract.keys import KeyKind
from profiles.content.content import Content
from profiles.exports import sysctl_d
from profiles.exports.parts import (
    ExportDraft,
    argument,
    dump,
    in_order_of_the_kernel,
    miss_cards,
    miss_disks,
    miss_isolation,
    module_name,
    module_parameter,
    of_kind,
    page_arguments,
    sysfs_path,
)

IGNITION = "3.2.0"
"""The oldest version that all supported OpenShift releases read."""


_ATTRIBUTES = (KeyKind.THP, KeyKind.GOVERNOR, KeyKind.CPU_LATENCY, KeyKind.BLOCK)


def write(content: Content, draft: ExportDraft) -> str:
    draft.miss_marks(content, "a machine config is applied below Kubernetes")
    for setting in of_kind(content, KeyKind.KUBELET, KeyKind.KUBELET_MANAGER):
        draft.miss(setting, "belongs to a KubeletConfig object, which the machine config operator makes a file of")
    for setting in of_kind(content, KeyKind.SERVICE_LIMIT):
        draft.miss(setting, "OpenShift runs containers by CRI-O, which has limits of its own")
    miss_cards(content, draft)
    miss_disks(content, draft)
    belongs = "belongs to a PerformanceProfile, as spec.cpu.isolated with the other CPUs as spec.cpu.reserved"
    miss_isolation(content, draft, belongs)
    arguments = page_arguments(draft.exact(of_kind(content, KeyKind.HUGEPAGES), "a kernel argument"), draft.miss)
    wanted = in_order_of_the_kernel(draft.exact(of_kind(content, KeyKind.CMDLINE), "a kernel argument"))
    arguments += [argument(setting) for setting in wanted]
    modules = [module_name(setting) for setting in of_kind(content, KeyKind.MODULE)]
    options = [
        f"options {module} {parameter}={setting.value}"
        for setting in draft.exact(of_kind(content, KeyKind.MODULE_PARAMETER), "modprobe.d")
        for module, parameter in [module_parameter(setting)]
    ]
    attributes = [
        f"w {sysfs_path(setting)} - - - - {setting.value}"
        for setting in draft.exact(of_kind(content, *_ATTRIBUTES), "tmpfiles.d")
    ]
    if attributes:
        draft.remark("Attributes of disks and CPUs are written at boot: a disk that comes later keeps its own.")
    name = f"90-{draft.name}.conf"
    files = [
        _file(f"/etc/sysctl.d/{name}", sysctl_d.lines(of_kind(content, KeyKind.SYSCTL), draft)),
        _file(f"/etc/modules-load.d/{name}", "".join(f"{module}\n" for module in modules)),
        _file(f"/etc/modprobe.d/{name}", "".join(f"{line}\n" for line in options)),
        _file(f"/etc/tmpfiles.d/{name}", "".join(f"{line}\n" for line in attributes)),
    ]
    spec: dict[str, Any] = {"config": {"ignition": {"version": IGNITION}}}
    if written := [file for file in files if file]:
        spec["config"]["storage"] = {"files": written}
    if arguments:
        spec["kernelArguments"] = arguments
    return dump(
        {
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": {
                "name": f"99-{draft.name}",
                "labels": {"machineconfiguration.openshift.io/role": "worker"},
            },
            "spec": spec,
        }
    )


def _file(path: str, text: str) -> dict[str, Any] | None:
    source = f"data:,{quote(text)}"
    return {"path": path, "mode": 0o644, "overwrite": True, "contents": {"source": source}} if text else None
