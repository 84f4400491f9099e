"""Readiness: each test of the catalog's vocabulary, and the sentence that names what is missing where."""

from __future__ import annotations

import pytest

from clusters.kube.discovery import Resource, ServedApis
from components.catalog.entry import ReadinessTest
from components.release import readiness
from components.release.readiness import Readiness
from tests.components.kube import Kube

TYPES = (
    Resource("v1", "Node", "nodes", False),
    Resource("v1", "Pod", "pods", True),
    Resource("apps/v1", "DaemonSet", "daemonsets", True),
    Resource("apps/v1", "Deployment", "deployments", True),
    Resource("apps/v1", "StatefulSet", "statefulsets", True),
    Resource("nvidia.com/v1", "ClusterPolicy", "clusterpolicies", False),
    Resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", False),
)
APPS = "/apis/apps/v1/namespaces/space"
SELECTOR = {"matchLabels": {"app": "a"}}


@pytest.fixture
def kube() -> Kube:
    made = Kube()
    for plural in ("daemonsets", "deployments", "statefulsets"):
        made.say("GET", f"{APPS}/{plural}", {"items": []})
    made.say("GET", "/api/v1/namespaces/space/pods", {"items": []})
    made.say("GET", "/api/v1/namespaces/space/events", {"items": []})
    return made


SERVED = ServedApis("v1.35.4", {(resource.api_version, resource.kind): resource for resource in TYPES})


def look(kube: Kube, kind: str, what: dict, **over):
    return Readiness(kube, SERVED, "space").look([ReadinessTest(kind, what, **over)])


def workload(name: str = "a", *, replicas: int = 2, ready: int = 2, **over) -> dict:
    status = {"observedGeneration": 3, "readyReplicas": ready, "updatedReplicas": ready} | over
    return {
        "metadata": {"name": name, "generation": 3, "labels": {"app": name}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}},
        "status": status,
    }


def daemon(wanted: int = 3, updated: int = 3, ready: int = 3, strategy: str = "RollingUpdate") -> dict:
    raw = workload()
    raw["spec"]["updateStrategy"] = {"type": strategy}
    counts = {"desiredNumberScheduled": wanted, "updatedNumberScheduled": updated}
    raw["status"] = {"observedGeneration": 3, "numberReady": ready, "numberAvailable": ready} | counts
    return raw


QUOTA = 'pods "a-1" is forbidden: exceeded quota: small, requested: pods=1, used: pods=0, limited: pods=0'
EVENTS = "/api/v1/namespaces/space/events"


def event(message: str, at: str, uid: str = "u1") -> dict:
    return {"reason": "FailedCreate", "message": message, "lastTimestamp": at, "involvedObject": {"uid": uid}}


def test_a_quota_that_keeps_a_deployments_pods_from_being_made_is_named(kube):
    raw = workload(ready=0)
    raw["status"]["conditions"] = [{"type": "ReplicaFailure", "status": "True", "message": QUOTA}]
    kube.say("GET", f"{APPS}/deployments", {"items": [raw]})
    missing = look(kube, "workloads", {"namespace": "space", "names": ["a"]}).missing
    assert "0 of 2 pods" in missing
    assert QUOTA in missing


@pytest.mark.parametrize("kind", ["DaemonSet", "StatefulSet"])
def test_what_keeps_other_pods_from_being_made_is_read_from_the_newest_event_of_this_very_object(kube, kind):
    raw = daemon(updated=1, ready=1) if kind == "DaemonSet" else workload(ready=0, replicas=3)
    raw["metadata"]["uid"] = "u1"
    raw["status"] |= {"currentNumberScheduled": 1, "replicas": 0}
    kube.say("GET", f"{APPS}/{kind.lower()}s", {"items": [raw]})
    others = event("of one with the same name before", "2026-11-22T13:00:00Z", "u0")
    events = [event("older", "2026-11-22T11:00:00Z"), event(QUOTA, "2026-11-22T12:00:00Z"), others]
    kube.say("GET", EVENTS, {"items": events})

    missing = look(kube, "workloads", {"namespace": "space", "names": ["a"]}).missing

    assert QUOTA in missing
    assert "older" not in missing


def test_pods_that_are_made_and_only_not_ready_are_not_blamed_on_old_events(kube):
    raw = daemon(ready=2)
    raw["status"]["currentNumberScheduled"] = 3
    kube.say("GET", f"{APPS}/daemonsets", {"items": [raw]})
    assert "not made" not in look(kube, "workloads", {"namespace": "space", "names": ["a"]}).missing


def test_events_that_may_not_be_read_leave_the_sentence_without_a_reason(kube):
    raw = daemon(updated=1, ready=1)
    kube.say("GET", f"{APPS}/daemonsets", {"items": [raw]})
    kube.say("GET", EVENTS, {"message": "no"}, status=403)
    assert look(kube, "workloads", {"namespace": "space", "names": ["a"]}).missing.endswith("are new and ready.")


