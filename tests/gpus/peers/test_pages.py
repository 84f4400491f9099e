"""Non-compliant and underperforming: both facts of made nodes, on every page, over REST and in files."""

from __future__ import annotations

import csv
import io
import re
from datetime import timedelta
from statistics import median

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from clusters.models import Cluster, Node
from gpus import tasks
from gpus.models import GpuPacked, NodePace, PaceLook
from gpus.peers import job, reports
from gpus.storage import retention
from tests.clusters.factories import ClusterFactory
from tests.factories import TokenClient, UserFactory
from tests.gpus.paced import KEY, Paced, Truth, troubled

pytestmark = pytest.mark.django_db
API = "/api/v1/gpus/paces"


@pytest.fixture
def world(clock):
    clock.at = clock.at.replace(minute=30)
    world = troubled()
    world.api = TokenClient(UserFactory(is_superuser=True))
    world.browser = Client()
    world.browser.force_login(UserFactory(is_superuser=True))
    return world


def text(world, path):
    answer = world.browser.get(path)
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def cells(world, query=""):
    rows = world.api.get(f"{API}?limit=1000&{query}").json()["results"]
    return {row["node_name"]: row["cell"] for row in rows}


# ── what is found, and kept ───────────────────────────────────────────────────────────────────────────────────────────


def test_every_node_is_in_the_cell_that_the_truth_puts_it_in(world):
    shown = cells(world)
    on = [name for name in world.truth.names if name not in ("n0001", "n0002", "n0003", "n0004", "n0010", "n0011")]
    assert shown == {
        "n0001": "on-slower", "n0002": "off-slower", "n0003": "off-level", "n0004": "off-level",
        "n0010": "few", "n0011": "level",
        **dict.fromkeys(on, "on-level"),
    }  # fmt: skip


def test_a_cluster_that_is_not_heard_is_neither_on_nor_off(world):
    Cluster.objects.update(observed_at=job.now() - timedelta(hours=1))
    assert set(cells(world).values()) == {"slower", "level", "few"}


def test_a_cluster_is_looked_at_once_an_hour_and_by_one_worker(world, clock):
    assert job.due() == []
    assert not job.compare(world.cluster.pk)
    clock.at += timedelta(hours=1)
    assert job.due() == [world.cluster.pk]
    PaceLook.objects.update(claimed_until=clock.at + timedelta(minutes=1))
    assert not job.compare(world.cluster.pk)
    clock.at += timedelta(minutes=2)  # its worker was killed
    tasks.look_at_pace(str(world.cluster.pk))
    assert PaceLook.objects.get().claimed_until is None
    assert {row.until for row in NodePace.objects.all()} == {PaceLook.objects.get().until}


def test_one_cluster_after_the_other_is_looked_at_without_waiting_for_the_next_beat(world, clock, monkeypatch):
    for name in ("boreas", "cirrus"):
        Paced(Truth(1), cluster=ClusterFactory(name=name))
    job.reconcile()
    clock.at += timedelta(hours=1)
    monkeypatch.setattr(tasks.look_at_pace, "apply_async", lambda args, **_how: tasks.look_at_pace(*args))
    tasks.look_at_pace(str(job.due()[0]))
    assert job.due() == []
    assert PaceLook.objects.count() == 3


def test_a_worker_that_lost_its_claim_writes_nothing_more(world, clock, monkeypatch):
    clock.at += timedelta(hours=1)
    before = PaceLook.objects.get().until

    def stolen(*_args):
        PaceLook.objects.update(claimed_until=clock.at + timedelta(hours=9))
        return {}

    monkeypatch.setattr(job.history, "hours", stolen)
    assert not job.compare(world.cluster.pk)
    assert {row.until for row in NodePace.objects.all()} == {before}


def test_nodes_that_are_gone_or_offer_no_gpu_are_forgotten(world, clock):
    Node.objects.filter(name="n0001").update(gone_at=clock.at)
    Node.objects.filter(name="n0002").update(gpu_count=0)
    assert "n0001" not in cells(world)
    clock.at += timedelta(hours=1)
    job.compare(world.cluster.pk)
    assert not NodePace.objects.filter(node__name__in=("n0001", "n0002")).exists()
    clock.at += timedelta(days=3)
    retention.forget_old()
    assert not NodePace.objects.exists()


def test_a_day_without_work_says_so_and_a_cluster_without_history_breaks_nothing(world, clock):
    clock.at += timedelta(hours=30)
    world.look()
    assert {row.verdict for row in NodePace.objects.all()} == {"few"}
    world.browser.force_login(UserFactory(is_superuser=True))
    assert "At work in 0 hours of the last 24; 3 are needed." in text(world, "/gpus/slower/")
    GpuPacked.objects.all().delete()
    other = Paced(Truth(1), cluster=ClusterFactory(name="lone"))
    assert other.look()["n0000"].verdict == "few"


