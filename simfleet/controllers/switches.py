"""Faults that can be switched on with kubectl: a ConfigMap names them, and its deletion ends them.

    kubectl -n kube-system create configmap simulated-faults --from-literal='missing=*/vc-*:*'

    missing      images that no registry has, as patterns, by spaces
    crashing     images that end as soon as they have started
    unreachable  resources; when the next object of one is created, the API server is gone for UNREACHABLE_SECONDS

The equivalent of `sim.programs` and `sim.faults` for tests that reach a simulated cluster through its API alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simfleet.apiserver.faults import Rule
from simfleet.apiserver.store import Change
from simfleet.controllers.programs import Program

if TYPE_CHECKING:
    from simfleet.core import SimCluster

NAMESPACE, NAME = "kube-system", "simulated-faults"
UNREACHABLE_SECONDS = 20.0


class Switches:
    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._programs: tuple[Program, ...] = ()
        self._rules: tuple[Rule, ...] = ()
        cluster.store.listeners.append(self._changed)

    def _changed(self, plural: str, change: Change) -> None:
        if plural != "configmaps" or change.now.key != (NAMESPACE, NAME):
            return
        for program in self._programs:
            self._cluster.programs.remove(program)
        rules = self._cluster.faults.rules
        rules[:] = [rule for rule in rules if not any(rule is ours for ours in self._rules)]
        data = {} if change.type == "DELETED" else change.now.raw.get("data") or {}
        missing = [Program(image, is_missing=True) for image in data.get("missing", "").split()]
        crashing = [Program(image, crashes=True) for image in data.get("crashing", "").split()]
        self._programs = (*missing, *crashing)
        self._cluster.programs.add(*self._programs)
        self._rules = tuple(
            self._cluster.faults.add(
                "vanish", verb="create", resource=resource, times=1, outage_seconds=UNREACHABLE_SECONDS
            )
            for resource in data.get("unreachable", "").split()
        )
