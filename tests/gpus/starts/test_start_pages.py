"""The page of start times and its REST: the same figures on both, for those who may see the cluster."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.models import Cluster, GpuJob, Node, PodStart, Pool
from common.clock import now
from gpus.storage import retention
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory
from tests.gpus.starts.recorded import start

pytestmark = pytest.mark.django_db
API, PAGE = "/api/v1/gpus/starts", "/gpus/starts/"
SUMMARY = f"{API}/summary"


@pytest.fixture
def atlas():
    cluster = ClusterFactory(name="atlas", environment="production")
    for number in (1, 2, 3):
        Node.objects.create(
            cluster=cluster, uid=f"n{number}", name=f"n{number}", labels={"pool": "a" if number < 3 else "b"},
            gpu_count=8, gpu_product="NVIDIA-H100",
        )  # fmt: skip
    Pool.objects.create(cluster=cluster, name="first", selector={"matchLabels": {"pool": "a"}})
    return cluster


@pytest.fixture
def person(client):
    client.force_login(UserFactory(roles=["viewer"]))
    return client


def text(page):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.content.decode()))


def ago(**much):
    return now() - timedelta(**much)


def test_the_page_and_rest_show_the_same(person, atlas):
    for number in range(20):
        start(atlas, ago(hours=1), load=100 + number, node=f"n{number % 3 + 1}")
    start(atlas, ago(hours=2), image="torch:2", has_probe=False)
    start(atlas, ago(hours=3), outcome="failed", reason="OOMKilled")
    start(atlas, ago(days=8), load=9999)
    summary, shown = person.get(SUMMARY).json(), text(person.get(PAGE))
    whole = summary["whole"]
    assert (whole["starts"], whole["ready"], whole["never_ready"], whole["without_probe"]) == (22, 21, 1, 1)
    assert whole["load"] == {"count": 20, "median": 109.5, "p95": 118.0, "longest": 119}
    assert [(group["name"], group["figures"]["starts"]) for group in summary["groups"]] == [
        ("vllm:1", 21),
        ("torch:2", 1),
    ]
    assert summary["reasons"] == [{"outcome": "failed", "reason": "OOMKilled", "starts": 1}]
    assert {(node["node_name"], node["starts"]) for node in summary["slow_nodes"]} == {("n1", 7), ("n2", 7), ("n3", 6)}
    for words in ("1 min 50 s", "1 min 58 s", "vllm:1", "torch:2", "OOMKilled", "Failed before it was ready", "atlas"):
        assert words in shown, words
    assert person.get(f"{SUMMARY}?days=30").json()["whole"]["load"]["longest"] == 9999


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("namespace", {"serving": 3, "other": 1}),
        ("model", {"llama": 1, "": 3}),
        ("pool", {"first": 2, "no pool": 1, "on no node": 1}),
        ("gpu", {"NVIDIA H100": 3, "on no node": 1}),
    ],
)
def test_starts_are_grouped_by_what_the_person_chose(person, atlas, by, groups):
    start(atlas, ago(hours=1), node="n1", model="llama")
    start(atlas, ago(hours=1), node="n2", namespace="other")
    start(atlas, ago(hours=1), node="n3")
    start(atlas, ago(hours=1), node="", outcome="deleted", reason="Unschedulable")
    lines = person.get(f"{SUMMARY}?by={by}").json()["groups"]
    assert {line["name"]: line["figures"]["starts"] for line in lines} == groups
    assert person.get(f"{PAGE}?by={by}").status_code == 200


@pytest.mark.parametrize(
    ("query", "field"), [("days=2", "days"), ("by=nope", "by"), ("nope=1", "nope"), ("cluster=nope", "cluster")]
)
def test_an_unknown_filter_or_value_is_refused_and_named(person, atlas, query, field):
    answer = person.get(f"{SUMMARY}?{query}")
    assert answer.status_code in (400, 422)
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    if field in ("days", "by"):
        page = person.get(f"{PAGE}?{query}")
        assert page.status_code == 422
        assert "not applied" in text(page)


def test_starts_of_other_environments_are_in_no_figure_list_or_page(client, atlas):
    start(atlas, ago(hours=1))
    mine = start(ClusterFactory(name="borealis", environment="staging"), ago(hours=1))
    client.force_login(UserFactory(roles=["viewer@env:staging"]))
    assert client.get(SUMMARY).json()["whole"]["starts"] == 1
    assert [row["id"] for row in client.get(API).json()["results"]] == [mine.pk]
    assert client.get(f"{API}?cluster=atlas").json()["results"] == []
    assert client.get(f"{SUMMARY}?cluster=atlas").status_code == 400
    assert "atlas" not in text(client.get(f"{PAGE}?cluster=atlas"))
    assert client.get(f"{API}/{PodStart.objects.get(cluster=atlas).pk}").status_code == 404


def test_the_list_is_filtered_by_job_node_image_and_time(person, atlas):
    job = GpuJob.objects.create(cluster=atlas, key="k", namespace="a", kind="Job", name="j", queued_at=ago(days=1))
    other = ClusterFactory()
    of_job = start(atlas, ago(hours=1), job_key="k", node="n9", image="x:1")
    start(other, ago(hours=1), job_key="k")
    start(atlas, ago(days=3))
    for query in (f"job={job.pk}", "node=n9", "image=x:1", "since=2h&cluster=atlas"):
        assert [row["id"] for row in person.get(f"{API}?{query}").json()["results"]] == [of_job.pk], query
    assert person.get(f"{API}?job=99999").json()["results"] == []
    assert [error["field"] for error in person.get(f"{API}?job=x").json()["errors"]] == ["job"]


def test_the_page_of_a_job_has_the_starts_of_its_pods_and_says_why_there_is_no_load_time(person, atlas):
    job = GpuJob.objects.create(cluster=atlas, key="k", namespace="a", kind="Job", name="j", queued_at=ago(days=1))
    assert 'id="starts"' not in person.get(f"/gpus/jobs/{job.pk}/").content.decode()
    start(atlas, ago(hours=1), job_key="k", load=75, name="loaded")
    start(atlas, ago(hours=1), job_key="k", has_probe=False, name="plain")
    start(atlas, ago(hours=1), job_key="k", restarts=2, name="crashed")
    start(atlas, ago(hours=1), job_key="k", outcome="deleted", reason="ImagePullBackOff", name="stuck")
    start(atlas, ago(hours=1), job_key="", name="foreign")
    shown = text(person.get(f"/gpus/jobs/{job.pk}/"))
    for words in ("loaded", "1 min 15 s", "no probe", "restarted", "Deleted before it was ready: ImagePullBackOff"):
        assert words in shown, words
    assert "foreign" not in shown


def test_text_of_pods_stays_text(person, atlas):
    evil = '"><script>alert(1)</script>'
    start(atlas, ago(hours=1), image=evil, node=evil, namespace=evil[:63], outcome="failed", reason=evil)
    assert "<script>alert" not in person.get(PAGE).content.decode()


@pytest.mark.one_database  # how many queries a page makes is Django's and ours
def test_page_and_rest_cost_the_same_queries_at_any_number_of_starts(person, atlas):
    addresses = [f"{path}?by={by}" for path in (PAGE, SUMMARY) for by in ("image", "pool", "gpu")] + [API]

    def queries():
        counts = []
        for address in addresses:
            with CaptureQueriesContext(connection) as seen:
                assert person.get(address).status_code == 200
            counts.append(len(seen))
        return counts

    for number in range(9):
        start(atlas, ago(hours=1), node=f"n{number % 3 + 1}")
    queries()
    before = queries()
    for number in range(60):
        start(atlas, ago(hours=1), node=f"n{number % 3 + 1}", image=f"i{number % 5}")
        if number % 20 == 0:
            start(ClusterFactory(), ago(hours=1))
    assert queries() == before
    assert max(before) <= 12


def test_old_starts_are_forgotten_and_a_cluster_keeps_the_latest_of_too_many(atlas, settings, monkeypatch):
    start(atlas, ago(days=settings.SETPOINT_GPU_BAND_DAYS + 1))
    kept = [start(atlas, ago(hours=hours)).pk for hours in range(4)]
    assert retention.forget_old() == 1
    assert set(PodStart.objects.values_list("pk", flat=True)) == set(kept)
    monkeypatch.setattr(retention, "MOST_STARTS", 2)
    retention.forget_old()
    assert set(PodStart.objects.values_list("pk", flat=True)) == set(kept[:2])


def test_starts_go_with_their_cluster(atlas):
    start(atlas, ago(hours=1))
    Cluster.objects.filter(pk=atlas.pk).delete()
    assert not PodStart.objects.exists()
