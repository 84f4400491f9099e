"""The role that a component's rendered chart asks for, on a real API server: enough, and not more than is noticed.

No third party's chart is committed: see tests/components/charts/test_real_charts.py.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from clusters.connection import helm_credentials
from clusters.fleet import FleetError, Forbidden
from clusters.models import Cluster
from components.access import rights
from components.catalog import catalog
from components.charts import archives
from components.helm.client import HelmError
from components.plans.prepared import Prepared
from components.release import work
from contract import names
from profiles.content.cluster import WantedComponent
from tests.clusters.factories import ClusterFactory, reached_with
from tests.components.charts.test_real_charts import CHARTS
from tests.components.packing import entry, versioned
from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.components.tiny_chart import COMPONENTS
from tests.full.harness import definitions
from tests.full.harness.client import eventually

pytestmark = pytest.mark.django_db
NEWEST = ("cilium-1.20.0.tgz", "gpu-operator-v26.7.0.tgz", "volcano-1.15.1.tgz")
"""Each takes a quarter of a minute with each helm: all of some 70 are tried with SETPOINT_ALL_CHARTS=1."""
ARCHIVES = [
    path
    for path in sorted((CHARTS / "archives").glob("*.tgz"))
    if path.name in NEWEST or os.environ.get("SETPOINT_ALL_CHARTS") == "1"
]
RIGHTS = ("rights", "rights-dangerous")
OF_RIGHTS = (
    " is forbidden: User ",
    "not currently held",
    "cluster-admin privileges",
    'bindings.rbac.authorization.k8s.io "',  # the role of a binding is looked for only where the right to bind lacks
)
"""In helm's output."""


@pytest.fixture(scope="module")
def fenced(deployed: Plane) -> Iterator[Plane]:
    deployed.kubectl("apply", "-f", str(COMPONENTS))
    yield deployed
    deployed.kubectl("delete", "-f", str(COMPONENTS))


@pytest.fixture
def cluster(
    helm: str,
    fenced: Plane,
    cluster_admin: Admin,
    a_node: Callable[..., dict[str, Any]],
    settings: Any,
) -> Iterator[Cluster]:
    """Cluster in which exactly the identities of the manifests plan and install."""
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    made = reached_with(ClusterFactory(), fenced.credentials(token=cluster_admin.controller_token()))
    helm_credentials.store(made, cluster_admin.token(names.HELM_ISSUER_SERVICE_ACCOUNT), by="a test")
    a_node(labels={"kubernetes.io/os": "linux"})
    eventually(lambda: not leaving(fenced), lambda: leaving(fenced), seconds=60)
    before = definitions.present(fenced)
    yield made
    # What one chart leaves, another of the same kinds would be judged by.
    definitions.delete(fenced, definitions.present(fenced) - before)


def leaving(plane: Plane) -> list[str]:
    """Namespaces that a chart brought and a test before this one took away: nothing can be made in them yet."""
    shown = plane.kubectl(
        "get", "namespaces", "-o", "jsonpath={range .items[*]}{.metadata.name} {.status.phase}\n{end}"
    )
    rows = [line.split() for line in shown.splitlines() if line.strip()]
    return [name for name, phase in rows if phase == "Terminating" and not name.startswith("real-")]


