"""The catalog's own components through helm v3 into the simulated fleet, as the engine asks for it.

The same over both helms and the real control plane, with all that goes wrong: tests/full/components/test_components.py.
"""

from __future__ import annotations

import time

import pytest

from components.catalog import catalog
from components.charts import archives
from components.plans.prepared import Prepared, ReadinessResult
from components.release import conformance, work
from config.demo import packing
from profiles.content.cluster import WantedComponent
from simfleet.apiserver.callers import person
from tests.clusters.factories import ClusterFactory, reached_with
from tests.components.packing import entry, versioned
from tests.simfleet.site import Site

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]  # helm and an API server
GPU_NODE = {"nvidia.com/gpu.present": "true", "feature.node.kubernetes.io/pci-10de.present": "true"}


class World:
    def __init__(self, site: Site) -> None:
        self.site = site
        self.cluster = reached_with(ClusterFactory(), site.credentials)

    def prepare(self, name: str, version: str, **values) -> Prepared:
        made = work.prepare(self.cluster, WantedComponent(name, version, values=values))
        return Prepared.from_json(made.to_json())

    def carry_out(self, prepared: Prepared, direction: str = "forward") -> list[str]:
        lines: list[str] = []
        deadline = time.monotonic() + 60
        how = {"deadline": deadline, "stop": lambda: False, "tell": lines.append}
        work.carry_out(self.cluster, prepared, direction=direction, **how)
        return lines

    def look(self, prepared: Prepared, direction: str = "forward") -> ReadinessResult:
        return work.check_readiness(self.cluster, prepared, direction=direction)

    def until_ready(self, prepared: Prepared, direction: str = "forward") -> list[str]:
        """Look until the component is ready; return what was missing meanwhile."""
        missing: list[str] = []
        until = time.monotonic() + 40
        while not (look := self.look(prepared, direction)).is_ready:
            missing.append(look.missing)
            assert time.monotonic() < until, look
            time.sleep(0.1)
        return missing


@pytest.fixture
def world(tmp_path, settings):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    site = Site(tmp_path)
    for name in ("n1", "n2"):
        site.sim.add_node(name, gpus=8, labels=GPU_NODE)
    yield World(site)
    site.close()


def version_of(name: str) -> str:
    return archives.store(packing.pack(packing.CHARTS / name), origin="uploaded").version


@pytest.mark.parametrize(
    ("name", "values"),
    [("volcano", {}), ("gpu-operator", {}), ("cilium", {"k8sServiceHost": "10.0.0.1", "k8sServicePort": 6443})],
)
def test_a_component_is_planned_installed_seen_ready_and_removed(world, name, values):
    prepared = world.prepare(name, version_of(name), **values)
    assert prepared.action == "install"
    assert [note for note in prepared.notes if note.severity == "block"] == []
    assert {difference.change for difference in prepared.objects} <= {"created", "unvalidated"}
    assert len(prepared.objects) > 3

    assert not world.look(prepared).is_ready
    world.carry_out(prepared)
    missing = world.until_ready(prepared)
    assert all(sentence.endswith(".") for sentence in missing)
    assert world.carry_out(prepared) == [f"{name} is installed already."]
    assert world.prepare(name, version_of(name), **values).action == "none"

    world.carry_out(prepared, "revert")
    world.until_ready(prepared, "revert")
    assert world.site.helm("list", "--all-namespaces", "--short") == ""


def test_what_somebody_upgraded_meanwhile_fails_at_once_and_in_words(world):
    version = version_of("volcano")
    prepared = world.prepare("volcano", version)
    world.carry_out(prepared)
    assert not world.look(prepared).failed
    world.carry_out(world.prepare("volcano", version, custom={"scheduler_replicas": 2}))

    look = world.look(prepared)
    assert not look.is_ready
    assert look.failed == "Revision 2 of volcano is not of this plan: the release was changed meanwhile."


def test_a_custom_resource_that_somebody_changed_is_planned_and_put_back_though_helm_does_not_look_at_it(world):
    wanted = ("gpu-operator", version_of("gpu-operator"))
    world.carry_out(first := world.prepare(*wanted))
    world.until_ready(first)
    policies = world.site.sim.kind_key("nvidia.com/v1", "ClusterPolicy")
    assert policies
    approved = world.site.object(policies, "cluster-policy")["spec"]
    change = {"spec": {"driver": {"enabled": not approved["driver"]["enabled"], "mine": "kept"}}}
    with world.site.sim.lock:
        world.site.sim.api.patch(person("mallory"), policies, "cluster-policy", change)
    seen = conformance.conform(world.cluster, WantedComponent(*wanted))
    assert (seen.state, seen.differences[0].path) == ("drifted", "spec.driver.enabled")

    repair = world.prepare(*wanted)
    assert (repair.action, [(difference.change, difference.name) for difference in repair.objects]) == (
        "upgrade",
        [("changed", "cluster-policy")],
    )
    assert "ClusterPolicy cluster-policy is put back to what was approved." in world.carry_out(repair)
    assert world.site.object(policies, "cluster-policy")["spec"] == approved | {
        "driver": approved["driver"] | {"mine": "kept"}
    }
    again = world.prepare(*wanted)
    assert (again.action, [note.code for note in again.notes]) == ("none", []), "nothing is done, nothing comes of it"


NUMBERED = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: tiny}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: tiny}}
  template:
    metadata: {labels: {app: tiny}, annotations: {rollme/helm-revision: {{ .Release.Revision | quote }}}}
    spec: {containers: [{name: main, image: registry.example.org/tiny}]}
"""
"""As Volcano's chart makes its admission server restart with each revision."""


def test_a_revisions_number_is_no_reason_for_an_upgrade_and_is_shown_with_one(world, tmp_path):
    archives.store(versioned("tiny", "1.0.0", NUMBERED, "replicas: 1\n"), origin="uploaded")
    (tmp_path / "tiny.yaml").write_text(entry("tiny", "1.0.0", workload="Deployment/tiny"))
    with catalog.extended(tmp_path):
        for replicas in (1, 2):
            world.carry_out(world.prepare("tiny", "1.0.0", replicas=replicas))
        assert world.prepare("tiny", "1.0.0", replicas=2).action == "none"

        again = world.prepare("tiny", "1.0.0", replicas=3)
        [changed] = again.objects
        assert "+        rollme/helm-revision: '3'" in changed.diff
        assert "restart" in {note.code for note in again.notes}
        world.carry_out(again)
        assert world.prepare("tiny", "1.0.0", replicas=3).action == "none"
        world.carry_out(again, "revert")
        assert world.prepare("tiny", "1.0.0", replicas=2).action == "none", "a rollback has the objects of before"