@pytest.mark.parametrize(
    ("plural", "raw", "missing"),
    [
        ("deployments", workload(), ""),
        ("deployments", workload(ready=1), "Deployment space/a: 1 of 2 pods are new and ready."),
        ("deployments", workload(updatedReplicas=1), "Deployment space/a: 1 of 2 pods are new and ready."),
        ("deployments", workload(replicas=0, ready=0), ""),
        ("deployments", workload(observedGeneration=2), "Deployment space/a: its controller has not seen the change"),
        ("statefulsets", workload(ready=0), "StatefulSet space/a: 0 of 2"),
        ("daemonsets", daemon(), ""),
        ("daemonsets", daemon(updated=1), "DaemonSet space/a: 1 of 3 pods are new and ready."),
        ("daemonsets", daemon(updated=1, strategy="OnDelete"), ""),
        ("daemonsets", daemon(ready=2, strategy="OnDelete"), "DaemonSet space/a: 2 of 3"),
        ("daemonsets", daemon(wanted=0, updated=0, ready=0), ""),
    ],
)
def test_a_workload_is_ready_when_all_its_new_pods_are(kube, plural, raw, missing):
    kube.say("GET", f"{APPS}/{plural}", {"items": [raw]})
    verdict = look(kube, "workloads", {"namespace": "space", "names": ["a"]})
    assert verdict.is_ready == (missing == "")
    assert verdict.missing.startswith(missing)


def test_a_pod_that_is_not_ready_is_named_with_its_node_and_reason(kube):
    kube.say("GET", f"{APPS}/deployments", {"items": [workload(ready=1)]})
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    pod = {
        "metadata": {"name": "a-1", "labels": {"app": "a"}},
        "spec": {"nodeName": "n7"},
        "status": {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]},
    }
    kube.say("GET", "/api/v1/namespaces/space/pods", {"items": [pod]})
    assert look(kube, "workloads", {"names": ["a"]}).missing == (
        "Deployment space/a: 1 of 2 pods are new and ready; pod a-1 on node n7: ImagePullBackOff, no such image."
    )


CONTAINERD = 'failed to pull and unpack image "r.example.org/a:1": failed to resolve reference "r.example.org/a:1": '


@pytest.mark.parametrize(
    ("reason", "message", "cause"),
    [
        ("ErrImagePull", CONTAINERD + "r.example.org/a:1: not found", "no such image or tag"),
        (
            "ImagePullBackOff",
            'Back-off pulling image "a": ErrImagePull: ' + CONTAINERD + "pull access denied, repository does not exist "
            "or may require authorization: server message: insufficient_scope: authorization failed",
            "pull secret",
        ),
        ("ErrImagePull", CONTAINERD + "failed to do request: dial tcp: lookup r.example.org: no such host", "name"),
        ("ErrImagePull", CONTAINERD + "dial tcp 10.0.0.1:443: i/o timeout", "cannot be reached"),
        ("ErrImagePull", CONTAINERD + "tls: x509: certificate signed by unknown authority", "not trusted"),
        (
            "ErrImagePull",
            CONTAINERD + "429 Too Many Requests: toomanyrequests: You have reached your limit",
            "how often",
        ),
        ("ErrImagePull", "no match for platform in manifest: not found", "architecture"),
        (
            "InvalidImageName",
            'Failed to apply default image tag "A:b:c": couldn\'t parse image name',
            "no image's name",
        ),
        ("ImagePullBackOff", 'Back-off pulling image "a"', ""),
        ("CrashLoopBackOff", "back-off 5m0s restarting failed container: not found", ""),
    ],
)
def test_an_image_that_cannot_be_pulled_has_a_kind_of_cause(kube, reason, message, cause):
    kube.say("GET", f"{APPS}/deployments", {"items": [workload(ready=1)]})
    pod = {
        "metadata": {"name": "a-1", "labels": {"app": "a"}},
        "spec": {"nodeName": "n7"},
        "status": {"containerStatuses": [{"state": {"waiting": {"reason": reason, "message": message}}}]},
    }
    kube.say("GET", "/api/v1/namespaces/space/pods", {"items": [pod]})
    missing = look(kube, "workloads", {"names": ["a"]}).missing
    assert f"on node n7: {reason}" in missing
    assert (cause in missing.rpartition(" (")[2]) if cause else not missing.endswith(").")


def test_a_workload_that_is_absent_is_said_unless_it_is_optional(kube):
    what = {"namespace": "space", "kind": "DaemonSet", "names": ["a"]}
    assert look(kube, "workloads", what).missing == "DaemonSet space/a is absent."
    assert look(kube, "workloads", what, is_optional=True).is_ready
    assert look(kube, "workloads", {"selector": {"app": "a"}}).missing == "No workload in space is there yet."


POLICY = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "name": "main", "path": "status.state"}
POLICY |= {"equals": "ready", "reads": 2}
POLICY_PATH = "/apis/nvidia.com/v1/clusterpolicies/main"


def policy(state: str) -> dict:
    return {"kind": "ClusterPolicy", "metadata": {"name": "main", "uid": "u-1"}, "status": {"state": state}}


