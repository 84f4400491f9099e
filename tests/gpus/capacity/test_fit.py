"""Schedulable capacity: free GPUs, gangs, fragmentation; pending work in own objects and units of Volcano and Kueue."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from clusters.connection import registry
from clusters.models import GpuPod, Node
from common.clock import now
from gpus.capacity import fit
from gpus.capacity import pending as waiting
from gpus.models import Waiting
from simfleet.apiserver.resources import Resource
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory

KINDS = [
    Resource("podgroups", "PodGroup", "scheduling.volcano.sh", "v1beta1", custom=True),
    Resource("queues", "Queue", "scheduling.volcano.sh", "v1beta1", namespaced=False, custom=True),
    Resource("workloads", "Workload", "kueue.x-k8s.io", "v1beta1", custom=True),
    Resource("clusterqueues", "ClusterQueue", "kueue.x-k8s.io", "v1beta1", namespaced=False, custom=True),
]


# ── Counting ──────────────────────────────────────────────────────────────────────────────────────────────────────────
@given(st.lists(st.integers(0, 16), max_size=12), st.sampled_from(fit.SIZES))
@hypothesis_settings(max_examples=40, deadline=None)
def test_what_starts_and_what_is_stranded_are_all_that_is_free(free, size):
    room = Counter(free)
    capacity = fit.size_of(size, room)
    assert capacity.gang + capacity.stranded == sum(free)
    assert fit.can_start([[capacity.pods, size]], room)
    assert not fit.can_start([[capacity.pods + 1, size]], room)


def tries_all(pods: list[int], free: tuple[int, ...]) -> bool:
    """Try every order of first fit: slow, and surely right."""
    for order in set(permutations(pods)):
        rest = list(free)
        for size in order:
            place = next((at for at, free_gpus in enumerate(rest) if free_gpus >= size), None)
            if place is None:
                break
            rest[place] -= size
        else:
            return True
    return not pods


@given(
    st.lists(st.integers(0, 8), max_size=4).map(tuple),
    st.lists(st.tuples(st.integers(1, 2), st.sampled_from([1, 2, 4, 8])), max_size=3),
)
@hypothesis_settings(max_examples=60, deadline=None)
def test_a_mixed_gang_of_powers_of_two_fits_exactly_where_some_order_does(free, pods):
    each = [size for count, size in pods for _ in range(count)]
    assert fit.can_start(pods, Counter(free)) is tries_all(each, free)


def test_ten_million_pods_on_as_many_nodes_are_judged_by_their_sizes_alone():
    room = {8: 10_000_000, 3: 5}
    assert fit.can_start([[10_000_000, 8], [15, 1]], room)
    assert not fit.can_start([[10_000_000, 8], [16, 1]], room)


# ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────
class World:
    def __init__(self) -> None:
        self.sim = SimCluster(seed=3)
        self.fleet = SimFleet(self.sim)
        self.cluster = ClusterFactory(uid=self.sim.uid, name="atlas")
        for number, held in enumerate((0, 3, 8)):
            Node.objects.create(
                cluster=self.cluster, uid=f"u{number}", name=f"n{number}", is_ready=True, gpu_count=8,
                gpu_allocated=held, gpu_product="NVIDIA-H100-80GB-HBM3",
            )  # fmt: skip
        self.out = Node.objects.create(
            cluster=self.cluster, uid="out", name="out", is_ready=True, is_cordoned=True, gpu_count=8,
            gpu_product="NVIDIA-H100-80GB-HBM3",
        )  # fmt: skip
        self.client = Client()
        self.client.force_login(UserFactory(is_superuser=True))

    def install(self) -> None:
        for kind in KINDS:
            self.sim.store.register(kind.qualified, kind)

    def create(self, plural: str, name: str, *, namespace: str = "", **body) -> None:
        kind = next(kind for kind in KINDS if kind.plural == plural)
        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        self.sim.store.create(kind.qualified, {"metadata": metadata, **body})

    def look(self) -> Waiting:
        waiting.reconcile()
        (row,) = Waiting.objects.all()
        Waiting.objects.update(due_at="2020-01-01T00:00Z")
        with registry.override(self.cluster.pk, self.fleet):
            assert waiting.refresh(row.pk)
        row.refresh_from_db()
        return row

    def answer(self) -> dict:
        answer = self.client.get(f"/api/v1/clusters/{self.cluster.pk}/gpu-fit")
        assert answer.status_code == 200
        return answer.json()

    def page(self) -> str:
        answer = self.client.get(f"/gpus/clusters/{self.cluster.pk}/fit/")
        assert answer.status_code == 200
        return answer.content.decode()


@pytest.fixture
def world(db, clock):
    return World()


def test_free_gpus_by_node_and_the_largest_gang(world):
    answer = world.answer()
    assert (answer["offered"], answer["free"], answer["out"], answer["largest"]) == (32, 13, 8, 8)
    (model,) = answer["models"]
    assert {row["free"]: row["nodes"] for row in model["by_free"]} == {8: 1, 5: 1, 0: 1} | dict.fromkeys(
        (1, 2, 3, 4, 6, 7), 0
    )
    assert [(row["gpus"], row["gang"], row["stranded"]) for row in model["sizes"]] == [
        (1, 13, 0), (2, 12, 1), (4, 12, 1), (8, 8, 5),
    ]  # fmt: skip
    assert "13 of 32 GPUs are free, and 8 more on nodes that are cordoned" in " ".join(world.page().split())


def test_a_cluster_without_schedulers_says_so_and_is_looked_at_rarely(world):
    row = world.look()
    assert (row.systems, row.gangs, row.refused) == ([], [], [])
    assert (row.due_at - row.read_at) == waiting.WHERE_NOTHING_IS
    assert "Neither Volcano nor Kueue is installed" in world.page()


def test_volcano_counts_eight_thousand_milli_gpus_as_eight(world):
    world.install()
    unschedulable = {"type": "Unschedulable", "status": "True", "message": "4/4 tasks in gang unschedulable"}
    world.create(
        "podgroups",
        "pretrain",
        namespace="llm",
        spec={"minMember": 4, "queue": "train", "minResources": {"nvidia.com/gpu": "32000m", "cpu": "4"}},
        status={"phase": "Pending", "conditions": [unschedulable]},
    )
    # Quotas call the same GPUs by a second name; what runs waits no more; what wants none is not shown.
    both = {"nvidia.com/gpu": "2", "requests.nvidia.com/gpu": "2"}
    world.create("podgroups", "eval", namespace="llm", spec={"minResources": both}, status={"phase": "Inqueue"})
    world.create("podgroups", "done", namespace="llm", spec={"minResources": both}, status={"phase": "Running"})
    world.create("podgroups", "cpu", namespace="llm", spec={"minResources": {"cpu": "8"}}, status={})
    status = {"state": "Open", "pending": 1, "inqueue": 1, "allocated": {"nvidia.com/gpu": "11000m"}}
    world.create("queues", "train", spec={"capability": {"nvidia.com/gpu": "16"}}, status=status)
    row = world.look()
    assert (row.systems, row.count) == (["volcano"], 2) or row.systems == ["volcano", "kueue"]
    answer = world.answer()
    gangs = {gang["name"]: gang for gang in answer["gangs"]}
    assert (gangs["pretrain"]["gpus"], gangs["pretrain"]["pods"], gangs["pretrain"]["queue"]) == (32, [[4, 8]], "train")
    assert gangs["pretrain"]["reason"] == "4/4 tasks in gang unschedulable"
    assert gangs["pretrain"]["verdict"] == "It requests 32 GPUs; 13 of one model are free."
    assert (gangs["eval"]["gpus"], gangs["eval"]["fits"]) == (2, True)
    (queue,) = (queue for queue in answer["queues"] if queue["system"] == "volcano")
    assert (queue["held"], queue["limit"], queue["waiting"], queue["state"]) == (11, 16, 2, "Open")
    page = world.page()
    assert "llm/pretrain" in page
    assert "4 × 8" in page


def test_kueue_says_what_each_set_of_pods_wants(world):
    world.install()

    def pods(count: int, gpus: str) -> dict:
        containers = [{"resources": {"requests": {"nvidia.com/gpu": gpus}}}]
        return {"count": count, "template": {"spec": {"containers": containers}}}

    reason = "couldn't assign flavors to pod set main: insufficient unused quota"
    pending = {"type": "QuotaReserved", "status": "False", "message": reason}
    spec = {"queueName": "research", "podSets": [pods(1, "4"), pods(2, "4"), pods(1, "0")]}
    world.create("workloads", "job-a", namespace="vision", spec=spec, status={"conditions": [pending]})
    admitted = {"conditions": [{"type": "Admitted", "status": "True"}]}
    world.create("workloads", "job-b", namespace="vision", spec=spec, status=admitted)
    quota = {"name": "nvidia.com/gpu", "nominalQuota": "16"}
    spec = {"resourceGroups": [{"flavors": [{"resources": [quota, {"name": "cpu", "nominalQuota": "99"}]}]}]}
    used = [{"resources": [{"name": "nvidia.com/gpu", "total": "12"}]}]
    active = [{"type": "Active", "status": "True"}]
    status = {"pendingWorkloads": 1, "flavorsReservation": used, "conditions": active}
    world.create("clusterqueues", "shared", spec=spec, status=status)
    world.look()
    answer = world.answer()
    (gang,) = answer["gangs"]
    assert (gang["name"], gang["gpus"], gang["pods"], gang["reason"]) == ("job-a", 12, [[1, 4], [2, 4]], reason)
    assert (gang["fits"], gang["verdict"][:24]) == (True, "Enough GPUs are free: it")
    queue = next(queue for queue in answer["queues"] if queue["system"] == "kueue")
    assert (queue["held"], queue["limit"], queue["waiting"], queue["state"]) == (12, 16, 1, "Active")


@pytest.mark.parametrize(
    ("resources", "gpus"),
    [
        ({"limits": {"nvidia.com/gpu": "2"}}, 2),
        ({"limits": {"nvidia.com/gpu": "2"}, "requests": {"cpu": "1"}}, 2),
        ({"limits": {"nvidia.com/mig-1g.10gb": "3"}}, 3),
    ],
)
def test_a_limit_without_a_request_is_requested_by_a_pod_of_kueue(world, resources, gpus):
    """Kubernetes copies the limit when it makes the pod; a Workload keeps the template of the job as it was written."""
    world.install()
    template = {"spec": {"containers": [{"resources": resources}]}}
    spec = {"queueName": "research", "podSets": [{"count": 1, "template": template}]}
    world.create("workloads", "job-a", namespace="vision", spec=spec, status={})
    world.look()
    assert [(gang["name"], gang["gpus"]) for gang in world.answer()["gangs"]] == [("job-a", gpus)]


def test_a_refused_read_is_said_and_the_rest_goes_on(world):
    world.install()
    world.sim.api.forbidden.add(("list", KINDS[0].qualified))
    world.create("queues", "train", spec={}, status={"state": "Open"})
    row = world.look()
    assert [what for what, _ in row.refused] == ["volcano’s podgroups"]
    assert "setpoint-gpus.yaml" in row.refused[0][1]
    assert [queue["name"] for queue in row.queues] == ["train"]
    assert "Volcano’s podgroups could not be read: pending workloads are unknown." in world.page()


def test_what_is_written_in_no_form_is_left_out_and_an_outage_keeps_what_was_read(world, clock):
    world.install()
    world.create("podgroups", "odd", namespace="llm", spec={"minMember": "many", "minResources": {"nvidia.com/gpu": 8}})
    world.create("podgroups", "good", namespace="llm", spec={"minResources": {"nvidia.com/gpu": 8}}, status={})
    row = world.look()
    assert [gang["name"] for gang in row.gangs] == ["good"]
    before = row.read_at
    world.sim.faults.outage = True
    clock.forward(seconds=60)
    row = world.look()
    assert (row.count, row.read_at) == (1, before)
    assert row.refused[0][0] == "the API server"


def test_pods_that_nobody_placed_are_shown(world):
    GpuPod.objects.create(cluster=world.cluster, uid="p", namespace="team", name="waits-0", gpus=8, phase="Pending")
    assert world.answer()["unplaced"] == [{"namespace": "team", "name": "waits-0", "gpus": 8}]
    assert "team/waits-0" in world.page()


def test_what_mig_splits_fits_nobody_who_wants_a_gpu_and_is_counted_by_its_profile(world):
    """n1 has 4 whole GPUs, 1 of them free, and 8 instances of which 6 are held; n2 only instances, none held."""
    split = {"nvidia.com/mig-3g.40gb": "8", "cpu": "9"}
    Node.objects.filter(name="n1").update(
        allocatable={"nvidia.com/gpu": "4"} | split, gpu_count=12, gpu_allocated=9,
    )  # fmt: skip
    Node.objects.filter(name="n2").update(
        allocatable={"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "14"}, gpu_count=14, gpu_allocated=0
    )
    for number, (gpus, mig) in enumerate([(3, {}), (4, {"3g.40gb": 4}), (2, {"3g.40gb": 2})]):
        GpuPod.objects.create(
            cluster=world.cluster,
            uid=f"p{number}",
            namespace="t",
            name=f"p{number}",
            node_name="n1",
            gpus=gpus,
            mig=mig,
        )
    world.install()
    for name, resource, count in (("small", "1g.10gb", 10), ("many", "3g.40gb", 3)):
        least = {f"nvidia.com/mig-{resource}": str(count)}
        world.create(
            "podgroups", name, namespace="t", spec={"minMember": count, "minResources": least}, status={}
        )  # fmt: skip
    both = {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "1"}
    world.create("podgroups", "both", namespace="t", spec={"minMember": 2, "minResources": both}, status={})
    world.look()
    answer = world.answer()

    models = {model["profile"]: (model["offered"], model["free"]) for model in answer["models"]}
    assert models == {"": (20, 9), "1g.10gb": (14, 14), "3g.40gb": (8, 2)}
    assert (answer["offered"], answer["free"], answer["largest"]) == (20, 9, 8)
    assert (answer["instances_offered"], answer["instances_free"]) == (22, 16)
    gangs = {gang["name"]: gang for gang in answer["gangs"]}
    assert {name: (gang["profile"], gang["fits"]) for name, gang in gangs.items()} == {
        "small": ("1g.10gb", True), "many": ("3g.40gb", False), "both": (waiting.SEVERAL, False),
    }  # fmt: skip
    assert gangs["many"]["verdict"] == "It requests 3 instances of 3g.40gb; 2 of one model are free."
    page = world.page()
    assert "so are 16 of 22 " in " ".join(page.split())
    assert "10 × 1g.10gb" in page


@pytest.mark.parametrize("suffix", ["", ".shared"])
def test_shares_are_no_whole_gpus_and_fit_only_those_who_ask_by_their_name(world, suffix):
    """n1 offers 8 GPUs in 32 shares of which 12 are held."""
    Node.objects.exclude(name="n1").update(gone_at=now())
    shared, whole = f"nvidia.com/gpu{suffix}", fit.GPU_SHARES if not suffix else "shared"
    Node.objects.filter(name="n1").update(
        allocatable={"nvidia.com/gpu": "0"} | {shared: "32"}, gpu_count=8, gpu_shares={"": [32, 8]}
    )
    GpuPod.objects.filter(node_name="n1").delete()
    GpuPod.objects.create(
        cluster=world.cluster, uid="p", namespace="t", name="p", node_name="n1", gpus=12,
        mig={"shared": 12} if suffix else {},
    )  # fmt: skip
    world.install()
    for name, resource, count in (("gpus", "nvidia.com/gpu", 2), ("shares", "nvidia.com/gpu.shared", 2)):
        least = {resource: str(count)}
        world.create("podgroups", name, namespace="t", spec={"minMember": count, "minResources": least}, status={})
    world.look()
    answer = world.answer()

    assert {model["profile"]: (model["offered"], model["free"]) for model in answer["models"]} == {whole: (32, 20)}
    assert (answer["offered"], answer["free"], answer["largest"]) == (0, 0, 0)
    fits = {gang["name"]: gang["fits"] for gang in answer["gangs"]}
    assert fits == {"gpus": not suffix, "shares": bool(suffix)}
    assert ("a pod that wants a GPU may be given one" in " ".join(world.page().split())) == (not suffix)
