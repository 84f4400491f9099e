"""Ansible: one play. Single numbers wanted with >= or <= are compared with the kernel's before they are written.

What Ansible has no module for is in `ansible_host`.
"""

from __future__ import annotations

import re
from typing import Any

from contract.keys import KeyKind
from contract.nodetuning import Operator
from profiles.content.content import Content, WantedSetting
from profiles.exports import ansible_host
from profiles.exports.parts import (
    ExportDraft,
    dump,
    miss_cards,
    miss_disks,
    miss_isolation,
    miss_services,
    module_name,
    module_parameter,
    of_kind,
)

_COMPARE = {Operator.AT_LEAST: "<", Operator.AT_MOST: ">"}


def write(content: Content, draft: ExportDraft) -> str:
    tasks: list[dict[str, Any]] = []
    for setting in of_kind(content, KeyKind.SYSCTL):
        tasks += _sysctl(setting, draft)
    for setting in of_kind(content, KeyKind.MODULE):
        name = module_name(setting)
        tasks.append(
            {
                "name": f"Load {name} now and at every boot",
                "community.general.modprobe": {"name": name, "state": "present", "persistent": "present"},
            }
        )
    for setting in draft.exact(of_kind(content, KeyKind.MODULE_PARAMETER), "modprobe.d"):
        tasks.append(_module_option(setting, draft))
    if of_kind(content, KeyKind.MODULE_PARAMETER):
        draft.remark("Module options count the next time the module is loaded, at the latest after a reboot.")
    if boot := ansible_host.boot_tasks(content, draft):
        tasks = [ansible_host.assertion(), *tasks, *boot]
    tasks += ansible_host.sysfs_tasks(content, draft)
    miss_services(content, draft, "needs a drop-in and a restart of the service, which the play does not do")
    miss_cards(content, draft)
    miss_disks(content, draft)
    miss_isolation(content, draft, "derives irqaffinity from each node's other CPUs; a play gives all the same words")
    draft.miss_marks(content, "the play is for the host, not for its Kubernetes node")
    play: dict[str, Any] = {"name": f"Setpoint profile {draft.name}", "hosts": "all", "become": True, "tasks": tasks}
    if notified := dict.fromkeys(task["notify"] for task in tasks if "notify" in task):
        play["handlers"] = [_handler(name) for name in notified]
    return dump([play])


def _handler(name: str) -> dict[str, Any]:
    return {"name": name, "ansible.builtin.command": {"argv": ansible_host.HANDLERS[name]}}


def _sysctl(setting: WantedSetting, draft: ExportDraft) -> list[dict[str, Any]]:
    put: dict[str, Any] = {
        "name": f"Set {setting.key}",
        "ansible.posix.sysctl": {
            "name": setting.key,
            "value": setting.value,
            "sysctl_file": f"/etc/sysctl.d/90-{draft.name}.conf",
            "sysctl_set": True,
            "state": "present",
        },
    }
    if setting.operator == Operator.EQUALS:
        return [put]
    if " " in setting.value:
        return [put for _ in draft.exact([setting], "the play, for several numbers,")]
    register = "now_" + re.sub(r"[^a-z0-9]", "_", setting.key.lower())
    read = {
        "name": f"Read {setting.key}",
        "ansible.builtin.command": {"argv": ["sysctl", "-n", setting.key]},
        "register": register,
        "changed_when": False,
        "check_mode": False,
    }
    return [read, put | {"when": f"{register}.stdout | int {_COMPARE[Operator(setting.operator)]} {setting.value}"}]


def _module_option(setting: WantedSetting, draft: ExportDraft) -> dict[str, Any]:
    module, parameter = module_parameter(setting)
    return {
        "name": f"Set {parameter} of {module} for the next time it is loaded",
        "ansible.builtin.lineinfile": {
            "path": f"/etc/modprobe.d/90-{draft.name}.conf",
            "create": True,
            "mode": "0644",
            "regexp": f"^options {module} {parameter}=",
            "line": f"options {module} {parameter}={setting.value}",
        },
    }
