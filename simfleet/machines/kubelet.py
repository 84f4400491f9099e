"""Start of a simulated kubelet: the unit's script first, then its files, then its managers' state files.

Of the kubelet's own rules it has the one that a change of its resource managers is about: it does not start with a
state file of another policy.
"""

from __future__ import annotations

import json

from agent import trial_files
from simfleet.machines.kernel import VirtualKernel

CONFIG, CONFIG_DIR = "/var/lib/kubelet/config.yaml", "/etc/kubernetes/kubelet.conf.d"
OWN = f"{CONFIG_DIR}/{trial_files.DROP_IN}"
STATE_FOLDER = "/var/lib/kubelet"
POLICIES = {"cpu_manager_state": ("cpuManagerPolicy", "none"), "memory_manager_state": ("memoryManagerPolicy", "None")}
STARTS = 3
"""How often systemd starts one that ends, before anyone looks: the script's second run has put everything back."""


def start(kernel: VirtualKernel, *, has_script: bool, breaks_with: str = "") -> dict[str, str] | None:
    """Return the configuration that it comes up with; None where it does not. `breaks_with`: a file it ends over."""
    for _ in range(STARTS):
        if has_script:
            run_script(kernel)
        config = read_config(kernel)
        states = {name: config.get(field, default) for name, (field, default) in POLICIES.items()}
        there = {name: kernel.disk.get(f"{STATE_FOLDER}/{name}") for name in states}
        differs = any(
            text is not None and json.loads(text)["policyName"] != states[name] for name, text in there.items()
        )
        if differs or (breaks_with and breaks_with in kernel.disk):
            continue
        for name, text in there.items():
            if text is None:
                kernel.disk[f"{STATE_FOLDER}/{name}"] = json.dumps({"policyName": states[name]})
        return config
    return None


def read_config(kernel: VirtualKernel) -> dict[str, str]:
    """Merge the fields of its files that are plain values, in its order."""
    config: dict[str, str] = {}
    for path in (CONFIG, *kernel.glob(f"{CONFIG_DIR}/*.conf")):
        text = kernel.disk[path]
        if text.startswith("{"):
            config |= {name: value for name, value in json.loads(text).items() if isinstance(value, str)}
            continue
        for line in text.splitlines():
            name, colon, value = line.partition(": ")
            if colon:
                config[name] = value
    return config


def run_script(kernel: VirtualKernel) -> None:
    """Do what agent.trial_files.script does."""
    disk, at = kernel.disk, trial_files.AT
    if disk.get(trial_files.BOOT, "").strip() != kernel.boot_id:
        for name in POLICIES:
            disk.pop(f"{STATE_FOLDER}/{name}", None)
        disk[trial_files.BOOT] = f"{kernel.boot_id}\n"
    if trial_files.APPLY in disk:
        for name in POLICIES:
            if (text := disk.pop(f"{STATE_FOLDER}/{name}", None)) is not None:
                disk[f"{at}.{name}"] = text
        _put(kernel, trial_files.NEW)
        disk[trial_files.TRIED] = disk.pop(trial_files.APPLY)
    elif trial_files.TRIED in disk:
        for name in POLICIES:
            disk.pop(f"{STATE_FOLDER}/{name}", None)
        _put(kernel, trial_files.OLD)
        for name in POLICIES:
            if (text := disk.pop(f"{at}.{name}", None)) is not None:
                disk[f"{STATE_FOLDER}/{name}"] = text
        disk[trial_files.FAILED] = disk.pop(trial_files.TRIED)


def _put(kernel: VirtualKernel, path: str) -> None:
    if path in kernel.disk:
        kernel.store(OWN, kernel.disk.pop(path) or None)
