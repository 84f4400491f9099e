"""Upgrades between versions of the real charts, rendered by the real helm: which class each gets, and why.

No third party's chart is committed: archives are read from ../shared/data/charts/archives beside the checkout, or from
the folder `archives` in what SETPOINT_CHARTS names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.blast import judgment
from components.blast.ground import GpuPodHold, GpuPodOwner, Ground, NodeGround
from components.blast.judgment import Scene
from components.catalog import catalog
from components.helm.rendering import HOOK, Manifest
from components.plans.diff import Compared, cleaned
from components.plans.hits import Blast

ROOT = Path(__file__).resolve().parents[3]
ARCHIVES = Path(os.environ.get("SETPOINT_CHARTS") or ROOT.parent / "shared" / "data" / "charts") / "archives"
HELM = shutil.which("helm", path=f"{ROOT / '.venv' / 'bin'}:{os.environ.get('PATH', '')}")

pytestmark = [
    pytest.mark.skipif(not ARCHIVES.is_dir(), reason=f"needs charts: there are none in {ARCHIVES}"),
    pytest.mark.skipif(HELM is None, reason="needs helm"),
]

GROUND = Ground(
    nodes=(
        *(
            NodeGround(
                f"gpu-{n}",
                {
                    "nvidia.com/gpu.present": "true",
                    "kubernetes.io/os": "linux",
                    "feature.node.kubernetes.io/pci-15b3.present": "true",
                },
                ({"key": "nvidia.com/gpu", "effect": "NoSchedule"},),
                8,
            )
            for n in range(4)
        ),
        NodeGround("plain-0", {"kubernetes.io/os": "linux"}),
    ),
    held=(GpuPodHold("gpu-1", GpuPodOwner("team", "Job", "train"), 8),),
)


def rendered(chart: str, version: str, **values: Any) -> dict[tuple[str, str], dict[str, Any]]:
    archive = ARCHIVES / f"{chart}-{version}.tgz"
    if not archive.exists():
        pytest.skip(f"needs charts: {archive.name}")
    component = catalog.get(chart)
    sets = [part for path, value in values.items() for part in ("--set", f"{path}={value}")]
    done = subprocess.run(
        [str(HELM), "template", chart, str(archive), "-n", component.namespace, "--kube-version", "1.34", *sets],
        capture_output=True,
        check=True,
    )
    documents = [raw for raw in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if raw]
    kept = [raw for raw in documents if HOOK not in (raw["metadata"].get("annotations") or {})]
    return {(raw["kind"], raw["metadata"]["name"]): raw for raw in kept}


def judged(chart: str, before: dict, after: dict, action: str = "upgrade") -> Blast:
    """Return the blast as preparing computes it, with what the API server would have filled in left out."""
    compared = []
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        change = "created" if old is None else "deleted" if new is None else "changed"
        if old and new and cleaned(old) == cleaned(new):
            change = "same"
        raw = new or old
        compared.append(Compared(Manifest(raw), change, raw["metadata"].get("namespace", ""), old, new))
    scene = Scene(catalog.get(chart).effects, GROUND, chart, own=after)
    return judgment.blast_of(scene, compared, action=action)


def test_a_gpu_operators_upgrade_loads_the_driver_again_one_node_at_a_time():
    blast = judged("gpu-operator", rendered("gpu-operator", "v26.3.3"), rendered("gpu-operator", "v26.7.0"))

    assert blast.worst == "gpu-pods"
    assert {"gpu-0", "gpu-1", "gpu-2", "gpu-3"} == set(blast.nodes)
    assert (blast.places, blast.gpus_at_once, blast.jobs) == (1, 8, ("team/Job train",))
    driver = next(hit for hit in blast.hits if "spec.driver.version" in hit.paths)
    assert driver.controller == "nvidia.com/gpu-driver-upgrade-state"
    assert not any("knows not" in hit.why or "does not know" in hit.why for hit in blast.hits), (
        "every part is classified"
    )


def test_its_own_drain_is_told_and_its_own_number_is_counted():
    drains = {"driver.upgradePolicy.drain.enable": "true", "driver.upgradePolicy.maxParallelUpgrades": "0"}
    before = rendered("gpu-operator", "v26.7.0", **drains, **{"driver.version": "580.95.05"})
    blast = judged("gpu-operator", before, rendered("gpu-operator", "v26.7.0", **drains))

    assert (blast.worst, blast.places) == ("drain", 1), "25 % of four nodes"
    wide = drains | {"driver.upgradePolicy.maxUnavailable": "75%"}
    blast = judged("gpu-operator", before, rendered("gpu-operator", "v26.7.0", **wide))
    assert (blast.places, blast.gpus_at_once) == (3, 24)


def test_with_the_drivers_of_the_host_no_driver_is_loaded():
    host = {"driver.enabled": "false", "toolkit.enabled": "false"}
    before, after = (rendered("gpu-operator", version, **host) for version in ("v26.3.3", "v26.7.0"))
    blast = judged("gpu-operator", before, after)

    assert not blast.controllers
    assert not any("nvidia-driver-daemonset" in hit.restarts for hit in blast.hits if hit.worst != "new-pods")


@pytest.mark.parametrize("part", ["driver", "toolkit"])
@pytest.mark.parametrize("way", ["off", "on"])
def test_what_comes_or_goes_as_a_whole_does_on_all_nodes_at_once(part: str, way: str):
    """The upgrade controller takes nodes in turn between two versions, not when its DaemonSet is made or deleted."""
    with_it = rendered("gpu-operator", "v26.7.0")
    without = rendered("gpu-operator", "v26.7.0", **{f"{part}.enabled": "false"})
    before, after = (with_it, without) if way == "off" else (without, with_it)
    blast = judged("gpu-operator", before, after)

    assert (blast.worst, blast.nodes_at_once, blast.gpus_at_once) == ("gpu-pods", 4, 32)


def test_an_upgrade_policy_alone_touches_nothing():
    before = rendered("gpu-operator", "v26.7.0")
    blast = judged(
        "gpu-operator", before, rendered("gpu-operator", "v26.7.0", **{"driver.upgradePolicy.maxUnavailable": "1"})
    )
    assert (blast.worst, blast.hits) == ("live", ())


def test_ciliums_upgrade_restarts_the_agents_of_every_node_and_ends_no_job():
    blast = judged("cilium", rendered("cilium", "1.19.6"), rendered("cilium", "1.20.0"))

    assert blast.worst == "network"
    assert len(blast.nodes) == 5
    agent = next(hit for hit in blast.hits if hit.what == "DaemonSet kube-system/cilium")
    assert (agent.at_once, agent.count) == (2, 5), "the chart's own maxUnavailable"
    assert (blast.places, blast.jobs) == (0, ())
    assert agent in blast.rolling, "what the cluster's budget is held against"
    assert not any("does not know" in hit.why for hit in blast.hits)


def test_ciliums_own_limit_is_a_share_of_its_nodes_and_the_values_lower_it():
    before = rendered("cilium", "1.19.6")
    for given, at_once in (("1", 1), ("21%", 2), ("20%", 1), ("100%", 5)):
        after = rendered("cilium", "1.20.0", **{"updateStrategy.rollingUpdate.maxUnavailable": given})
        limits = {hit.what: hit.at_once for hit in judged("cilium", before, after).rolling}
        assert limits == {"DaemonSet kube-system/cilium": at_once, "DaemonSet kube-system/cilium-envoy": 2}, given


def test_another_datapath_ends_the_jobs_whose_connections_break():
    before = rendered("cilium", "1.20.0")
    after = rendered("cilium", "1.20.0", routingMode="native", ipv4NativeRoutingCIDR="10.0.0.0/8")
    blast = judged("cilium", before, after)

    assert (blast.worst, blast.jobs) == ("network", ("team/Job train",))


def test_the_network_operators_upgrade_is_network_on_nodes_with_such_nics():
    blast = judged("network-operator", rendered("network-operator", "26.1.2"), rendered("network-operator", "26.4.1"))

    assert blast.worst == "network"
    assert set(blast.nodes) == {"gpu-0", "gpu-1", "gpu-2", "gpu-3"}
    assert not any("does not know" in hit.why for hit in blast.hits)


@pytest.mark.parametrize(
    ("chart", "version", "worst"),
    [
        ("gpu-operator", "v26.7.0", "gpu-pods"),
        ("cilium", "1.20.0", "network"),
        ("network-operator", "26.4.1", "network"),
        ("cert-manager", "v1.21.1", "live"),
        ("kueue", "0.19.2", "new-pods"),
    ],
)
def test_a_first_install_is_as_disruptive_as_the_catalog_says_and_on_all_nodes_at_once(chart, version, worst):
    blast = judged(chart, {}, rendered(chart, version), action="install")
    assert blast.worst == worst
    assert not blast.places
