"""The blast of a change: where a DaemonSet runs, which field decides, what proceeds node by node, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from components.blast import judgment
from components.blast.ground import GpuPodHold, GpuPodOwner, Ground, NodeGround
from components.blast.judgment import Scene
from components.catalog import catalog, loader
from components.catalog.yaml_reader import BadCatalog
from components.helm.rendering import Manifest
from components.plans.diff import Compared
from components.plans.hits import Blast
from tests.components import packing

NIC = {"feature.node.kubernetes.io/pci-15b3.present": "true"}
GROUND = Ground(
    (
        NodeGround("a", {"zone": "1", **NIC}, ({"key": "dedicated", "effect": "NoExecute", "value": "gpu"},), 8),
        NodeGround("b", {"zone": "1", **NIC}, gpus=8),
        NodeGround("c", {"zone": "2"}),
        NodeGround("d", {"zone": "2"}, ({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},)),
    ),
    (GpuPodHold("b", GpuPodOwner("team", "Job", "train"), 8),),
)


def daemon(pod: dict[str, Any], image: str = "1", counted: int = 0, **strategy: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "c", "image": image}], **pod}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "cilium", "namespace": "kube-system"},
        "spec": {"template": template, "updateStrategy": strategy},
        "status": {"desiredNumberScheduled": counted},
    }


def judged(name: str, before: dict[str, Any] | None, after: dict[str, Any], **scene: Any) -> Blast:
    compared = Compared(Manifest(after), "changed" if before else "created", "kube-system", before, after)
    own = {(after["kind"], after["metadata"]["name"]): after}
    return judgment.blast_of(
        Scene(catalog.get(name).effects, GROUND, name, own=own, **scene), [compared], action="upgrade"
    )


ZONE = {"key": "zone", "operator": "In", "values": ["2"]}
AFFINITY = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [ZONE]}]}}


@pytest.mark.parametrize(
    ("pod", "counted", "nodes"),
    [
        ({}, 3, ("b", "c", "d")),
        ({"tolerations": [{"operator": "Exists"}]}, 4, ("a", "b", "c", "d")),
        ({"tolerations": [{"key": "dedicated", "value": "gpu"}]}, 4, ("a", "b", "c", "d")),
        ({"tolerations": [{"key": "dedicated", "value": "other"}]}, 3, ("b", "c", "d")),
        ({"nodeSelector": {"zone": "1"}}, 1, ("b",)),
        ({"affinity": {"nodeAffinity": AFFINITY}}, 2, ("c", "d")),
        ({"nodeSelector": {"zone": "1"}}, 3, ("a", "b", "c", "d")),  # it runs on more than these rows explain
    ],
)
def test_where_a_daemonset_runs_is_read_from_its_selector_and_never_less_than_it_counts(pod, counted, nodes):
    assert GROUND.running(daemon(pod, counted=counted)) == nodes


@pytest.mark.parametrize(
    ("strategy", "worst", "at_once"),
    [
        ({}, "network", 1),
        ({"rollingUpdate": {"maxUnavailable": 2}}, "network", 2),
        ({"rollingUpdate": {"maxUnavailable": "50%"}}, "network", 2),
        ({"rollingUpdate": {"maxUnavailable": "34%"}}, "network", 2),  # 1.02 of three nodes, rounded up
        ({"rollingUpdate": {"maxUnavailable": "33%"}}, "network", 1),
        ({"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 2}}, "network", 2),
        ({"rollingUpdate": {"maxUnavailable": 9}}, "network", 3),
        ({"type": "OnDelete"}, "new-pods", 0),
    ],
)
def test_a_daemonset_restarts_as_its_update_strategy_says(strategy, worst, at_once):
    blast = judged("cilium", daemon({}, "1", 3, **strategy), daemon({}, "2", 3, **strategy))
    assert (blast.worst, blast.hits[0].at_once) == (worst, at_once)
    assert [hit.at_once for hit in blast.rolling] == [at_once][: at_once > 0]
    assert blast.places == 0, "no node is out of service"


def test_a_daemonset_that_the_catalog_does_not_know_restarts_within_the_budget_too():
    """A DaemonSet of the GPU Operator counts as one that stops GPU pods, so that its places are kept as well."""
    wide = {"rollingUpdate": {"maxUnavailable": 2}}
    blast = judged("gpu-operator", daemon({}, "1", 3, **wide), daemon({}, "2", 3, **wide))
    assert (blast.worst, blast.places) == ("gpu-pods", 2)
    assert "maxUnavailable" in blast.hits[0].limit


def policy(version: str = "", **upgrade: Any) -> dict[str, Any]:
    driver = {"ofedDriver": {"version": version, "upgradePolicy": upgrade}} if version else {}
    return {"kind": "NicClusterPolicy", "metadata": {"name": "nic-cluster-policy"}, "spec": {"psp": {}, **driver}}


def test_a_driver_that_comes_for_the_first_time_comes_everywhere_at_once_and_reserves_nothing():
    blast = judged("network-operator", policy(), policy("doca3.1", autoUpgrade=True, maxParallelUpgrades=1))
    assert (blast.worst, blast.nodes, blast.nodes_at_once, blast.places) == ("gpu-pods", ("a", "b"), 2, 0)
    assert blast.jobs == ("team/Job train",)


def test_another_driver_goes_node_by_node_and_reserves_what_it_may_take():
    wide = {"autoUpgrade": True, "maxParallelUpgrades": 0, "maxUnavailable": "100%", "drain": {"enable": True}}
    blast = judged("network-operator", policy("doca3.0", **wide), policy("doca3.1", **wide))
    assert (blast.worst, blast.places, blast.gpus_at_once) == ("drain", 2, 16)
    assert "NicClusterPolicy" in blast.hits[0].limit


def test_with_its_controller_off_a_driver_comes_with_the_next_restart():
    blast = judged("network-operator", policy("doca3.0"), policy("doca3.1"))
    assert (blast.worst, blast.places, blast.jobs) == ("new-pods", 0, ())


def test_daemonsets_that_an_operator_made_are_named_and_say_where_they_are():
    live = daemon({"nodeSelector": {"zone": "2"}}, counted=2)
    live["metadata"] = {"name": "mofed-ubuntu24.04", "namespace": "nvidia-network-operator"}
    on = {"autoUpgrade": True}
    blast = judged("network-operator", policy("doca3.0", **on), policy("doca3.1", **on), daemons=[live])
    assert blast.nodes == ("c", "d")
    assert blast.hits[0].restarts == ("nvidia-network-operator/mofed-ubuntu24.04",)


def test_what_is_deleted_is_told_and_a_kind_that_goes_takes_its_objects_along():
    gone = Manifest({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}})
    compared = [Compared(gone, "deleted", "there", dict(gone.raw))]
    scene = Scene(catalog.get("volcano").effects, GROUND, "volcano")
    blast = judgment.blast_of(scene, compared, action="upgrade", destroys=["every Queue"])
    assert blast.deleted == ("Service there/a",)
    assert blast.worst == "gpu-pods"


def test_where_nothing_is_done_nothing_is_hit():
    scene = Scene(catalog.get("cilium").effects, GROUND, "cilium")
    compared = Compared(Manifest(daemon({})), "changed", "kube-system", daemon({}, "1"), daemon({}, "2"))
    assert judgment.blast_of(scene, [compared], action="none") == Blast()


GOOD = """\
blast:
  unknown: drain
  install: {class: live, why: Nothing.}
  remove: {class: live, why: Nothing.}
  changes: [{kind: Deployment, class: live, why: Nothing.}]
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("unknown: drain", "unknown: harmless", "harmless"),
        ("class: live, why: Nothing.}]", "class: live, why: Nothing., nodes: some of them}]", "nodes"),
        ("class: live, why: Nothing.}]", "class: live, why: Nothing., controller: nobody}]", "controller"),
        ("class: live, why: Nothing.}]", "class: live, why: Nothing., surprise: 1}]", "surprise"),
        ("class: live, why: Nothing.}]", "class: live}]", "why"),
    ],
)
def test_what_the_catalog_says_of_it_is_read_strictly(tmp_path, old, new, message):
    path = tmp_path / "tiny.yaml"
    path.write_text(packing.entry("tiny", "1.0.0", workload="Deployment/a", more=GOOD))
    assert loader.read(path).effects.unknown == "drain"
    path.write_text(packing.entry("tiny", "1.0.0", workload="Deployment/a", more=GOOD.replace(old, new)))
    with pytest.raises(BadCatalog, match=message):
        loader.read(path)


def test_every_component_of_the_catalog_is_classified():
    from components.catalog.effects import UNCLASSIFIED

    assert not [component.name for component in catalog.all() if component.effects is UNCLASSIFIED]
