"""Node Feature Discovery, Kueue and Volcano, installed by Setpoint from the real charts, at work on a real node.

Their programs are built from their Go modules: labels are really read, a queue is really full, a gang really waits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest

from contract import names
from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.harness.charts.cases import KUEUE, NEEDS_CHARTS, NFD, ON_A_NODE, VOLCANO, Case, archive
from tests.full.harness.charts.fixtures import program
from tests.full.harness.charts.stage import Stage
from tests.full.harness.client import eventually
from tests.full.harness.equipping import DEPLOY, RIGHTS
from tests.full.harness.site import Site
from tests.node.conftest import joined, opened
from tests.nodemachine import companions
from tests.nodemachine.node import Node
from tests.nodemachine.workloads import GANGS, TEAM, bare_gang, batch_job, volcano_job

pytestmark = [NEEDS_CHARTS, pytest.mark.long, pytest.mark.usefixtures("judged")]

GPUS = 2
"""Advertised by hand, as Kubernetes' documentation of extended resources does: the machine has none."""
PATIENCE = 600.0
"""A judgment: an emulated processor is ten times as slow as a real one."""
FEATURES = "feature.node.kubernetes.io/"
INSTRUCTIONS = {
    "AVX": "avx", "AVX2": "avx2", "AVX512F": "avx512f", "AESNI": "aes", "FMA3": "fma", "VAES": "vaes", "SHA": "sha_ni",
}  # fmt: skip
"""Names of NFD's labels, and the kernel's of the same flags."""
QUEUES = f"""
policies:
  - {{apiVersion: v1, kind: Namespace, metadata: {{name: {TEAM}, labels: {{kueue-managed: "true"}}}}}}
  - {{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {{name: gpu}}}}
  - apiVersion: kueue.x-k8s.io/v1beta2
    kind: ClusterQueue
    metadata: {{name: training}}
    spec:
      namespaceSelector: {{matchLabels: {{kueue-managed: "true"}}}}
      resourceGroups:
        - coveredResources: [nvidia.com/gpu]
          flavors: [{{name: gpu, resources: [{{name: nvidia.com/gpu, nominalQuota: "1"}}]}}]
  - apiVersion: kueue.x-k8s.io/v1beta2
    kind: LocalQueue
    metadata: {{name: training, namespace: {TEAM}}}
    spec: {{clusterQueue: training}}
"""


