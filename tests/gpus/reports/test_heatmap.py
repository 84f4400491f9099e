"""The heatmap's GPUs, values and order; the picture and the table behind it never differ."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client

from clusters.models import Node, Pool
from common.clock import now
from compliance.models import NodeExpectation
from gpus.models import GpuDevice, TelemetrySource
from gpus.reports import heatmap, selectors
from gpus.storage import json_fields
from profiles.models import Profile, Revision
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db
H100 = "NVIDIA-H100-80GB-HBM3"


def published() -> Revision:
    profile = Profile.objects.create(name="base")
    return Revision.objects.create(profile=profile, number=1, digest="sha256:0", source="", content={})


class World:
    """n1: busy. n2: idle, and ill. n3: two GPUs of another model, one split in three, one without telemetry."""

    def __init__(self) -> None:
        self.person = UserFactory(is_superuser=True)
        self.cluster = ClusterFactory(name="wide")
        TelemetrySource.objects.create(cluster=self.cluster, state="well", read_at=now())
        self.node("n1", "r1", gpus=2)
        self.node("n2", "r1", gpus=2)
        self.node("n3", "", gpus=5, product="NVIDIA-L40S")
        for index in "01":
            self.gpu("n1", index, busy=0.9, engine=0.9, temperature=60 + int(index), holder="a/train-0")
        self.gpu("n2", "0", busy=0.0, engine=0.0, temperature=40, holder="b/asleep")
        self.gpu("n2", "1", busy=0.5, engine=0.4, temperature=80, holder="b/serve", xids=[[79, 1, "last"]])
        self.gpu("n3", "0", model="NVIDIA L40S", busy=0.0, engine=0.0, temperature=30, tensor=0.5, sm_clock=1260e6)
        board = {"is_board": True, "model": "NVIDIA L40S", "sm_clock": 2520e6, "power": 300.0, "temperature": 77}
        self.gpu("n3", "1", uuid="split", **board)
        for instance in "123":
            part = {"instance": instance, "uuid": "split", "model": "NVIDIA L40S", "engine": 0.25, "tensor": 0.2}
            self.gpu("n3", "1", holder=f"c/part-{instance}", **part)
        self.client = Client()
        self.client.force_login(self.person)

    def node(self, name: str, rack: str, *, gpus: int, product: str = H100) -> None:
        labels = {"team": name} | ({"topology.setpoint.dev/rack": rack} if rack else {})
        Node.objects.create(
            cluster=self.cluster, uid=name, name=name, is_ready=True, gpu_count=gpus, gpu_product=product, labels=labels
        )

    def gpu(self, node: str, index: str, *, holder: str = "", uuid: str = "", **given) -> None:
        columns = {name: given.pop(name) for name in ("is_board", "instance", "model", "xids") if name in given}
        GpuDevice.objects.create(
            cluster=self.cluster,
            node=Node.objects.get(name=node),
            node_name=node,
            uuid=uuid or f"{node}-{index}",
            index=index,
            values=given,
            holders=[[*holder.split("/"), "main"]] if holder else [],
            **{"model": "NVIDIA H100 80GB HBM3"} | columns,
        )

    def ask(self, **filters: str):
        answer = self.client.get(f"/gpus/clusters/{self.cluster.pk}/", filters)
        assert answer.status_code == 200
        return answer.context

    def names(self, **filters: str) -> list[str]:
        context = self.ask(**filters)
        in_picture = [node[1] for node in context["cells"]["nodes"]]
        assert in_picture == [part.node.name for part, _ in context["rows"]]
        return in_picture


@pytest.fixture
def world(clock):
    return World()


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("name", ["n1", "n2", "n3"]),
        ("worst", ["n2", "n3", "n1"]),
        ("idle", ["n2", "n1", "n3"]),
        ("hot", ["n2", "n3", "n1"]),
        ("busy", ["n1", "n2", "n3"]),
        ("quiet", ["n3", "n2", "n1"]),
        ("free", ["n3", "n1", "n2"]),
    ],
)
def test_each_order_holds_in_the_picture_and_in_the_table(world, order, names):
    assert world.names(order=order) == names


def test_names_stand_as_people_count():
    names = ["gpu-9", "gpu-10", "gpu-100", "gpu-100-b", "gpu-1000", "rack2-9", "rack10-1", "10.0.0.9"]
    assert sorted(names, key=heatmap.counted) == ["10.0.0.9", *names[:-1]]


@pytest.mark.parametrize(
    ("filters", "names", "gpus"),
    [
        ({"state": "held"}, ["n2"], 1),
        ({"state": "none"}, ["n3"], 1),
        ({"model": "NVIDIA L40S"}, ["n3"], 5),
        ({"q": "train"}, ["n1"], 2),
        ({"q": "b/"}, ["n2"], 2),
        ({"q": "N3"}, ["n3"], 5),
        ({"pool": "first"}, ["n1"], 2),
        ({"pool": "no pool"}, ["n2", "n3"], 7),
        ({"revision": "no revision"}, ["n1", "n3"], 7),
        ({"pool": "gone"}, [], 0),
    ],
)
def test_a_filter_leaves_what_it_says(world, filters, names, gpus):
    Pool.objects.create(cluster=world.cluster, name="first", selector={"matchLabels": {"team": "n1"}})
    NodeExpectation.objects.create(node=Node.objects.get(name="n2"), revision=published())
    assert (world.names(**filters), world.ask(**filters)["shown"]) == (names, gpus)


def test_groups_stand_together(world):
    revision = published()
    NodeExpectation.objects.create(node=Node.objects.get(name="n2"), revision=revision)
    Pool.objects.create(cluster=world.cluster, name="first", selector={"matchLabels": {"team": "n1"}})
    groups = {
        "rack": {"n1": "r1", "n2": "r1", "n3": "no rack label"},
        "pool": {"n1": "first", "n2": "no pool", "n3": "no pool"},
        "model": {"n1": "NVIDIA H100 80GB HBM3", "n2": "NVIDIA H100 80GB HBM3", "n3": "NVIDIA L40S"},
        "revision": {"n1": "no revision", "n2": f"{revision.profile.name} r1", "n3": "no revision"},
    }
    for by, expected in groups.items():
        cells = world.ask(group=by, order="worst")["cells"]
        assert {node[1]: cells["groups"][node[2]] for node in cells["nodes"]} == expected
        numbers = [node[2] for node in cells["nodes"]]
        assert numbers == sorted(numbers)


def test_a_split_gpu_is_one_cell_in_parts_and_what_is_its_boards_is_said_once(world):
    cells = world.ask(metric="temperature", q="n3")["cells"]
    assert cells["parts"] == {1: [0, 3], 2: [1, 3], 3: [2, 3]}
    assert cells["names"] == {1: "1.1", 2: "1.2", 3: "1.3"}
    assert cells["value"] == [30, 77, 77, 77]
    assert cells["power"] == [-1, 300, 300, 300]
    by_power = world.ask(metric="power", q="n3")
    assert by_power["cells"]["value"] == [-1, 300, 300, 300]
    assert all("power" not in gpu.values for node in by_power["nodes"] for gpu in node.gpus), "it would count twice"
    assert cells["busy"] == [0, 25, 25, 25]  # the engine's: the driver has none of an instance
    assert cells["nodes"][0][3:] == [4, 1]


def test_ofu_is_tensor_by_clock_where_both_are_known(world):
    cells = world.ask(metric="ofu")["cells"]
    assert cells["value"] == [-1, -1, -1, -1, 25, 20, 20, 20]


def test_what_is_asked_and_is_not_there_is_said_and_not_applied(world):
    context = world.ask(order="color", state="x", metric="y", group="z")
    assert len(context["wish"].errors) == 4
    assert [node[1] for node in context["cells"]["nodes"]] == ["n1", "n2", "n3"]
    page = world.client.get(f"/gpus/clusters/{world.cluster.pk}/?pool=gone").content.decode()
    assert "No GPU matches" in page


def test_what_is_old_has_no_figure(world, clock):
    clock.forward(seconds=600)
    cells = world.ask(order="busy")["cells"]
    assert set(cells["value"]) == {-1}
    assert {cells["words"][int(digit)][0] for digit in cells["states"]} == {"none"}


def test_the_page_is_packed_and_costs_the_same_queries_for_any_group(world, django_assert_max_num_queries):
    for number in range(12):
        selector = {"matchLabels": {"team": f"t{number}"}}
        Pool.objects.create(cluster=world.cluster, name=f"pool-{number}", selector=selector)
    path = f"/gpus/clusters/{world.cluster.pk}/?group=pool&order=worst&revision=no+revision"
    with django_assert_max_num_queries(19):  # two of them are the first page of a session's
        answer = world.client.get(path, headers={"Accept-Encoding": "gzip"})
    assert answer["Content-Encoding"] == "gzip"


def test_values_picked_in_the_database_are_the_stored_ones(world):
    picked = json_fields.Picked("values", ["temperature", "busy", "nothing"])
    rows = GpuDevice.objects.filter(node_name="n1").annotate(picked=picked).order_by("index")
    assert [row[1:] for row in json_fields.parse(list(rows.values_list("picked", flat=True)))] == [
        [60, 0.9, None],
        [61, 0.9, None],
    ]


def test_a_node_shows_all_its_values_and_a_list_of_many_what_it_shows(world):
    source = list(TelemetrySource.objects.all())
    (n3,) = selectors.nodes(world.person, source, node=Node.objects.get(name="n3"))
    assert [gpu.name for gpu in n3.gpus] == ["0", "1.1", "1.2", "1.3"]
    assert n3.tally.total == 5
    assert heatmap.figure(n3.gpus[1], "busy") == 25
    TelemetrySource.objects.update(read_at=now() - timedelta(hours=1))
    (n3,) = selectors.nodes(world.person, list(TelemetrySource.objects.all()), node=Node.objects.get(name="n3"))
    assert {gpu.state for gpu in n3.gpus} == {"none"}


def test_every_metric_of_the_picture_has_a_switch(world):
    page = world.client.get(f"/gpus/clusters/{world.cluster.pk}/?q=n1&order=hot").content.decode()
    for name in heatmap.METRICS:
        assert re.search(rf'href="\?(metric={name}&amp;)?order=hot&amp;q=n1#heat"', page), name
