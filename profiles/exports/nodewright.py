"""NodeWright, formerly Skyhook: NVIDIA's operator, with its package `tuning`.

Shape: the CRD in NVIDIA/nodewright, chart/templates/nodewright-crd.yaml; NVIDIA/nodewright-packages, tuning/README.md.
"""

from __future__ import annotations

from typing import Any

from contract.keys import KeyKind
from profiles.content.content import Content
from profiles.exports.parts import ExportDraft, argument, dump, in_order_of_the_kernel, of_kind, others, page_arguments

IMAGE = "ghcr.io/nvidia/skyhook-packages/tuning"
VERSION = "1.1.4"


def write(content: Content, draft: ExportDraft) -> str:
    for setting in others(content, KeyKind.SYSCTL, KeyKind.CMDLINE, KeyKind.HUGEPAGES):
        draft.miss(setting, "the package tuning sets sysctls and kernel arguments only")
    draft.miss_marks(content, "NodeWright selects nodes by labels and does not set them")
    sysctls = [
        f"{setting.key}={setting.value}"
        for setting in draft.exact(of_kind(content, KeyKind.SYSCTL), "the package tuning")
    ]
    pages = draft.exact(of_kind(content, KeyKind.HUGEPAGES), "a kernel argument")
    arguments = page_arguments(pages, draft.miss)
    wanted = in_order_of_the_kernel(draft.exact(of_kind(content, KeyKind.CMDLINE), "a kernel argument"))
    arguments += [argument(setting) for setting in wanted]
    config: dict[str, str] = {}
    interrupts: dict[str, Any] = {}
    if arguments:
        draft.remark(
            "The package overwrites GRUB_CMDLINE_LINUX_DEFAULT: add to grub.conf what is there already, "
            "or the nodes boot without it."
        )
        config["grub.conf"] = "\n".join(arguments) + "\n"
        interrupts["grub.conf"] = {"type": "reboot"}
    if sysctls:
        draft.remark("The package stops at a sysctl that the kernel of a node does not know.")
        config["sysctl.conf"] = "\n".join(sysctls) + "\n"
        interrupts["sysctl.conf"] = {"type": "restartAllServices"}
    package: dict[str, Any] = {"image": IMAGE, "version": VERSION}
    if config:
        package["interrupt"] = {"type": "reboot" if arguments else "restartAllServices"}
        package |= {"configInterrupts": interrupts, "configMap": config}
    return dump(
        {
            "apiVersion": "nodewright.nvidia.com/v1alpha1",
            "kind": "NodeWright",
            "metadata": {"name": draft.name},
            "spec": {
                "nodeSelectors": {"matchLabels": {"example.com/profile": draft.name}},
                "interruptionBudget": {"count": 1},
                "packages": {"tuning": package},
            },
        }
    )
