"""Policy objects on the real control plane: with a role of their own, taken as shown; and the whole job over REST."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clusters.fleet import FleetError, NotFound, ObjectRef
from clusters.kube import managed_fields
from clusters.kube.fleet import KubeFleet
from components.policies import policy_objects
from components.policies.policy_objects import PreparedPolicies
from profiles.document import schema
from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.harness import definitions, equipping
from tests.full.harness.client import eventually
from tests.full.harness.equipping import DEPLOY
from tests.full.harness.kwok_fleet import KwokFleet
from tests.full.harness.laws import POLICIES
from tests.full.harness.site import Site

pytestmark = pytest.mark.full

TEAM = """
policies:
  - {apiVersion: v1, kind: Namespace, metadata: {name: TEAM, labels: {team: a}}}
  - apiVersion: v1
    kind: ResourceQuota
    metadata: {name: gpus, namespace: TEAM}
    spec: {hard: {requests.nvidia.com/gpu: "8", requests.nvidia.com/mig-1g.10gb: "4", requests.rdma/hca: "2"}}
  - apiVersion: v1
    kind: LimitRange
    metadata: {name: pods, namespace: TEAM}
    spec: {limits: [{type: Container, default: {memory: 4Gi}, defaultRequest: {memory: 1Gi}}]}
  - {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: TEAM}, value: 10000}
  - {apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: TEAM}, handler: nvidia}
"""
QUEUES = """\
  - apiVersion: scheduling.volcano.sh/v1beta1
    kind: Queue
    metadata: {name: research}
    spec: {weight: 4, capability: {nvidia.com/gpu: "16"}, reclaimable: true}
  - apiVersion: scheduling.volcano.sh/v1beta1
    kind: Queue
    metadata: {name: research-night}
    spec: {weight: 1, parent: research}
