"""Plans of policy objects and what their rollouts leave in the cluster, for tests."""

from __future__ import annotations

from typing import Any

from clusters.fleet import NotFound, ObjectRef
from compliance.checks import components
from compliance.models import ComponentStanding
from jobs.models import Plan, Rollout
from profiles.document import schema
from simfleet.apiserver.callers import person
from tests.jobs.conftest import World
from tests.jobs.releases import wanted

FIRST, QUEUES = "policy objects", "queues of volcano"
TEAM = """
  - {apiVersion: v1, kind: Namespace, metadata: {name: team-a}}
  - apiVersion: v1
    kind: ResourceQuota
    metadata: {name: gpus, namespace: team-a}
    spec: {hard: {requests.nvidia.com/gpu: "GPUS"}}
  - {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: training}, value: 10000}
"""
QUEUE = """
  - {apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: research}, spec: {weight: 4}}
"""
GPUS_FIELD = "requests.nvidia.com/gpu"
QUOTA = ObjectRef("v1", "ResourceQuota", "gpus", "team-a")
PRIORITY = ObjectRef("scheduling.k8s.io/v1", "PriorityClass", "training")
RESEARCH = ObjectRef("scheduling.volcano.sh/v1beta1", "Queue", "research")
SPACE = ObjectRef("v1", "Namespace", "team-a")
DEFINITION = {
    "metadata": {"name": "queues.scheduling.volcano.sh"},
    "spec": {
        "group": "scheduling.volcano.sh",
        "scope": "Cluster",
        "names": {"plural": "queues", "kind": "Queue"},
        "versions": [{"name": "v1beta1", "served": True, "storage": True}],
    },
}


def bring_queues(world: World) -> None:
    """Create what Volcano's chart creates."""
    with world.sim.lock:
        if world.sim.store.find("customresourcedefinitions", DEFINITION["metadata"]["name"]) is None:
            world.sim.api.create(person("helm"), "customresourcedefinitions", DEFINITION)


def plan_of(world: World, text: str, *names: str, gpus: int = 8, settings: Any = None, **strategy: Any) -> Plan:
    source = "policies:" + text.replace("GPUS", str(gpus))
    objects = schema.flatten(schema.parse(source), None, origin="gpu r1").content.policies
    return world.plan(world.revision(settings or {}, policies=objects, components=wanted(*names)), **strategy)


def outcomes(rollout: Rollout) -> dict[str, str]:
    return {s.name: s.status for s in rollout.steps.of_components()}


def there(world: World, ref: ObjectRef) -> dict[str, Any] | None:
    try:
        return world.fleet.policy(ref)
    except NotFound:
        return None


def edit(world: World, plural: str, name: str, change: dict[str, Any], namespace: str = "") -> None:
    world.sim.api.patch(person("alice"), plural, name, change, namespace)


def standing(world: World) -> str:
    """Return the state of the cluster's policy objects, as compliance sees them now."""
    components.reconcile()
    row = ComponentStanding.objects.get(cluster=world.cluster, kind=ComponentStanding.Kind.POLICIES)
    assert components.check(row.pk)
    row.refresh_from_db()
    return row.state


def sentence(world: World) -> str:
    return ComponentStanding.objects.get(cluster=world.cluster, kind=ComponentStanding.Kind.POLICIES).sentence


def blocks(plan: Plan) -> list[str]:
    return [f["code"] for f in plan.findings if f["severity"] == "block"]
