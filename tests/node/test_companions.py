"""Node Feature Discovery, installed by Setpoint from the real chart, with its own programs on a real node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from contract import names
from tests.components.charts.test_real_archives import ARCHIVES
from tests.controlplane.admin import Admin
from tests.controlplane.fixtures import MANIFESTS, await_policies
from tests.controlplane.plane import Plane
from tests.full.harness.charts.cases import Case, archive
from tests.full.harness.charts.fixtures import program
from tests.full.harness.charts.stage import Stage
from tests.full.harness.client import eventually
from tests.full.harness.equipping import DEPLOY, RIGHTS
from tests.full.harness.processes import Installation
from tests.full.harness.servers import Postgres, Redis
from tests.full.harness.site import Site
from tests.node.conftest import joined
from tests.nodemachine import companions
from tests.nodemachine.node import Node
from tests.ports import free_port

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("judged")]

NFD = Case("node-feature-discovery", "0.19.0", "0.19.0")
CASES = (NFD,)
GPUS = 2
"""Advertised by hand, as Kubernetes' documentation of extended resources does: the machine has none."""
PATIENCE = 600.0
"""A judgement: an emulated processor is ten times as slow as a real one."""
FEATURES = "feature.node.kubernetes.io/"
INSTRUCTIONS = {
    "AVX": "avx", "AVX2": "avx2", "AVX512F": "avx512f", "AESNI": "aes", "FMA3": "fma", "VAES": "vaes", "SHA": "sha_ni",
}  # fmt: skip
"""Names of NFD's labels, and the kernel's of the same flags."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Plane]:
    """A control plane of its own: webhooks that fail closed would be in the way of every other test."""
    with Plane(tunnel=free_port()) as plane:
        plane.kubectl("apply", "-f", str(MANIFESTS))
        plane.kubectl("wait", "--for=condition=Established", f"crd/{names.PLURAL}.{names.GROUP}", "--timeout=30s")
        await_policies(plane)
        yield plane


@pytest.fixture(scope="module")
def node(cluster: Plane, archives: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    if not ARCHIVES.is_dir():
        pytest.skip(f"needs charts: there are none in {ARCHIVES}")
    more = [path for case in CASES for path in companions.images(case.name)]
    folder = tmp_path_factory.mktemp("machine")
    with joined(Node(cluster, Admin(cluster), folder, "node-c", [*archives, *more])) as made:
        made.open_tunnel()
        advertised = [{"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": str(GPUS)}]
        cluster.kubectl("patch", "node", made.name, "--subresource=status", "--type=json", "-p", json.dumps(advertised))
        yield made


@pytest.fixture(scope="module")
def site(cluster: Plane, node: Node) -> Iterator[Site]:
    settings = {"SETPOINT_SWEEP_SECONDS": "1", "SETPOINT_GPU_SECONDS": "3"}
    with Postgres() as postgres, Redis() as redis, Installation(postgres.url, redis.url, settings) as installation:
        opened = Site(cluster, node.admin, installation)
        try:
            opened.open()
            opened.await_observed([node.name])
            yield opened
        finally:
            opened.close()


@pytest.fixture(scope="module")
def stage(site: Site, cluster: Plane, node: Node) -> Stage:
    """What is at hand for a component: the charts in the store, both identities, and a worker for helm."""
    manifests = (RIGHTS, DEPLOY / "setpoint-policies.yaml", DEPLOY / "setpoint-gpus.yaml")
    cluster.kubectl("create", "namespace", "gpu-operator")  # for a role of setpoint-gpus.yaml
    cluster.kubectl("apply", *(word for path in manifests for word in ("-f", str(path))))
    for case in CASES:
        site.admin.upload("chart-archives", archive=archive(case.name, case.new))
    issuer = node.admin.token(names.HELM_ISSUER_SERVICE_ACCOUNT)
    site.setpoint.manage("helm_credential", str(site.cluster["name"]), text=issuer)
    site.setpoint.start("helm")
    return Stage(site, cluster, node.admin, program("v3"), site.pool(pool="machines"), patience=PATIENCE)


def install(stage: Stage, case: Case) -> None:
    """Install a component as its users do, and wait until Setpoint calls it compliant."""
    plan, _ = stage.planned(stage.revision(case, case.new), "install")
    stage.run(plan, "succeeded")
    stage.until_state(case, "compliant")


def features(labels: dict[str, str]) -> dict[str, str]:
    return {name.removeprefix(FEATURES): value for name, value in labels.items() if name.startswith(FEATURES)}


def test_what_nfd_finds_on_the_node_is_what_the_kernel_has_and_what_setpoint_shows(
    stage: Stage, site: Site, node: Node
) -> None:
    assert features(node.object()["metadata"]["labels"]) == {}

    install(stage, NFD)

    found = node.eventually(lambda: features(node.object()["metadata"]["labels"]))
    release = node.machine.run("uname", "-r")
    major, minor = release.split(".")[:2]
    assert found["kernel-version.full"] == release
    assert (found["kernel-version.major"], found["kernel-version.minor"]) == (major, minor)
    flags = set(node.machine.shell("grep -m1 ^flags /proc/cpuinfo").split())
    told = {name for name in INSTRUCTIONS if f"cpu-cpuid.{name}" in found}
    assert told == {name for name, flag in INSTRUCTIONS.items() if flag in flags}
    assert told, "the law above is not empty"
    assert node.machine.read("/sys/block/nvme0n1/queue/rotational") == "0"
    assert found["storage-nonrotationaldisk"] == "true"

    eventually(lambda: features(site.node(node.name)["labels"]) == found, lambda: str(site.node(node.name)["labels"]))
    page = site.operator.page(f"nodes/{site.node(node.name)['id']}/")
    assert [
        f"{FEATURES}{name}={value}" for name, value in found.items() if f">{FEATURES}{name}={value}<" not in page
    ] == []
    chosen = site.operator.every("nodes", labels=f"{FEATURES}storage-nonrotationaldisk=true")
    assert [row["name"] for row in chosen] == [node.name]
