"""Each component of the catalog that no operation of the table tries: planned and installed on a real API server.

With the values of the catalog, by the identities of the manifests. kwok's nodes run nothing, so a chart whose hooks
wait for a pod ends at the deadline. No third party's chart is committed: see test_real_archives.py.
"""

from __future__ import annotations

import time

import pytest

from components.catalog.entry import Component
from components.charts import archives
from components.plans.prepared import Prepared
from components.release import work
from profiles.content.cluster import WantedComponent
from tests.components.charts.test_real_archives import COMPONENTS, IS_ALL, answered, archive_of
from tests.full.components.test_rights import Place, cluster, failed, fenced, lacking
from tests.full.harness.charts.cases import CASES
from tests.full.harness.client import eventually

__all__ = ["cluster", "fenced"]
pytestmark = pytest.mark.django_db
EVERY_RUN = ("node-problem-detector",)
"""Each takes half a minute with each helm: all are tried with SETPOINT_ALL_CHARTS=1."""
TRIED = [
    component
    for component in COMPONENTS
    if component.name not in {case.name for case in CASES} and (component.name in EVERY_RUN or IS_ALL)
]
HOOKS = {"argo-cd", "velero", "vertical-pod-autoscaler"}
"""Of these a hook waits for its pod before or behind the install."""
REMOVAL_HOOKS = {*HOOKS, "kyverno", "spegel"}
SECONDS = 45.0


class Installed(Place):
    """A component of the catalog, as it is."""

    def __init__(self, cluster, plane, component: Component) -> None:
        self.cluster, self.plane, self.component, self.name = cluster, plane, component, component.name
        archives.store(archive_of(component), origin="uploaded", by="admin")

    def prepare(self) -> Prepared:
        wanted = WantedComponent(self.name, self.component.newest, values=answered(self.component, ()))
        return Prepared.from_json(work.prepare(self.cluster, wanted).to_json())

    def carry_out(self, prepared: Prepared, direction: str = "forward") -> None:
        limits = {"deadline": time.monotonic() + SECONDS, "stop": lambda: False, "tell": lambda line: None}
        work.carry_out(self.cluster, prepared, direction=direction, **limits)

    def record(self) -> str:
        """helm's, of this release."""
        where = ("-n", self.component.namespace, "-l", f"owner=helm,name={self.name}")
        return self.plane.kubectl("get", "secret", *where, "-o", "name")

    def tidy(self) -> None:
        """Delete what a removal left that waits for a pod, which would block the next chart."""
        where = ("-n", self.component.namespace, "-l", f"owner=helm,name={self.name}")
        self.plane.kubectl("delete", "secret", *where, "--ignore-not-found")
        hooks = "mutatingwebhookconfiguration,validatingwebhookconfiguration,apiservice"
        self.plane.kubectl("delete", hooks, "-l", "app.kubernetes.io/managed-by=Helm", "--ignore-not-found")
        if self.component.namespace != "kube-system":
            # The node goes with the test, and nothing ends the pods on it, for which the namespace would wait.
            here = ("--all", "-n", self.component.namespace)
            self.plane.kubectl("delete", "daemonsets,deployments,statefulsets,jobs", *here)
            self.plane.kubectl("delete", "pods", *here, "--force", "--grace-period=0")
            self.plane.kubectl("delete", "namespace", self.component.namespace, "--wait=false", "--ignore-not-found")
        self.revoke()


@pytest.mark.skipif(not TRIED, reason="needs charts: there are no archives")
@pytest.mark.parametrize("component", TRIED, ids=lambda component: component.name)
def test_a_component_is_planned_and_installed_with_the_catalogs_values_and_removed(cluster, fenced, component):
    place = Installed(cluster, fenced, component)
    try:
        first = place.prepare()
        place.grant(first)
        prepared = eventually(lambda: None if lacking(prepared := place.prepare()) else prepared, seconds=30)
        assert [note.title for note in prepared.notes if note.severity == "block"] == []
        assert prepared.action == "install"

        why = failed(lambda: place.carry_out(prepared))
        assert why == "" or component.name in HOOKS, why
        assert place.record() or component.name in HOOKS

        why = failed(lambda: place.carry_out(prepared, "revert"))
        assert why == "" or component.name in REMOVAL_HOOKS, why
        assert not place.record() or component.name in REMOVAL_HOOKS
    finally:
        place.tidy()
