"""GRUB's menu: new kernel arguments are tried for one boot, and stay once the agent runs in it.

While arguments wait for their first boot, the drop-in names GRUB's variable `$setpoint` in their place, and a script of
grub.d writes into the menu what that is: the arguments that booted last, or the new ones, for one boot, where
`setpoint_try` in GRUB's environment block names them. GRUB removes that name before it boots. The agent writes it just
before a granted reboot, and writes the new arguments plainly into the drop-in when it runs in that boot. So a node that
panics or hangs with new arguments has its old ones at the boot after: by itself with `panic=`, else by its power
switch. A boot without a grant brings no new arguments either.

Where GRUB cannot write its environment block (LVM, RAID, btrfs), the menu has the new arguments at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from agent.gate import Gate
from agent.host import Command
from agent.journal import Journal, JournalContent
from agent.kinds.base import WriteRefused
from agent.kinds.cmdline import GRUB_FOLDER, argument, arguments, can_fall_back, uses_drop_in
from agent.kinds.cpu_isolation import possible_cpus
from contract import isolation
from contract.isolation import Isolation

DROP_IN = "/etc/default/grub.d/90-setpoint.cfg"
"""Its 90 comes after the cloud images' 50, and it appends to the line."""
MENU = "/etc/grub.d/06_setpoint"
"""Comes before the distributions' 10_linux, whose entries use the variable."""
FALLBACK = "setpoint.fallback"
"""Argument of a boot with the arguments from before. The kernel ignores it, as it does any of an unknown module."""
ENVIRONMENT = f"{GRUB_FOLDER}/grubenv"

_FIRST = ("cmdline.default_hugepagesz", "cmdline.hugepagesz")
"""The kernel reads a page size before the count that belongs to it."""
_DROP_IN = """\
# Written by the Setpoint agent; changes here are overwritten.
GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {arguments}"
"""
_MENU = """\
#!/bin/sh
# Written by the Setpoint agent; changes here are overwritten.
exec tail -n +4 "$0"
set setpoint="{before}"
if [ -s $prefix/grubenv ]; then
  load_env setpoint_try
  if [ "$setpoint_try" = "{name}" ]; then
    set setpoint_try=
    if save_env setpoint_try; then
      set setpoint="{new}"
    fi
  fi
fi
export setpoint
"""


def written(host: Gate, content: JournalContent) -> dict[str, str]:
    """Kernel arguments that the journal says were written, by key; those of isolated CPUs each as its own."""
    done = {k: e.written for k, e in sorted(content.entries.items()) if e.done and e.written is not None}
    out = {key: value for key, value in done.items() if key.startswith("cmdline.")}
    if (isolated := done.get(isolation.KEY)) and not host.refusal(isolation.KEY, isolated):
        cpus = Isolation.of(isolated)
        if possible := possible_cpus(host) - cpus.cpus:
            derived = cpus.arguments(possible)
            out |= {f"cmdline.{name}": value for name, value in derived.items()}
    return out


def is_argument(key: str) -> bool:
    """Return whether the boot loader gives this key, which may be a newer agent's, to the kernel."""
    return key.startswith("cmdline.") or key == isolation.KEY


def settle(host: Gate, content: JournalContent) -> bool:
    """Judge the trial after a start of the agent: in the boot that it was for, the agent runs with it or without.

    Returns whether the arguments that are written now have had a boot. They may be others than those that were tried:
    a node can go down late, in the middle of another attempt. And an agent can be killed, and its node lose power,
    before the menu has them or before GRUB is told to try them.
    """
    was_written, was_tried = _is_in_the_menu(host, content), not content.trial
    if content.armed and content.armed != host.boot_id():
        content.armed = ""
        if content.trial == _name(_line(host, written(host, content))):
            if fell_back(host):
                was_tried = _had_a_name(host)
            else:
                was_tried = True
                content.booted, content.trial = written(host, content), ""
    if not content.trial and not any(map(is_argument, content.pending)):
        content.booted = written(host, content)
        # A boot without them had another menu than the journal knows: an old one, after a power cut or a restore.
        running = arguments(host.read_text("/proc/cmdline") or "").keys()
        if uses_drop_in(host) and not {key.removeprefix("cmdline.") for key in content.booted} <= running:
            content.boot_loader_stale = True
    return was_written and was_tried