def test_a_field_that_must_stay_so_is_looked_at_again_before_it_counts(kube):
    assert look(kube, "field", POLICY).missing == "ClusterPolicy main is absent."
    assert look(kube, "field", POLICY, is_optional=True).is_ready

    kube.say("GET", POLICY_PATH, policy("ready"))
    reader = Readiness(kube, SERVED, "space")
    first = reader.look([ReadinessTest("field", POLICY)], seen=0)
    assert (first.is_ready, first.is_steady) == (False, True)
    assert first.missing == "ClusterPolicy main is as wanted; looked at again, to see that it stays so."
    assert reader.look([ReadinessTest("field", POLICY)], seen=1).is_ready
    assert reader.look([ReadinessTest("field", POLICY)]).is_ready, "who only watches asks once"

    absent = ReadinessTest("workloads", {"names": ["a"]})
    both = reader.look([ReadinessTest("field", POLICY), absent], seen=0)
    assert (both.missing, both.is_steady) == ("Workload space/a is absent.", False)

    kube.say("GET", POLICY_PATH, policy("notReady"))
    other = reader.look([ReadinessTest("field", POLICY)], seen=1)
    assert (other.missing, other.is_steady) == ("ClusterPolicy main: status.state is notReady, not ready.", False)


def test_behind_an_operators_own_word_stand_its_workload_pod_and_node(kube):
    kube.say("GET", POLICY_PATH, policy("notReady"))
    other, own = daemon(ready=1), daemon(ready=2)
    own["metadata"] |= {"name": "driver", "ownerReferences": [{"kind": "ClusterPolicy", "uid": "u-1"}]}
    kube.say("GET", f"{APPS}/daemonsets", {"items": [other, own]})
    pod = {
        "metadata": {"name": "driver-7", "labels": {"app": "a"}},
        "spec": {"nodeName": "gpu-7"},
        "status": {
            "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no image"}}}]
        },
    }
    kube.say("GET", "/api/v1/namespaces/space/pods", {"items": [pod]})
    assert look(kube, "field", POLICY).missing == (
        "ClusterPolicy main: status.state is notReady, not ready; DaemonSet space/driver: 2 of 3 pods are new and "
        "ready; pod driver-7 on node gpu-7: ImagePullBackOff, no image."
    )


@pytest.mark.parametrize("path", ["{.status.list[1].x}", "$.status.list[1].x", "status.list[1].x"])
def test_a_path_may_be_written_as_json_path(kube, path):
    kube.say("GET", "/apis/nvidia.com/v1/clusterpolicies/main", {"status": {"list": [{}, {"x": 5}]}})
    what = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "name": "main", "path": path, "equals": 5}
    assert look(kube, "field", what).is_ready


def node(name: str, *, gpus: str = "8", taint: str = "", **labels: str) -> dict:
    taints = [{"key": taint, "effect": "NoSchedule"}] if taint else []
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": {"nvidia.com/gpu": gpus}},
    }


def test_a_taint_is_gone_from_every_node(kube):
    what = {"key": "node.cilium.io/agent-not-ready"}
    kube.say("GET", "/api/v1/nodes", {"items": [node("n1", taint="other")]})
    assert look(kube, "taint_absent", what).is_ready
    tainted = [node(f"n{number}", taint=what["key"]) for number in range(5)]
    kube.say("GET", "/api/v1/nodes", {"items": tainted})
    assert look(kube, "taint_absent", what).missing == (
        "The taint node.cilium.io/agent-not-ready is still on nodes n0, n1, n2 and 2 more."
    )


@pytest.mark.parametrize("selector", ["gpu=yes", {"gpu": "yes"}, {"matchLabels": {"gpu": "yes"}}])
def test_expected_nodes_offer_what_they_should(kube, selector):
    what = {"resource": "nvidia.com/gpu", "nodes": selector, "at_least": 8}
    kube.say("GET", "/api/v1/nodes", {"items": [node("n1", gpu="yes"), node("n2", gpus="4", gpu="yes"), node("n3")]})
    assert look(kube, "allocatable", what).missing == "node n2 does not offer 8 nvidia.com/gpu yet."
    kube.say("GET", "/api/v1/nodes", {"items": [node("n1", gpu="yes"), node("n3", gpus="0")]})
    assert look(kube, "allocatable", what).is_ready
    kube.say("GET", "/api/v1/nodes", {"items": []})
    assert "No node is gpu=yes yet" in look(kube, "allocatable", what).missing


def test_kinds_are_established(kube):
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com"
    what = {"names": ["things.example.com"]}
    assert "is absent" in look(kube, "crds", what).missing
    kube.say("GET", path, {"status": {"conditions": [{"type": "Established", "status": "False"}]}})
    assert "is not established yet" in look(kube, "crds", what).missing
    kube.say("GET", path, {"status": {"conditions": [{"type": "Established", "status": "True"}]}})
    assert look(kube, "crds", what).is_ready


def test_every_kind_of_test_that_the_catalog_knows_can_be_looked_at():
    from components.catalog.entry import TEST_KINDS

    assert set(readiness._TESTS) == set(TEST_KINDS)
