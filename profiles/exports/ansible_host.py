"""Ansible's tasks for what it has no module for: files under /sys, written by a script, and kernel arguments.

The script compares before it writes and reads back afterwards, so that it is the same for `=`, `>=` and `<=`, changes
nothing the second time, and fails where the kernel keeps another value. A unit runs it at every boot; udev
gives disks that come later what is wanted with `=`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from contract.keys import KeyKind
from contract.nodetuning import Operator
from profiles.catalog.host_paths import DISKS
from profiles.content.content import Content, WantedSetting
from profiles.exports.parts import ExportDraft, argument, in_order_of_the_kernel, kind, of_kind, sysfs_path

RESTORES_DEFAULT = "-1"
"""Written to wbt_lat_usec it restores the default, which is what is read back: Documentation/ABI/stable/sysfs-block."""

_SCRIPT = """\
#!/bin/sh
# Setpoint profile {name}, written by Ansible: values under /sys that nothing else keeps.
failed=0

# Print the chosen word of a list such as "always [madvise] never", else the whole line.
value_of() {{
    line=
    read -r line < "$1" || [ -n "$line" ] || return 1
    case $line in *"["*"]"*) line=${{line#*"["}}; line=${{line%%"]"*}} ;; esac
    printf '%s' "$line"
}}

put() {{  # FILE OPERATOR VALUE
    if ! old=$(value_of "$1"); then
        echo "failed $1: cannot be read"
        failed=1
        return
    fi
    case $2 in
        '>=') [ "$old" -ge "$3" ] && return ;;
        '<=') [ "$old" -le "$3" ] && return ;;
        *) [ "$old" = "$3" ] && return ;;
    esac
    printf '%s\\n' "$3" > "$1"
    new=$(value_of "$1")
    if [ "$new" = "$3" ]; then
        echo "changed $1: $old to $new"
    else
        echo "failed $1: the kernel has $new, not $3"
        failed=1
    fi
}}

{lines}
exit $failed
"""
_UNIT = """\
[Unit]
Description=Values under /sys of the Setpoint profile {name}
Before=kubelet.service

[Service]
Type=oneshot
ExecStart=/bin/sh {script}