class Place:
    """One chart in one cluster, as a component of the catalog that is used nowhere else."""

    def __init__(
        self, cluster: Cluster, plane: Plane, content: bytes, folder: Path, values: Mapping[str, Any] | None = None
    ) -> None:
        self.values = dict(values or {})
        self.cluster, self.plane, self.name = cluster, plane, f"real-{time.monotonic_ns() % 10**8}"
        self.chart = archives.store(content, origin="uploaded", by="admin")
        text = entry(self.name, self.chart.version, workload="Deployment/any", namespace=self.name)
        text = text.replace(f"chart: {self.name}}}", f"chart: {self.chart.name}}}")
        (folder / f"{self.name}.yaml").write_text(text.replace("pod_security: baseline", "pod_security: privileged"))
        self._folder = folder

    def prepare(self) -> Prepared:
        with catalog.extended(self._folder):
            made = work.prepare(self.cluster, WantedComponent(self.name, self.chart.version, values=self.values))
        return Prepared.from_json(made.to_json())

    def carry_out(self, prepared: Prepared, direction: str = "forward") -> None:
        limits = {"deadline": time.monotonic() + 120, "stop": lambda: False, "tell": lambda line: None}
        with catalog.extended(self._folder):
            work.carry_out(self.cluster, prepared, direction=direction, **limits)

    def grant(self, prepared: Prepared, *, is_whole: bool = True, without: str = "") -> None:
        """Grant what the plan shows, less one resource, as the cluster's administrator does."""
        assert prepared.authority
        needs = tuple(right for right in prepared.authority.rights if not without or without not in right.resources)
        role = rights.Rights(self.name, needs, release=prepared.release)
        text = role.text(is_whole=is_whole)
        for space, more in re.findall(r"^# .*: kubectl create namespace (\S+)(.*)$", text, re.MULTILINE):
            if not self._has(space):
                self.plane.kubectl("create", "namespace", space)
                for command in more.split(" && kubectl ")[1:]:
                    self.plane.kubectl(*command.split())
        if role.objects(is_whole=is_whole):
            self.plane.kubectl("apply", "-f", "-", text=text)

    def _has(self, space: str) -> bool:
        return bool(self.plane.kubectl("get", "namespace", space, "--ignore-not-found", "-o", "name"))

    def records(self) -> str:
        """helm's, of this release."""
        return self.plane.kubectl("get", "secret", "-l", "owner=helm", "-n", self.name, "-o", "name")

    def revoke(self) -> None:
        role = f"setpoint-component-{self.name}"
        self.plane.kubectl("delete", "clusterrolebinding,clusterrole", role, "--ignore-not-found")

    def tidy(self) -> None:
        """Delete helm's records and the webhooks that a chart leaves, which would block the next chart."""
        self.plane.kubectl("delete", "secret", "-l", "owner=helm", "-n", self.name, "--ignore-not-found")
        hooks = "mutatingwebhookconfiguration,validatingwebhookconfiguration,apiservice"
        self.plane.kubectl("delete", hooks, "-l", "app.kubernetes.io/managed-by=Helm", "--ignore-not-found")
        self.plane.kubectl("delete", "namespace", self.name, "--wait=false", "--ignore-not-found")
        self.revoke()


def lacking(prepared: Prepared) -> list[str]:
    return [note.code for note in prepared.notes if note.code in RIGHTS and note.severity == "block"]


@pytest.mark.skipif(not ARCHIVES, reason=f"needs charts: there are no archives in {CHARTS}")
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.stem)
def test_the_generated_role_is_all_that_a_real_chart_needs(cluster, fenced, archive, tmp_path, record_property):
    """The role suffices to plan, install and revert with Setpoint's own identities; other failures do not count."""
    try:
        place = Place(cluster, fenced, archive.read_bytes(), tmp_path)
    except archives.BadArchive:
        return  # which tests/components/charts/test_real_archives.py is about
    plans: list[Prepared] = []
    if why := failed(lambda: plans.append(place.prepare())):
        record_property("not planned", why)
        return  # it does not render with its own values alone
    try:
        place.grant(plans[0])
        prepared = eventually(lambda: None if lacking(again := place.prepare()) else again, seconds=30)
        if blocks := [note.title for note in prepared.notes if note.severity == "block"]:
            record_property("blocked", "; ".join(blocks))
            return
        record_property("installed", failed(lambda: place.carry_out(prepared)) or "well")
        # A hook may wait for its pod to do something, and kwok's do nothing.
        why = failed(lambda: place.carry_out(prepared, "revert"))
        assert why == "" or "at the deadline" in why
    finally:
        place.tidy()


def failed(what: Callable[[], Any]) -> str:
    """Return why a call failed, empty if it did not. Fails the test itself for a missing right."""
    try:
        what()
    except (FleetError, HelmError) as error:
        is_of_rights = isinstance(error, Forbidden) or any(word in str(error) for word in OF_RIGHTS)
        if is_of_rights:
            raise
        return str(error)
    return ""