"""


@pytest.fixture
def team(deployed: Plane) -> Iterator[str]:
    name = f"team-{time.monotonic_ns() % 10**9}"
    yield name
    for kind in ("namespace", "priorityclass", "runtimeclass"):
        deployed.kubectl("delete", kind, name, "--ignore-not-found")


@pytest.fixture
def may(deployed: Plane, controller_fleet: KubeFleet) -> Iterator[None]:
    """The role for policy objects, as soon as the API server knows it."""
    deployed.kubectl("apply", "-f", str(DEPLOY / "setpoint-policies.yaml"))
    probe = ObjectRef("node.k8s.io/v1", "RuntimeClass", "probe")

    def is_known() -> bool:
        try:
            controller_fleet.policy(probe)
        except NotFound:
            return True
        except FleetError:
            return False
        return True

    eventually(is_known)
    yield
    deployed.kubectl("delete", "-f", str(DEPLOY / "setpoint-policies.yaml"))


def prepare(fleet: KubeFleet, team: str, **how: str) -> PreparedPolicies:
    text = TEAM.replace("TEAM", team)
    for old, new in how.items():
        text = text.replace(f'{old}: "8"', f'{old}: "{new}"')
    made = policy_objects.prepare(fleet, schema.flatten(schema.parse(text), None, origin="a r1").content.policies)
    return PreparedPolicies.from_json(made.to_json())


def carry_out(fleet: KubeFleet, prepared: PreparedPolicies, direction: str = "forward") -> list[str]:
    lines: list[str] = []
    ends: dict[str, Any] = {"deadline": time.monotonic() + 60, "stop": lambda: False, "tell": lines.append}
    policy_objects.carry_out(fleet, prepared, direction=direction, **ends)
    eventually(lambda: policy_objects.check_readiness(fleet, prepared, direction=direction).is_ready)
    return lines


def test_without_the_role_the_plan_says_which_file_to_apply(controller_fleet: KubeFleet, team: str) -> None:
    refused = [note for note in prepare(controller_fleet, team).notes if note.severity == "block"]

    assert len(refused) == 5
    assert all(note.code == "policy-refused" and "deploy/setpoint-policies.yaml" in note.detail for note in refused)


@pytest.mark.usefixtures("may")
def test_with_it_they_go_there_stay_without_drift_and_go_back(
    controller_fleet: KubeFleet, cluster_admin: Admin, team: str, deployed: Plane
) -> None:
    fleet = controller_fleet
    prepared = prepare(fleet, team)
    assert [note.code for note in prepared.notes] == ["namespace-stays"]
    assert {policy.ref.kind: policy.change for policy in prepared.objects} == {
        "Namespace": "created",
        "PriorityClass": "created",
        "RuntimeClass": "created",
        "LimitRange": "unvalidated",
        "ResourceQuota": "unvalidated",
    }
    carry_out(fleet, prepared)
    carry_out(fleet, prepared)
    # The quota's controller fills its status meanwhile, and the API server defaults what we left out: no drift of ours.
    quota = eventually(lambda: "hard" in cluster_admin.get("resourcequotas", "gpus", team).get("status", {}))
    assert quota
    again = prepare(fleet, team)
    assert ([policy.change for policy in again.objects], again.changes) == (["same"] * 5, 0)

    more = prepare(fleet, team, **{"requests.nvidia.com/gpu": "16"})
    [changed] = [policy for policy in more.objects if policy.change == "changed"]
    assert "-    requests.nvidia.com/gpu: '8'" in changed.diff
    carry_out(fleet, more)
    carry_out(fleet, more, "revert")
    assert prepare(fleet, team).changes == 0, "a revert goes back to what was before"

    lines = carry_out(fleet, prepared, "revert")
    assert lines[-1] == f"Namespace {team} stays: what is in it is not ours to delete."
    left = deployed.kubectl("get", "resourcequota,limitrange", "-n", team, "-o", "name")
    left += deployed.kubectl("get", "priorityclass,runtimeclass", team, "--ignore-not-found", "-o", "name")
    assert (left, cluster_admin.get("namespaces", team)["metadata"]["labels"]["team"]) == ("", "a")


@pytest.mark.usefixtures("may")
def test_a_field_that_somebody_changed_is_taken_as_shown_and_put_back(
    controller_fleet: KubeFleet, cluster_admin: Admin, team: str, deployed: Plane
) -> None:
    fleet = controller_fleet
    first = prepare(fleet, team)
    carry_out(fleet, first)

    def patched(gpus: str, manager: str) -> None:
        theirs = f'{{"spec":{{"hard":{{"requests.nvidia.com/gpu":"{gpus}"}}}}}}'
        where = ("resourcequota", "gpus", "-n", team)
        deployed.kubectl("patch", *where, f"--field-manager={manager}", "--type=merge", "-p", theirs)

    def gpus() -> tuple[str, list[str]]:
        live = cluster_admin.get("resourcequotas", "gpus", team)
        field = ("spec", "hard", "requests.nvidia.com/gpu")
        return live["spec"]["hard"][field[-1]], managed_fields.holders(live, field)

    patched("3", "alice")
    limits = '{"spec":{"limits":[{"type":"Container","default":{"memory":"9Gi"},"max":{"memory":"12Gi"}}]}}'
    deployed.kubectl("patch", "limitrange", "pods", "-n", team, "--field-manager=alice", "--type=merge", "-p", limits)
    prepared = prepare(fleet, team)
    notes = {note.title: note.detail for note in prepared.notes if note.severity == "warn"}
    assert list(notes) == [
        f"1 field of LimitRange {team}/pods is taken from alice",
        f"1 field of ResourceQuota {team}/gpus is taken from alice",
    ]
    quota = notes[f"1 field of ResourceQuota {team}/gpus is taken from alice"]
    assert quota.startswith('spec.hard["requests.nvidia.com/gpu"] is 3, held by alice since 2')
    assert "this plan makes it 8." in quota
    assert "was changed by another party" in policy_objects.check_readiness(fleet, first, direction="forward").failed
    assert gpus() == ("3", ["alice"]), "a plan wrote something"

    patched("5", "alice")
    with pytest.raises(
        FleetError, match="is 5, held by alice by now, and the plan showed 3, held by alice; plan again"
    ):
        carry_out(fleet, prepared)
    assert gpus() == ("5", ["alice"])
    limit = cluster_admin.get("limitranges", "pods", team)["spec"]["limits"]
    assert limit[0]["default"] == {"memory": "9Gi"}, "which comes before the quota, and was to be taken, too"

    prepared = prepare(fleet, team)
    lines = carry_out(fleet, prepared)
    assert lines[-1].endswith('and takes spec.hard["requests.nvidia.com/gpu"] from alice.')
    assert gpus() == ("8", ["setpoint"])
    carry_out(fleet, prepared)
    assert prepare(fleet, team).changes == 0

    lines = carry_out(fleet, prepared, "revert")
    assert "is 5 again, as alice had it; Setpoint holds it from now on." in lines[0]
    assert gpus() == ("5", ["setpoint"])
    assert cluster_admin.get("limitranges", "pods", team)["spec"]["limits"] == limit

    patched("6", "argocd-controller")
    [note] = [note for note in prepare(fleet, team).notes if note.severity == "block"]
    assert (note.code, gpus()[0]) == ("policy-conflict", "6")
    assert "argocd-controller is Argo CD." in note.detail


@pytest.mark.usefixtures("may")
def test_what_others_hold_of_an_object_that_is_not_ours_blocks_and_is_not_taken(
    controller_fleet: KubeFleet, cluster_admin: Admin, team: str, deployed: Plane
) -> None:
    deployed.kubectl("create", "priorityclass", team, "--value=7")

    [note] = [n for n in prepare(controller_fleet, team).notes if n.severity == "block"]

    assert note.code == "policy-conflict"
    assert "Setpoint neither made nor adopted this object" in note.detail
    assert cluster_admin.get("priorityclasses", team)["value"] == 7


# ── the whole job over REST ───────────────────────────────────────────────────────────────────────────────────────────

NODES = ("whole-1", "whole-2", "whole-3")
SETTINGS = {
    "vm.swappiness": "10",
    "vm.max_map_count": "1048576",
    "vm.dirty_background_ratio": "5",
    "fs.aio-max-nr": "1048576",
    "fs.inotify.max_user_watches": "1048576",
    "net.core.somaxconn": "8192",
    "net.core.rmem_max": "67108864",
    "net.core.wmem_max": "67108864",
    "net.ipv4.tcp_keepalive_time": "600",
    "kernel.pid_max": "4194304",
}
COMPONENTS = """
labels: {example.com/tier: training}
taints: [{key: example.com/gpu, value: only, effect: NoSchedule}]
components:
  cilium: {}
  volcano: {}
  gpu-operator: {values: {clusterPolicy: {deployCR: false}}}
