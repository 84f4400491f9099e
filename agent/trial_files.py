"""Files of a change of the kubelet's resource managers on trial: see agent.manager_trial."""

from __future__ import annotations

from contract.resource_managers import CPU_POLICY, MEMORY_POLICY

DROP_IN = "99-zz-setpoint-managers.conf"
"""In the kubelet's --config-dir. Apart from its other fields: an agent that does not know these leaves it alone."""
FOLDER = "/etc/systemd/system/kubelet.service.d"
UNIT = f"{FOLDER}/98-setpoint-trial.conf"
SCRIPT = f"{FOLDER}/setpoint-trial.sh"
AT = f"{FOLDER}/setpoint-trial"
NEW, OLD = f"{AT}.new", f"{AT}.old"
"""Drop-ins of after and before; an empty file is none."""
APPLY, TRIED, FAILED = f"{AT}.apply", f"{AT}.tried", f"{AT}.failed"
"""One file that the script renames: how far the trial is."""
BOOT = f"{AT}.boot"
STATES = {"cpu_manager_state": CPU_POLICY, "memory_manager_state": MEMORY_POLICY}
"""Per state file, the key of the policy that it names."""
FILES: frozenset[str] = frozenset(
    {UNIT, SCRIPT, NEW, OLD, APPLY, TRIED, FAILED, BOOT, *(f"{AT}.{name}" for name in STATES)}
)
UNIT_TEXT = f"""\
# Written by the Setpoint agent; changes here are overwritten.
[Service]
ExecStartPre=-/bin/sh {SCRIPT}
"""
_SCRIPT = """\
# Written by the Setpoint agent; changes here are overwritten. Runs before each start of the kubelet.
at={root}/etc/systemd/system/kubelet.service.d/setpoint-trial
own={root}{own}
state={root}/var/lib/kubelet
names="cpu_manager_state memory_manager_state"
put() {{
  [ -e "$1" ] || return 0
  if [ -s "$1" ]; then mv -f "$1" "$own"; else rm -f "$own" "$1"; fi
}}
read -r boot < {root}/proc/sys/kernel/random/boot_id
if [ "$(cat "$at.boot")" != "$boot" ]; then
  for name in $names; do rm -f "$state/$name"; done
  echo "$boot" > "$at.boot"
fi
if [ -e "$at.apply" ]; then
  for name in $names; do [ ! -e "$state/$name" ] || mv -f "$state/$name" "$at.$name"; done
  put "$at.new"
  mv -f "$at.apply" "$at.tried"
elif [ -e "$at.tried" ]; then
  for name in $names; do rm -f "$state/$name"; done
  put "$at.old"
  for name in $names; do [ ! -e "$at.$name" ] || mv -f "$at.$name" "$state/$name"; done
  mv -f "$at.tried" "$at.failed"
fi
sleep 1
"""
"""The second at the end lets the kubelet's start be later than its files, by the clock in which processes count."""


def script(folder: str, root: str = "") -> str:
    return _SCRIPT.format(own=f"{folder}/{DROP_IN}", root=root)