def fell_back(host: Gate) -> bool:
    """Return whether this boot has the arguments from before those that wait for a boot."""
    return FALLBACK in arguments(host.read_text("/proc/cmdline") or "")


def _had_a_name(host: Gate) -> bool:
    """Return whether GRUB was told what to try: it empties the variable when it has read it, and keeps it."""
    block = host.read_text(ENVIRONMENT)
    return block is None or "setpoint_try=" in block


def _is_in_the_menu(host: Gate, content: JournalContent) -> bool:
    if not uses_drop_in(host):
        return True  # grubby has written them, or the setting is not called written
    _, files = _wanted(host, content)
    return all(host.read_text(path) == text for path, text in files.items())


def _wanted(host: Gate, content: JournalContent) -> tuple[str, dict[str, str | None]]:
    """Return the name of what is tried at the next boot, empty without a trial, and the files' texts."""
    new, before = _line(host, written(host, content)), _line(host, content.booted or {})
    trial = _name(new) if content.booted is not None and new != before and can_fall_back(host) else ""
    if not trial:
        return "", {DROP_IN: _DROP_IN.format(arguments=new) if new else None, MENU: None}
    fallback = f"{before} {FALLBACK}=1".strip()
    menu = _MENU.format(name=trial, before=fallback, new=f"panic=10 {new}".strip())
    # The variable is in the menu before the drop-in uses it: a kernel's update may run update-grub in between.
    return trial, {MENU: menu, DROP_IN: _DROP_IN.format(arguments="\\$setpoint")}


def sync(host: Gate, journal: Journal) -> None:
    """Bring GRUB's menu to the journal. Raises OSError, WriteRefused (update-grub failed)."""
    if not uses_drop_in(host):
        return
    content = journal.content
    trial, files = _wanted(host, content)
    if trial != content.trial:
        content.trial, content.armed = trial, ""
    for path, text in files.items():
        if host.read_text(path) != text:
            content.boot_loader_stale = True
            journal.save()
            host.persist(path, text, executable=path == MENU)
    if content.boot_loader_stale:
        ran = host.run(Command.UPDATE_GRUB)
        if ran.code:
            raise WriteRefused(f"update-grub answered {ran.code}: {ran.output}")
        content.boot_loader_stale = False
        journal.save()


def arm(host: Gate, journal: Journal) -> str:
    """Make the next boot the trial, if there is one; returns the reason why that is impossible. Raises OSError."""
    content = journal.content
    if not content.trial or content.boot_loader_stale:
        return ""
    if _had_a_name(host):  # an earlier trial's, by which this one would seem to have taken place
        host.run(Command.GRUB_TRY_NOTHING)
    content.armed = host.boot_id()
    journal.save()
    ran = host.run(Command.GRUB_TRY, f"setpoint_try={content.trial}")
    return f"grub-editenv answered {ran.code}: {ran.output}" if ran.code else ""


def disarm(host: Gate, content: JournalContent) -> None:
    """Take the trial back: the reboot did not begin."""
    if content.armed:
        content.armed = ""
        host.run(Command.GRUB_TRY_NOTHING)


def _name(line: str) -> str:
    """Name of these arguments in GRUB's environment block and in the journal."""
    return hashlib.sha256(line.encode()).hexdigest()[:16]


def _line(host: Gate, values: Mapping[str, str]) -> str:
    """Arguments as words of one line. What may not be written is not left to the next boot either."""
    known = [key for key, value in values.items() if not host.refuses_argument(key, value)]
    keys = [key for key in _FIRST if key in known] + [key for key in known if key not in _FIRST]
    return " ".join(argument(key, values[key]) for key in keys)