@pytest.fixture(scope="module")
def node(cluster: Plane, archives: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    more = [path for case in ON_A_NODE for path in companions.images(case.name)]
    folder = tmp_path_factory.mktemp("machine")
    with joined(Node(cluster, Admin(cluster), folder, "node-c", [*archives, *more], patience=PATIENCE)) as made:
        made.open_tunnel()
        advertised = [{"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": str(GPUS)}]
        cluster.kubectl("patch", "node", made.name, "--subresource=status", "--type=json", "-p", json.dumps(advertised))
        yield made


@pytest.fixture(scope="module")
def site(node: Node) -> Iterator[Site]:
    with opened(node, {"SETPOINT_SWEEP_SECONDS": "1", "SETPOINT_GPU_SECONDS": "3"}) as made:
        yield made


@pytest.fixture(scope="module")
def stage(site: Site, cluster: Plane, node: Node) -> Stage:
    """Components may be carried out: the charts in the store, both identities, and a worker for helm."""
    manifests = (RIGHTS, DEPLOY / "setpoint-policies.yaml", DEPLOY / "setpoint-gpus.yaml")
    cluster.kubectl("create", "namespace", "gpu-operator")  # for a role of setpoint-gpus.yaml
    cluster.kubectl("apply", *(word for path in manifests for word in ("-f", str(path))))
    for case in ON_A_NODE:
        site.admin.upload("chart-archives", archive=archive(case.name, case.new))
    issuer = node.admin.token(names.HELM_ISSUER_SERVICE_ACCOUNT)
    site.setpoint.manage("helm_credential", str(site.cluster["name"]), text=issuer)
    site.setpoint.start("helm", "gpus")
    return Stage(site, cluster, node.admin, program("v3"), site.pool(pool="machines"), patience=PATIENCE)


def install(stage: Stage, case: Case) -> None:
    """Install a component as its users do, and wait until Setpoint calls it compliant."""
    plan, _ = stage.planned(stage.revision(case, case.new), "install")
    stage.run(plan, "succeeded")
    stage.until_state(case, "compliant")


class Look:
    """Questions to kubectl and to Setpoint about the same things."""

    def __init__(self, stage: Stage, node: Node) -> None:
        self.stage, self.site, self.node = stage, stage.site, node

    def items(self, kind: str, namespace: str = TEAM) -> list[dict[str, Any]]:
        return list(json.loads(self.stage.plane.kubectl("get", kind, "-n", namespace, "-o", "json"))["items"])

    def create(self, *objects: dict[str, Any]) -> None:
        for raw in objects:
            self.stage.plane.kubectl("create", "-f", "-", text=json.dumps(raw))

    def running(self, namespace: str = TEAM) -> list[str]:
        """Pods of that namespace that run on the node, by name."""
        pods = [pod for pod in self.node.pods(namespace) if pod["status"]["phase"] == "Running"]
        return sorted(pod["metadata"]["name"] for pod in pods)

    def end(self, mark: str) -> None:
        self.node.machine.run("pkill", "-TERM", "-f", f"pause.. {mark}")

    def end_all(self) -> None:
        """Free the GPUs for the next test, also where this one ended early."""
        kubectl = self.stage.plane.kubectl
        kubectl("delete", "jobs.batch,pods", "--all", "-n", TEAM, "--wait=false")
        kubectl("delete", "namespace", GANGS, "--ignore-not-found", "--wait=false")
        pods = self.node.pods
        eventually(lambda: not [*pods(TEAM), *pods(GANGS)], self.node.story, seconds=PATIENCE)

    def fit(self) -> dict[str, Any]:
        return dict(self.site.operator.get(f"clusters/{self.site.cluster['id']}/gpu-fit"))

    def await_read(self, system: str) -> None:
        """Wait until Setpoint reads a scheduler's objects; it looks for a new scheduler every five minutes."""
        eventually(lambda: system in self.fit()["systems"], lambda: str(self.fit()), seconds=PATIENCE)

    def queue(self, system: str, name: str) -> dict[str, Any]:
        """Setpoint's row of a queue; empty where it has none."""
        rows = [row for row in self.fit()["queues"] if (row["system"], row["name"]) == (system, name)]
        return rows[0] if rows else {}

    def gangs(self, system: str) -> list[dict[str, Any]]:
        return [gang for gang in self.fit()["gangs"] if gang["system"] == system]

    def page(self) -> str:
        """The text of the page of what fits, without its tags."""
        html = self.site.operator.page(f"gpus/clusters/{self.site.cluster['id']}/fit/")
        return " ".join(unescape(re.sub("<[^>]+>", " ", html)).split())

    def agree(self, pods: list[str], namespace: str = TEAM) -> None:
        """Wait until just these pods hold GPUs according to kubectl, the node's row, its page and the fit."""

        def held() -> tuple[list[str], int, int]:
            row = self.site.node(self.node.name)
            names_ = sorted(pod["name"] for pod in row["gpu_pods"] if pod["phase"] == "Running")
            return names_, row["gpu_allocated"], self.fit()["free"]

        count = len(pods)
        eventually(lambda: self.running(namespace) == pods, self.node.story, seconds=PATIENCE)
        eventually(lambda: held() == (pods, count, GPUS - count), lambda: f"{held()}, not {pods}", seconds=60)
        page = self.site.operator.page(f"nodes/{self.site.node(self.node.name)['id']}/")
        assert [pod for pod in pods if pod not in page] == []
        counted = [row["name"] for row in self.site.operator.every("nodes") if row["gpu_count"] == GPUS]
        assert counted == self.stage.plane.kubectl("get", "nodes", "-o", "name").replace("node/", "").split()


@pytest.fixture
def look(stage: Stage, node: Node) -> Iterator[Look]:
    made = Look(stage, node)
    yield made
    made.end_all()


def features(labels: dict[str, str]) -> dict[str, str]:
    return {name.removeprefix(FEATURES): value for name, value in labels.items() if name.startswith(FEATURES)}


def test_what_nfd_finds_on_the_node_is_what_the_kernel_has_and_what_setpoint_shows(
    stage: Stage, site: Site, node: Node
) -> None:
    assert features(node.object()["metadata"]["labels"]) == {}

    install(stage, NFD)

    labels = node.eventually(lambda: features(node.object()["metadata"]["labels"]))
    release = node.machine.run("uname", "-r")
    major, minor = release.split(".")[:2]
    assert labels["kernel-version.full"] == release
    assert (labels["kernel-version.major"], labels["kernel-version.minor"]) == (major, minor)
    flags = set(node.machine.shell("grep -m1 ^flags /proc/cpuinfo").split())
    instructions = {name for name in INSTRUCTIONS if f"cpu-cpuid.{name}" in labels}
    assert instructions == {name for name, flag in INSTRUCTIONS.items() if flag in flags}
    assert instructions, "the law above is not empty"
    assert node.machine.read("/sys/block/nvme0n1/queue/rotational") == "0"
    assert labels["storage-nonrotationaldisk"] == "true"

    eventually(lambda: features(site.node(node.name)["labels"]) == labels, lambda: str(site.node(node.name)["labels"]))
    page = site.operator.page(f"nodes/{site.node(node.name)['id']}/")
    assert [
        f"{FEATURES}{name}={value}" for name, value in labels.items() if f">{FEATURES}{name}={value}<" not in page
    ] == []
    chosen = site.operator.every("nodes", labels=f"{FEATURES}storage-nonrotationaldisk=true")
    assert [row["name"] for row in chosen] == [node.name]


def test_a_full_queue_of_kueue_holds_the_second_job_until_the_first_ends(
    stage: Stage, site: Site, node: Node, look: Look
) -> None:
    install(stage, KUEUE)
    revision = site.revision({}, profile="queues", extra=QUEUES)
    # A webhook on a busy emulated processor may take longer than the API server waits: then the plan is made again.
    eventually(lambda: not blocks(site.plan(stage.pool, revision)), seconds=PATIENCE, pause=5)
    stage.run(site.plan(stage.pool, revision), "succeeded")
    look.await_read("kueue")
    look.create(batch_job("first"))
    first = [str(pod["metadata"]["name"]) for pod in eventually(lambda: look.items("pods"), node.story)]
    look.agree(first)

    look.create(batch_job("second"))

    waiting = eventually(
        lambda: [workload for workload in look.items("workloads") if is_refused(workload)],
        lambda: str(look.items("workloads")),
    )
    assert [workload["metadata"]["ownerReferences"][0]["name"] for workload in waiting] == ["second"]
    messages = [
        condition["message"] for condition in waiting[0]["status"]["conditions"] if condition["type"] == "QuotaReserved"
    ]
    # Setpoint may have read the Workload before Kueue gave it a reason.
    gang = eventually(
        lambda: [gang for gang in look.gangs("kueue") if [gang["reason"]] == messages],
        lambda: f"{messages}: {look.fit()}",
        seconds=60,
    )[0]
    assert (gang["namespace"], gang["name"]) == (TEAM, waiting[0]["metadata"]["name"])
    assert (gang["pods"], gang["gpus"], gang["fits"]) == ([[1, 1]], 1, True), "a GPU is free: the quota is what is full"
    full = {"system": "kueue", "name": "training", "waiting": 1, "held": 1, "limit": 1, "state": "Active"}
    eventually(lambda: look.queue("kueue", "training") == full, lambda: str(look.fit()["queues"]), seconds=60)
    assert gang["verdict"] in look.page()
    assert look.running() == first

    look.end("first")

    eventually(lambda: look.running() and look.running() != first, node.story, seconds=PATIENCE)
    second = look.running()
    look.agree(second)
    eventually(lambda: look.queue("kueue", "training") == full | {"waiting": 0}, lambda: str(look.fit()), seconds=60)
    assert look.gangs("kueue") == []
    look.end("second")
    look.agree([])


def blocks(plan: dict[str, Any]) -> list[str]:
    return [f"{finding['title']} {finding['detail']}" for finding in plan["findings"] if finding["severity"] == "block"]


def is_refused(workload: dict[str, Any]) -> bool:
    conditions = workload.get("status", {}).get("conditions", [])
    return any(condition["type"] == "QuotaReserved" and condition["status"] == "False" for condition in conditions)


def test_a_gang_of_volcano_starts_whole_or_not_at_all(stage: Stage, look: Look) -> None:
    install(stage, VOLCANO)
    stage.plane.kubectl("create", "namespace", GANGS)
    look.await_read("volcano")
    look.agree([], GANGS)

    look.create(*bare_gang("trio", GPUS + 1))
    refused = eventually(
        lambda: [group for group in look.items("podgroups", GANGS) if unschedulable(group)],
        lambda: str(look.items("podgroups", GANGS)),
        seconds=PATIENCE,
    )
    assert [group["metadata"]["name"] for group in refused] == ["trio"]
    members = look.items("pods", GANGS)
    assert [pod["spec"].get("nodeName") for pod in members] == [None] * (GPUS + 1), "two would have had room"
    expected = sorted((pod["metadata"]["name"], 1) for pod in members)
    eventually(
        lambda: sorted((pod["name"], pod["gpus"]) for pod in look.fit()["unplaced"]) == expected,
        lambda: str(look.fit()["unplaced"]),
        seconds=60,
    )
    assert (look.fit()["free"], look.fit()["largest"]) == (GPUS, GPUS)

    look.create(volcano_job("crowd", GPUS + 1))
    gang = eventually(lambda: look.gangs("volcano"), lambda: str(look.fit()), seconds=60)[0]
    assert (gang["kind"], gang["namespace"], gang["queue"]) == ("PodGroup", GANGS, "default")
    assert (gang["pods"], gang["gpus"], gang["fits"]) == ([[GPUS + 1, 1]], GPUS + 1, False)
    assert gang["verdict"] == f"It requests {GPUS + 1} GPUs; {GPUS} of one model are free."
    assert gang["verdict"] in look.page()
    assert look.queue("volcano", "default")["state"] == "Open"
    assert [pod["metadata"]["name"] for pod in look.items("pods", GANGS) if pod["spec"].get("nodeName")] == []

    stage.plane.kubectl("delete", "podgroups,pods", "--all", "-n", GANGS, "--wait=false")
    stage.plane.kubectl("delete", "jobs.batch.volcano.sh", "crowd", "-n", GANGS)
    eventually(lambda: not look.items("podgroups", GANGS), lambda: str(look.items("podgroups", GANGS)))
    look.create(volcano_job("pair", GPUS))
    look.agree([f"pair-worker-{number}" for number in range(GPUS)], GANGS)
    # Its phase is Running once its pods are bound, and `running`, which is absent while it is 0, counts them later.
    eventually(
        lambda: [counted(group) for group in look.items("podgroups", GANGS)] == [("Running", GPUS)],
        lambda: str(look.items("podgroups", GANGS)),
        seconds=60,
    )
    eventually(lambda: look.queue("volcano", "default")["held"] == GPUS, lambda: str(look.fit()["queues"]), seconds=60)
    assert look.gangs("volcano") == []
    stage.plane.kubectl("delete", "jobs.batch.volcano.sh", "pair", "-n", GANGS)
    look.agree([], GANGS)


def counted(group: dict[str, Any]) -> tuple[str, int]:
    """Return the phase of a PodGroup and how many of its pods run, as Volcano's scheduler has written them."""
    status = group.get("status", {})
    return str(status.get("phase", "")), int(status.get("running", 0))


def unschedulable(group: dict[str, Any]) -> bool:
    conditions = group.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Unschedulable" and condition["status"] == "True" for condition in conditions)