"""


@pytest.fixture
def equipped(site: Site, deployed: Plane, cluster_admin: Admin) -> Iterator[None]:
    with equipping.equipped(site, deployed, cluster_admin, queues=("research", "research-night")):
        yield


KINDS = (
    "configmaps,secrets,serviceaccounts,services,deployments,daemonsets,statefulsets,jobs,resourcequotas,limitranges,"
    "roles,rolebindings,namespaces,clusterroles,clusterrolebindings,priorityclasses,runtimeclasses,"
    "validatingwebhookconfigurations,mutatingwebhookconfigurations,customresourcedefinitions"
)


def standing(plane: Plane) -> set[str]:
    """All objects that a chart or a profile could leave, `kind namespace/name`."""
    definitions.hurry(plane)
    columns = "-o=custom-columns=K:.kind,S:.metadata.namespace,N:.metadata.name"
    return {" ".join(line.split()) for line in plane.kubectl("get", KINDS, "-A", columns, "--no-headers").splitlines()}


def is_settled(plane: Plane) -> bool:
    """Return whether nothing is being deleted any more, such as definitions that a test before this one had."""
    definitions.hurry(plane)
    columns = "-o=custom-columns=D:.metadata.deletionTimestamp"
    deleted = plane.kubectl("get", KINDS, "-A", columns, "--no-headers").split()
    return set(deleted) <= {"<none>"}


@pytest.mark.usefixtures("judged", "equipped")
def test_settings_labels_a_taint_quotas_queues_and_components_go_there_and_back(
    site: Site, deployed: Plane, cluster_admin: Admin, make_fleet: Callable[..., KwokFleet], team: str
) -> None:
    make_fleet("whole", *NODES)
    eventually(lambda: is_settled(deployed))
    before = standing(deployed)
    marks = {name: (_marks(cluster_admin, name)) for name in NODES}
    revision = site.revision(SETTINGS, extra=COMPONENTS + TEAM.replace("TEAM", team) + QUEUES)
    plan = site.plan(site.pool(pool="whole"), revision, canary=1, batch="100%")

    assert [f for f in plan["findings"] if f["severity"] == "block"] == []
    parts = {row["component"]: row for row in site.operator.every(f"plans/{plan['id']}/components")}
    assert {name: (row["kind"], row["action"]) for name, row in parts.items()} == {
        "policy objects": ("policies", "apply"),
        "cilium": ("release", "install"),
        "gpu-operator": ("release", "install"),
        "volcano": ("release", "install"),
        "queues of volcano": ("policies", "apply"),
    }
    assert parts["queues of volcano"]["requires"] == ["volcano"]
    assert {o["name"]: o["change"] for o in parts["queues of volcano"]["objects"]} == {
        "research": "unvalidated",
        "research-night": "unvalidated",
    }
    assert standing(deployed) == before, "a plan wrote something"

    site.approve(plan)
    rollout = site.start(plan)
    site.until(rollout, "succeeded", seconds=240)
    assert {s["status"] for s in site.operator.every(f"rollouts/{rollout}/steps")} == {"succeeded"}
    assert cluster_admin.get("queues", "research-night")["spec"]["parent"] == "research"
    assert cluster_admin.get("resourcequotas", "gpus", team)["spec"]["hard"]["requests.nvidia.com/gpu"] == "8"
    for name in NODES:
        assert cluster_admin.get("nodes", name)["metadata"]["labels"]["example.com/tier"] == "training"
        assert all(eventually(lambda k=k, v=v, n=name: site.observed(n, k) == v) for k, v in SETTINGS.items())

    site.act(rollout, "revert")
    site.until(rollout, "reverted", seconds=240)

    findings_text = " ".join(f["title"] + f["detail"] for f in plan["findings"])
    stays = _may_stay(team) - before  # another test may have left a namespace of the same name
    left = eventually(
        lambda: (added := standing(deployed) - before) == stays and added,
        lambda: f"left behind: {sorted(standing(deployed) - before)}, expected {sorted(stays)}",
    )
    assert all(line.split()[-1] in findings_text or line.split()[-1] in IMPLIED for line in left), (
        "not said in the plan"
    )
    assert before <= standing(deployed) | left
    assert {name: _marks(cluster_admin, name) for name in NODES} == marks
    written = site.judge().writes.keys() - {"configmaps"}  # with which Setpoint marks the cluster as its own
    assert {kind for kind in written if kind in POLICIES} == {
        "namespaces", "resourcequotas", "limitranges", "priorityclasses", "runtimeclasses", "queues",
    }  # fmt: skip


IMPLIED = ("default", "kube-root-ca.crt")
"""What Kubernetes itself puts into every namespace."""


def _may_stay(team: str) -> set[str]:
    spaces = (team, "volcano-system", "gpu-operator")
    out = {f"Namespace <none> {name}" for name in spaces}
    for name in spaces:
        out |= {f"ServiceAccount {name} default", f"ConfigMap {name} kube-root-ca.crt"}
    return out | {f"CustomResourceDefinition <none> {name}.nvidia.com" for name in ("clusterpolicies", "nvidiadrivers")}


def _marks(admin: Admin, name: str) -> tuple[Any, Any]:
    """Labels and taints of a node."""
    raw = admin.get("nodes", name)
    return raw["metadata"]["labels"], raw["spec"].get("taints")
