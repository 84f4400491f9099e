"""MIG Manager: it acts upon a node's label `nvidia.com/mig.config`, and answers in `nvidia.com/mig.config.state`.

As NVIDIA's does: `pending` while it stops GPU clients and splits the GPUs, `rebooting` where the mode needs a
reboot, then `success`; `failed` for a layout that its configuration does not name.
It tries again only when the label changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from simfleet.apiserver.callers import person
from simfleet.apiserver.store import Change
from simfleet.machines import instances

if TYPE_CHECKING:
    from simfleet.core import SimCluster

CONFIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
SEES_SECONDS, SPLITS_SECONDS = 2.0, 20.0
LAYOUTS: Mapping[str, instances.Layout] = {
    "all-disabled": (),
    "all-1g.10gb": instances.ALL_1G,
    "all-3g.40gb": instances.ALL_3G,
    "all-balanced": instances.BALANCED,
}


class MigManager:
    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._acted_upon: dict[str, str] = {}
        self.is_running = True
        self.reboots: set[str] = set()
        """Nodes whose mode changes only with a reboot."""
        self.fails_on: set[str] = set()
        cluster.store.listeners.append(self._changed)

    def _changed(self, plural: str, change: Change) -> None:
        if plural != "nodes":
            return
        metadata = change.now.raw["metadata"]
        name, labels = metadata["name"], metadata.get("labels") or {}
        wanted = labels.get(CONFIG, "")
        before = self._acted_upon.get(name)
        if change.type == "DELETED":
            self._acted_upon.pop(name, None)
        elif before is None and (not wanted or labels.get(STATE) == "success"):
            self._acted_upon[name] = wanted  # as it was when this manager began
        elif before != wanted:
            self._acted_upon[name] = wanted
            if wanted:
                self._cluster.after(SEES_SECONDS, lambda: self._begin(name, wanted))

    def _says(self, name: str, wanted: str, state: str) -> bool:
        """Label the node with a state.

        Returns False if its configuration changed meanwhile, the node is gone, or mig-manager is not running.
        """
        node = self._cluster.store.find("nodes", name)
        if not self.is_running or node is None or (node.raw["metadata"].get("labels") or {}).get(CONFIG) != wanted:
            return False
        self._cluster.api.patch(person("mig-manager"), "nodes", name, {"metadata": {"labels": {STATE: state}}})
        return True

    def _begin(self, name: str, wanted: str) -> None:
        if self._says(name, wanted, "pending"):
            self._cluster.after(SPLITS_SECONDS, lambda: self._split(name, wanted))

    def _split(self, name: str, wanted: str) -> None:
        machine = self._cluster.nodes.machine(name)
        if wanted not in LAYOUTS or name in self.fails_on or machine is None:
            self._says(name, wanted, "failed")
        elif name in self.reboots and self._says(name, wanted, "rebooting"):
            self._cluster.nodes.reboot(name)
            self._cluster.after(machine.hardware.boot_seconds + SPLITS_SECONDS, lambda: self._end(name, wanted))
        else:
            self._end(name, wanted)

    def _end(self, name: str, wanted: str) -> None:
        machine, node = self._cluster.nodes.machine(name), self._cluster.store.find("nodes", name)
        if machine is None or node is None or not self._says(name, wanted, "success"):
            return
        node = self._cluster.store.get("nodes", name)
        offers = instances.offered(machine.hardware.gpus, LAYOUTS[wanted])
        status = node.raw["status"]
        for field in ("capacity", "allocatable"):
            rest = {k: v for k, v in status[field].items() if k not in instances.counted(status[field])}
            status = status | {field: rest | offers}
        self._cluster.store.write("nodes", node.raw | {"status": status})