TWICE = {
    "node-feature-discovery-0.19.0.tgz": {"postDeleteCleanup": False},
    "gpu-operator-v26.7.0.tgz": {"node-feature-discovery": {"postDeleteCleanup": False}},
}
"""Of each the definitions are in `crds/`. Their clean-up is a hook that waits for a pod, and kwok's do nothing."""


@pytest.mark.long
@pytest.mark.skipif(not ARCHIVES, reason=f"needs charts: there are no archives in {CHARTS}")
@pytest.mark.parametrize("archive", TWICE)
def test_a_real_chart_is_installed_again_over_the_definitions_that_its_removal_left(cluster, fenced, archive, tmp_path):
    """The first install has none of its kinds in the cluster, the second has all of them: helm v4 plans both."""
    content = (CHARTS / "archives" / archive).read_bytes()
    place = Place(cluster, fenced, content, tmp_path, TWICE[archive])
    try:
        place.grant(place.prepare())
        for time_ in ("first", "second"):
            prepared = eventually(lambda: None if lacking(prepared := place.prepare()) else prepared, seconds=60)
            assert [note.title for note in prepared.notes if note.severity == "block"] == [], time_
            assert (prepared.action, [n.code for n in prepared.notes if n.code == "not-looked-up"]) == ("install", [])
            place.carry_out(prepared)
            assert place.records(), time_
            place.carry_out(prepared, "revert")
            assert not place.records(), time_
    finally:
        place.tidy()


OWN_SPACE = """\
apiVersion: v1
kind: Namespace
metadata: {name: {{ .Release.Namespace }}-secrets}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reads, namespace: {{ .Release.Namespace }}-secrets}
rules: [{apiGroups: [example.org], resources: [things], verbs: [get]}]
"""
"""As Cilium's chart does with cilium-secrets."""


@pytest.mark.long
def test_a_chart_with_a_namespace_of_its_own_installs_over_the_one_that_its_role_needs_first(cluster, fenced, tmp_path):
    place = Place(cluster, fenced, versioned("spaces", "1.0.0", OWN_SPACE), tmp_path)
    try:
        first = place.prepare()
        assert lacking(first) == ["rights"]
        place.grant(first)
        prepared = eventually(lambda: None if lacking(prepared := place.prepare()) else prepared, seconds=30)
        assert [note.title for note in prepared.notes if note.severity == "block"] == []
        place.carry_out(prepared)
        assert place.records()
    finally:
        place.tidy()
        fenced.kubectl("delete", "namespace", f"{place.name}-secrets", "--wait=false", "--ignore-not-found")


# ── One rule less ─────────────────────────────────────────────────────────────────────────────────────────────────────
OPERATOR = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: {{ .Release.Namespace }}}
rules:
- {apiGroups: [example.org], resources: [things], verbs: [get, update]}
- {apiGroups: [example.org], resources: [others], verbs: [get]}
- {nonResourceURLs: [/metrics], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: {{ .Release.Namespace }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .Release.Namespace }}}
subjects: [{kind: ServiceAccount, name: operator, namespace: {{ .Release.Namespace }}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reads}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: operator, namespace: {{ .Release.Namespace }}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
"""


def test_with_one_rule_less_it_is_found_in_the_plan_and_just_before_helm(cluster, fenced, tmp_path):
    place = Place(cluster, fenced, versioned("operator", "1.0.0", OPERATOR), tmp_path)
    try:
        first = place.prepare()
        assert lacking(first) == ["rights"]
        place.grant(first)
        whole = eventually(lambda: None if lacking(prepared := place.prepare()) else prepared, seconds=30)

        for resource, right in (("things", "update things.example.org"), ("clusterroles", "bind clusterroles")):
            place.grant(first, without=resource)
            poor = eventually(lambda: prepared if lacking(prepared := place.prepare()) else None, seconds=30)
            [note] = [note for note in poor.notes if note.code == "rights"]
            assert right in note.title
            with pytest.raises(Forbidden, match="helm has not begun"):
                place.carry_out(whole)
            assert not place.records(), "nothing was done"

        place.grant(first)
        eventually(lambda: not lacking(place.prepare()), seconds=30)
        place.carry_out(whole)
        assert place.records()
        place.revoke()
        place.carry_out(whole, "revert")  # to take it away, nothing need be granted
        assert not place.records()
    finally:
        place.tidy()