[Install]
WantedBy=multi-user.target
"""


def sysfs_tasks(content: Content, draft: ExportDraft) -> list[dict[str, Any]]:
    of_files = of_kind(content, KeyKind.THP, KeyKind.GOVERNOR, KeyKind.CPU_LATENCY, KeyKind.BLOCK, KeyKind.HUGEPAGES)
    wanted = [setting for setting in of_files if not _is_unreadable(setting, draft)]
    # A new scheduler brings its own nr_requests (blk_mq_init_sched in block/blk-mq-sched.c), so it is written first.
    wanted.sort(key=lambda setting: not setting.key.endswith(".scheduler"))
    if not wanted:
        return []
    if any(kind(setting) is KeyKind.HUGEPAGES for setting in wanted):
        draft.remark("The kubelet counts huge pages when it starts: restart it where the play changed their number.")
    if any(kind(setting) is KeyKind.BLOCK and setting.operator != Operator.EQUALS for setting in wanted):
        draft.remark("A disk that comes later has what is wanted with >= or <= from the next boot or play on.")
    script, unit = f"/usr/local/sbin/setpoint-{draft.name}", f"setpoint-{draft.name}.service"
    text = _SCRIPT.format(name=draft.name, lines="\n".join(_put(setting) for setting in wanted))
    return [
        *_udev_tasks(wanted, draft),
        _file("Install the script that writes under /sys", script, text, "0755"),
        _file("Install its unit", f"/etc/systemd/system/{unit}", _UNIT.format(name=draft.name, script=script), "0644"),
        {
            "name": "Write the values at every boot",
            "ansible.builtin.systemd": {"name": unit, "enabled": True, "daemon_reload": True},
        },
        {
            "name": "Write the values now",
            "ansible.builtin.command": {"argv": ["/bin/sh", script]},
            "register": "setpoint_written",
            "changed_when": "'changed ' in setpoint_written.stdout",
        },
    ]


def _is_unreadable(setting: WantedSetting, draft: ExportDraft) -> bool:
    is_default = kind(setting) is KeyKind.BLOCK and setting.value == RESTORES_DEFAULT
    if is_default:
        draft.miss(setting, "restores the default, which reads as another number: no play can tell that it is done")
    return is_default


def _put(setting: WantedSetting) -> str:
    path, wanted = sysfs_path(setting), f"'{setting.operator}' '{setting.value}'"
    # A node without such disks or CPUs has nothing to write.
    if kind(setting) in (KeyKind.BLOCK, KeyKind.GOVERNOR, KeyKind.CPU_LATENCY):
        return f'for file in {path}; do [ ! -e "$file" ] || put "$file" {wanted}; done'
    return f"put {path} {wanted}"


def _udev_tasks(wanted: Iterable[WantedSetting], draft: ExportDraft) -> list[dict[str, Any]]:
    rules = []
    for setting in wanted:
        if kind(setting) is KeyKind.BLOCK and setting.operator == Operator.EQUALS:
            _, disks, attribute = setting.key.split(".")
            match = f'ACTION=="add|change", SUBSYSTEM=="block", ENV{{DEVTYPE}}=="disk", KERNEL=="{DISKS[disks]}"'
            rules.append(f'{match}, ATTR{{queue/{attribute}}}="{setting.value}"\n')
    if not rules:
        return []
    task = _file("Give disks that come later the same", f"/etc/udev/rules.d/90-{draft.name}.rules", "".join(rules))
    return [task | {"notify": "Reload the rules of udev"}]


def _file(name: str, path: str, text: str, mode: str = "0644") -> dict[str, Any]:
    return {"name": name, "ansible.builtin.copy": {"dest": path, "content": text, "mode": mode}}


def boot_tasks(content: Content, draft: ExportDraft) -> list[dict[str, Any]]:
    """Kernel arguments: a drop-in of GRUB's where the distribution reads those, grubby where it has that instead."""
    wanted = in_order_of_the_kernel(draft.exact(of_kind(content, KeyKind.CMDLINE), "a kernel argument"))
    if not wanted:
        return []
    draft.remark(
        "Kernel arguments count after a reboot, which the play leaves to you. It knows update-grub of Debian's family "
        "and grubby of Red Hat's, and stops on others before it changes anything."
    )
    words = [argument(setting) for setting in wanted]
    debian, red_hat = (f"ansible_facts['os_family'] == '{family}'" for family in ("Debian", "RedHat"))
    drop_in = f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {" ".join(words)}"\n'
    line = r"""setpoint_kernel.stdout | regex_search('(?m)^args="(.*)"$', '\\1') | default([''], true) | first"""
    return [
        {
            "name": "Make the folder of GRUB's drop-ins",
            "ansible.builtin.file": {"path": "/etc/default/grub.d", "state": "directory", "mode": "0755"},
            "when": debian,
        },
        _file("Add kernel arguments", f"/etc/default/grub.d/90-{draft.name}.cfg", drop_in)
        | {"when": debian, "notify": "Write GRUB's menu"},
        {  # a run before this one may have ended between the drop-in and the menu
            "name": "Look for the kernel arguments in GRUB's menu",
            "ansible.builtin.command": {"argv": ["grep", "-qF", "--", " ".join(words), "/boot/grub/grub.cfg"]},
            "register": "setpoint_menu",
            "changed_when": "setpoint_menu.rc != 0",
            "failed_when": False,
            "check_mode": False,
            "when": debian,
            "notify": "Write GRUB's menu",
        },
        {"name": "Write GRUB's menu before anything else can fail", "ansible.builtin.meta": "flush_handlers"},
        {
            "name": "Read the kernel arguments of the next boot",
            "ansible.builtin.command": {"argv": ["grubby", "--info=DEFAULT"]},
            "register": "setpoint_kernel",
            "changed_when": False,
            "check_mode": False,
            "when": red_hat,
        },
        {
            "name": "Add kernel arguments with grubby",
            "ansible.builtin.command": {"argv": ["grubby", "--update-kernel=ALL", f"--args={' '.join(words)}"]},
            "when": [red_hat, f"({line}).split() is not superset({words!r})"],
        },
    ]


HANDLERS: dict[str, list[str]] = {
    "Reload the rules of udev": ["udevadm", "control", "--reload"],
    "Write GRUB's menu": ["update-grub"],
}


def assertion() -> dict[str, Any]:
    return {
        "name": "Refuse hosts whose boot loader this play does not know, before anything changes",
        "ansible.builtin.assert": {
            "that": "ansible_facts['os_family'] in ['Debian', 'RedHat']",
            "fail_msg": "Kernel arguments are set with update-grub on Debian's family and with grubby on Red Hat's.",
        },
    }
