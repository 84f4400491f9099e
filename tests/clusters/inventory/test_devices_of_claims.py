"""GPUs by Dynamic Resource Allocation are counted like others: boards once, instances one each, shared ones once."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.inventory import device_rows, dra, store
from clusters.models import DeviceClaim, GpuJob, GpuPod, Node
from clusters.sharing import gpu_shares
from tests.clusters import dra_objects as objects
from tests.clusters.dra_objects import board, divisible, instance, pod_with_claims, raw_claim, raw_slice
from tests.clusters.factories import ClusterFactory, raw_node, raw_pod
from tests.clusters.inventory.observed import AT, LATER, see

pytestmark = pytest.mark.django_db
EIGHT = [board(minor) for minor in range(8)]


@pytest.fixture
def cluster():
    cluster = ClusterFactory()
    see(cluster, raw_node("n1"))
    return cluster


def publish(cluster, *slices, complete=True, deleted=()):
    device_rows.observe_slices(cluster, list(slices), complete=complete, at=AT, deleted=deleted)


def claim(cluster, *claims, complete=False, deleted=()):
    device_rows.observe_claims(cluster, list(claims), complete=complete, at=AT, deleted=deleted)


def run(cluster, *pods, deleted=()):
    store.observe_pods(cluster, list(pods), complete=False, at=AT, deleted=deleted)


def counts():
    row = Node.objects.get()
    return row.gpu_count, row.gpu_allocated


def held():
    return dict(GpuPod.objects.values_list("name", "gpus"))


def test_boards_are_counted_and_those_of_claims_are_held(cluster):
    publish(cluster, raw_slice("n1", EIGHT))
    assert counts() == (8, 0)
    run(cluster, pod_with_claims("a", "a-gpu"), pod_with_claims("b", "b-gpu"))
    assert (counts(), held()) == ((8, 0), {})
    claim(cluster, raw_claim("a-gpu", "gpu-0", pods=["a"]), raw_claim("b-gpu", "gpu-1", "gpu-2", pods=["b"]))
    assert (counts(), held()) == ((8, 3), {"a": 1, "b": 2})
    assert Node.objects.get().gpu_product == objects.PRODUCT
    assert Node.objects.get().gpu_words == f"8 × {objects.PRODUCT}"
    claim(cluster, deleted=[raw_claim("b-gpu", "gpu-1", "gpu-2", pods=["b"])])
    assert (counts(), held()) == ((8, 1), {"a": 1})


def test_a_pod_whose_claim_loses_its_devices_goes_on_in_its_job(cluster):
    publish(cluster, raw_slice("n1", EIGHT))
    claim(cluster, raw_claim("a-gpu", "gpu-0", pods=["a"]))
    run(cluster, pod_with_claims("a", "a-gpu"))
    assert GpuJob.objects.get().state == "running"

    claim(cluster, deleted=[raw_claim("a-gpu", "gpu-0", pods=["a"])])
    run(cluster, pod_with_claims("a", "a-gpu"))

    assert held() == {}
    assert GpuJob.objects.get().state == "running"


def test_a_claim_that_several_pods_share_takes_its_devices_once(cluster):
    publish(cluster, raw_slice("n1", EIGHT))
    run(cluster, *(pod_with_claims(name, "shared", is_template=False) for name in "abc"))
    claim(cluster, raw_claim("shared", "gpu-0", "gpu-1", pods=["a", "b"]))
    assert (counts(), held()) == ((8, 2), {"a": 2, "b": 2})
    run(cluster, deleted=[pod_with_claims("a", "shared", is_template=False)])
    assert counts() == (8, 2)


def test_instances_that_exist_are_one_each_and_their_board_is_none(cluster):
    split = [instance(0, *place, is_made=False) for place in (("3g.40gb", 9, 0, 4), ("1g.10gb", 19, 4, 1))]
    publish(cluster, raw_slice("n1", [*split, board(1)]))
    assert Node.objects.get().gpu_words == f"1 × {objects.PRODUCT}, 1 × 1g.10gb, 1 × 3g.40gb"
    run(cluster, pod_with_claims("a", "a-gpu"))
    claim(cluster, raw_claim("a-gpu", split[0]["name"], pods=["a"]))
    assert counts() == (3, 1)
    assert GpuPod.objects.get().mig == {"3g.40gb": 1}


def test_a_divisible_board_is_one_until_claims_are_given_parts_of_it(cluster):
    publish(cluster, raw_slice("n1", [*divisible(0), *divisible(1)]))
    assert counts() == (2, 0)
    run(cluster, *(pod_with_claims(name, f"{name}-gpu") for name in "abc"))
    claim(cluster, raw_claim("a-gpu", "gpu-0-mig-1g10gb-19-0", pods=["a"]))
    assert counts() == (2, 1)
    claim(cluster, raw_claim("b-gpu", "gpu-0-mig-3g40gb-9-4", pods=["b"]), raw_claim("c-gpu", "gpu-1", pods=["c"]))
    assert counts() == (3, 3)
    assert Node.objects.get().gpu_words == f"1 × {objects.PRODUCT}, 1 × 1g.10gb, 1 × 3g.40gb"
    claim(cluster, deleted=[raw_claim("a-gpu"), raw_claim("b-gpu")])
    assert counts() == (2, 1)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"is_admin": True}, id="administrator's access"),
        pytest.param({"driver": "dra.net"}, id="another driver"),
        pytest.param({"annotations": {dra.BY_EXTENDED_RESOURCE: "true"}}, id="made for an extended resource"),
    ],
)
def test_a_claim_that_takes_no_device_besides_is_not_counted(cluster, other):
    publish(cluster, raw_slice("n1", EIGHT))
    run(cluster, pod_with_claims("a", "a-gpu"))
    claim(cluster, raw_claim("a-gpu", "gpu-0", pods=["a"], **other))
    assert (counts(), held()) == ((8, 0), {})
    assert not GpuJob.objects.exists()


def test_a_pod_that_requests_an_extended_resource_holds_its_device_once(cluster):
    publish(cluster, raw_slice("n1", EIGHT))
    run(cluster, raw_pod("a", gpus=2))
    claim(cluster, raw_claim("x", "gpu-0", "gpu-1", pods=["a"], annotations={dra.BY_EXTENDED_RESOURCE: "true"}))
    assert counts() == (8, 2)


def test_slices_of_other_drivers_and_of_replaced_pools_are_no_devices(cluster):
    publish(cluster, raw_slice("n1", EIGHT, driver="compute-domain.nvidia.com"), raw_slice("n1", EIGHT[:4]))
    assert counts() == (4, 0)
    publish(cluster, raw_slice("n1", EIGHT[:4], generation=1), raw_slice("n1", EIGHT[:6], generation=2))
    assert counts() == (6, 0)
    publish(cluster)
    assert counts() == (0, 0)


def test_boards_that_a_plugin_offers_too_are_the_same_ones():
    cluster = ClusterFactory()
    see(cluster, raw_node("n1", gpus=8, labels={"nvidia.com/gpu.count": "8"}))
    publish(cluster, raw_slice("n1", EIGHT))
    assert counts() == (8, 0)
    see(cluster, raw_node("n1", gpus=4, labels={"nvidia.com/gpu.count": "8"}), at=LATER)
    publish(cluster, raw_slice("n1", EIGHT[:4], generation=2))
    run(cluster, raw_pod("p", gpus=4), pod_with_claims("a", "a-gpu"))
    claim(cluster, raw_claim("a-gpu", "gpu-0", pods=["a"]))
    assert counts() == (8, 5)


def test_a_pod_that_waits_for_its_claim_waits_for_a_gpu(cluster):
    claim(cluster, raw_claim("a-gpu", owner="a", count=4))
    run(cluster, pod_with_claims("a", "a-gpu", node=""))
    assert (held(), counts()) == ({"a": 4}, (0, 0))
    job = GpuJob.objects.get()
    assert (job.gpus, job.state) == (4, "queued")


EVENTS = ["slice", "node", "pod", "claim"]


@pytest.mark.parametrize("order", list(itertools.permutations(EVENTS)), ids="-".join)
def test_the_order_in_which_objects_are_heard_makes_no_difference(order):
    cluster = ClusterFactory()
    hear = {
        "slice": lambda: publish(cluster, raw_slice("n1", [*divisible(0), board(1)])),
        "node": lambda: see(cluster, raw_node("n1")),
        "pod": lambda: run(cluster, pod_with_claims("a", "a-gpu")),
        "claim": lambda: claim(cluster, raw_claim("a-gpu", "gpu-0-mig-1g10gb-19-3", "gpu-1", pods=["a"])),
    }
    for event in order:
        hear[event]()
    row = Node.objects.get()
    assert (row.gpu_count, row.gpu_allocated, row.instances) == (2, 2, {"1g.10gb": 1})
    pod = GpuPod.objects.get()
    assert (pod.gpus, pod.mig) == (2, {"1g.10gb": 1})
    assert GpuJob.objects.get().gpus == 2


def test_late_and_repeated_events_change_nothing(cluster):
    publish(cluster, raw_slice("n1", EIGHT))
    run(cluster, pod_with_claims("a", "a-gpu"))
    before, after = raw_claim("a-gpu", "gpu-0", pods=["a"]), raw_claim("a-gpu", "gpu-0", "gpu-1", pods=["a"])
    claim(cluster, after)
    claim(cluster, before)
    claim(cluster, after)
    assert counts() == (8, 2)
    claim(cluster, deleted=[raw_claim("a-gpu")])
    claim(cluster, after)
    assert (counts(), DeviceClaim.objects.count()) == ((8, 0), 0)


def test_any_history_ends_where_its_last_objects_say(cluster):
    """Pods come and go with their claims in any order of events; a list at the end changes nothing."""
    draw = random.Random(7)
    publish(cluster, raw_slice("n1", [*divisible(0), *divisible(1), *EIGHT[2:]]))
    devices = ["gpu-0-mig-1g10gb-19-0", "gpu-0-mig-1g10gb-19-1", "gpu-1", *(f"gpu-{n}" for n in range(2, 8))]
    living = {}
    for _ in range(60):
        name = f"p{draw.randrange(9)}"
        events = [lambda name=name: run(cluster, deleted=[pod_with_claims(name, f"{name}-gpu")])]
        if name in living:
            events.append(lambda name=name: claim(cluster, deleted=[raw_claim(f"{name}-gpu")]))
            del living[name]
        elif free := [device for device in devices if device not in living.values()]:
            living[name] = device = draw.choice(free)
            pod, given_to = pod_with_claims(name, f"{name}-gpu"), [name]
            pod["metadata"]["uid"] = f"uid-of-pod-{name}"
            made = raw_claim(f"{name}-gpu", device, pods=given_to)
            events = [lambda pod=pod: revive(cluster, pod), lambda made=made: revive_claim(cluster, made)]
        draw.shuffle(events)
        for event in events:
            event()
        parts = sum("mig" in device for device in living.values())
        assert counts() == (8 - (parts > 0) + parts, len(living))
        assert held() == dict.fromkeys(living, 1)


def revive(cluster, pod):
    store.observe_pods(cluster, [pod], complete=False, at=AT)


def revive_claim(cluster, made):
    claim(cluster, made)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(
    inner, max_size=3) | st.dictionaries(st.sampled_from(["spec", "status", "metadata", "driver", "devices", "pool",
    "attributes", "type", "results", "allocation", "reservedFor", "name", "nodeName", "requests"]), inner, max_size=4),
    max_leaves=12))  # fmt: skip
def test_no_object_however_malformed_is_an_error(junk):
    raw = junk if isinstance(junk, dict) else {"spec": junk, "status": junk, "metadata": junk}
    dra.read_slice(raw)
    dra.read_claim(raw)
    dra.claim_names(raw)


def test_devices_of_both_ways_are_told_apart_only_by_the_label():
    assert gpu_shares.together(8, 8, {}) == 8
    assert gpu_shares.together(4, 4, {"nvidia.com/gpu.count": "8"}) == 8
    assert gpu_shares.together(8, 0, {}) == 8