def test_a_device_that_stands_in_an_hour_twice_counts_once(world):
    """The second entry is the one left when a cluster's groups are rebuilt within the hour."""
    before = NodePace.objects.get(node__name="n0002").signals
    for row in GpuPacked.objects.all():
        GpuPacked.objects.create(
            cluster=row.cluster, seconds=row.seconds, start=row.start, of=2, shard=0, data=bytes(row.data)
        )
    assert world.look()["n0002"].signals == before


# ── pages ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_list_shows_both_facts_with_their_numbers_and_what_mends_them(world):
    page = text(world, "/gpus/slower/?cell=off-slower")
    assert "1 node is non-compliant and slower than its peers" in page
    row = next(row for row in world.browser.get("/gpus/slower/").context["page"] if row["node"].name == "n0002")
    assert f"{KEY} is 60, wanted = 10" in page
    assert re.search(r"SM clock (19|20|21) % below", page)
    assert "10 peers at the job team/train with 2 GPUs a pod , 6 hours".replace(" ,", ",") in page
    assert row["was_slower_before"]
    assert "underperformed before it became non-compliant" in page
    content = world.browser.get("/gpus/slower/?cell=off-slower").content.decode()
    assert f"/plans/new/?pool={world.pool.pk}&amp;revision={world.revision.pk}" in content
    assert "check the hardware" in text(world, "/gpus/slower/?cell=on-slower")


def test_the_counts_of_the_grid_are_links_to_as_many_nodes(world):
    page = world.browser.get("/gpus/slower/")
    for _, cells_ in page.context["grid"]:
        for name, count, _ in cells_:
            assert world.browser.get(f"/gpus/slower/?cell={name}").context["page"].paginator.count == count
    assert sum(page.context["counts"].values()) == 12


@pytest.mark.parametrize(
    ("path", "asks"),
    [
        ("/gpus/", "/gpus/slower/live/"),
        ("/gpus/clusters/{}/", "/gpus/slower/live/?cluster=atlas"),
        ("/clusters/{}/", "/gpus/slower/live/?cluster=atlas"),
        ("/compliance/", ""),
    ],
)
def test_other_pages_show_the_counts_and_the_first_nodes(world, path, asks):
    path = path.format(world.cluster.pk)
    if asks:
        assert f'hx-get="{asks}" hx-trigger="revealed"' in world.browser.get(path).content.decode()
    page = text(world, asks or path)
    assert "Non-compliant and underperforming" in page
    assert "n0002" in page
    assert "not necessarily the cause" in page


def test_compliance_narrowed_to_another_cluster_shows_that_ones(world):
    other = Paced(Truth(6), cluster=ClusterFactory(name="boreas"))
    other.record()
    other.look()
    panel = world.browser.get("/compliance/?cluster=boreas").context["panels"][0].context
    assert (panel["counts"]["level"], panel["both"], panel["query"]) == (6, 0, "cluster=boreas")
    assert "No node is both non-compliant and slower" in text(world, "/compliance/?cluster=boreas")


def test_a_nodes_page_has_one_line(world):
    def page(name):
        return text(world, f"/nodes/{world.nodes[name].pk}/")

    pattern = (
        r"Slower .*SM clock \d+ % below.* that of its 10 peers at the job team/train with 2 GPUs a pod over 6 hours"
    )
    assert re.search(pattern, page("n0002"))
    assert "Not slower" in page("n0003")
    assert "Not compared At work in 0 hours" in page("n0010")


def test_where_nothing_was_looked_at_the_pages_say_so_or_nothing(world):
    NodePace.objects.all().delete()
    assert "Nothing to compare yet" in text(world, "/gpus/slower/")
    assert "Nothing to compare yet" in text(world, "/gpus/slower/live/?cluster=atlas")
    assert "Non-compliant and underperforming" not in text(world, "/compliance/")
    assert "Non-compliant and underperforming" not in text(world, f"/clusters/{world.cluster.pk}/")


def test_where_no_node_is_both_the_list_says_so(world):
    NodePace.objects.update(verdict="level")
    assert "No node is both" in text(world, "/gpus/slower/?cell=off-slower")


def test_a_wrong_filter_narrows_no_page_and_is_refused_where_programs_read(world):
    assert "cell: invalid filter, not applied" in text(world, "/gpus/slower/?cell=blue")
    assert world.browser.get("/gpus/slower.csv?cell=blue").status_code == 422
    assert world.api.get(f"{API}?cell=blue").status_code == 400
    assert world.api.get(f"{API}?color=blue").status_code == 400


# ── REST and files ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rest_has_both_facts_of_a_node(world):
    (row,) = world.api.get(f"{API}?cell=off-slower&cluster=atlas").json()["results"]
    assert (row["verdict"], row["state"], row["in_common"], row["work"]) == (
        "slower",
        "drifted",
        "job",
        "team/train",
    )
    assert [setting["key"] for setting in row["off_settings"]] == [KEY]
    assert row["off_since"]
    by_name = {signal["signal"]: signal for signal in row["signals"]}
    assert set(by_name) == {"ofu", "busy", "sm_clock", "watts"}
    assert by_name["sm_clock"]["unit"] == "MHz"
    assert not by_name["watts"]["decides"]
    assert world.api.get(f"{API}/{row['id']}").json() == row


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("verdict=slower", 2), ("state=drifted", 3), ("cell=off-slower&cell=on-slower", 2), ("name=n000", 10),
        ("model=h100", 11), ("model=b200", 0), ("signal=busy", 0), ("environment=production", 0), ("cluster=other", 0),
    ],
)  # fmt: skip
def test_filters_narrow_the_list(world, query, count):
    assert world.api.get(f"{API}?{query}").json()["count"] == count


def test_the_file_has_every_row_of_the_filter(world):
    for path in ("/gpus/slower.csv?verdict=slower", f"{API}/export?as=csv&verdict=slower"):
        client = world.api if path.startswith("/api") else world.browser
        body = b"".join(client.get(path).streaming_content).decode()
        rows = {row["node"]: row for row in csv.DictReader(io.StringIO(body))}
        assert set(rows) == {"n0001", "n0002"}
        assert float(rows["n0002"]["sm_clock_gap"]) == pytest.approx(-0.2, abs=0.03)
        assert rows["n0002"]["off_settings"] == f'["{KEY}"]'
    assert world.api.get(f"{API}/export?as=xml").status_code == 400


def test_what_rest_says_can_be_computed_by_hand_from_the_exported_history(world):
    """docs/gpu.md's definition over /gpus/history alone."""
    names = "&".join(f"node={name}" for name in world.truth.names)
    devices = world.api.get(f"/api/v1/gpus/history?cluster=atlas&{names}").json()
    by_hour: dict[str, dict[str, list[float]]] = {}
    for device in devices:
        for step in device["steps"]:
            if step["holder"] and step["covered"] >= 0.5 and step["values"]["busy"] >= 0.8:
                clocks = by_hour.setdefault(step["start"], {}).setdefault(device["node_name"], [])
                clocks.append(step["values"]["sm_clock"] / 1e6)
    gaps = []
    for clocks_of in by_hour.values():
        nodes = {name: sum(own) / len(own) for name, own in clocks_of.items()}
        gaps.append(nodes["n0002"] / median(nodes.values()) - 1)
    (row,) = world.api.get(f"{API}?name=n0002").json()["results"]
    assert next(signal for signal in row["signals"] if signal["signal"] == "sm_clock")["gap"] == pytest.approx(
        median(gaps), rel=1e-4
    )


def test_people_see_only_their_clusters(world):
    outside = TokenClient(UserFactory(roles=["viewer@env:production"]), scopes=["read"])
    assert outside.get(API).json()["count"] == 0
    assert outside.get(f"{API}/{world.nodes['n0002'].pk}").status_code == 404
    browser = Client()
    browser.force_login(UserFactory(roles=["viewer@env:production"]))
    assert b"n0002" not in browser.get("/gpus/slower/").content


@pytest.mark.one_database  # how many queries a page makes is Django's and ours
def test_the_list_costs_the_same_few_queries_at_any_size(clock):
    clock.at = clock.at.replace(minute=30)
    browser = Client()
    browser.force_login(UserFactory(roles=["viewer"]))
    counts = {}
    for name, size in (("small", 8), ("large", 120)):
        world = Paced(Truth(size), cluster=ClusterFactory(name=name))
        world.off(*world.truth.names[::2])
        world.record()
        world.look()
        NodePace.objects.filter(cluster=world.cluster).update(verdict="slower", signal="sm_clock", gap=-0.2)
        path = f"/gpus/slower/?cluster={name}"
        browser.get(path)
        with CaptureQueriesContext(connection) as seen:
            assert browser.get(path).status_code == 200
        counts[name] = len(seen)
    assert counts["small"] == counts["large"] <= 15


@pytest.mark.parametrize(
    ("compared", "both", "headline"),
    [
        (0, 0, "Nothing to compare yet."),
        (9, 0, "No node is both non-compliant and slower than its peers."),
        (9, 1, "1 node is non-compliant and slower than its peers: "),
        (9, 1200, "1,200 nodes are non-compliant and slower than their peers: "),
    ],
)
def test_the_page_says_first_how_many_nodes_are_both(compared, both, headline):
    assert reports.headline(compared, both).startswith(headline)
