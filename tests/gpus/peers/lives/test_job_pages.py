"""Pages and REST of jobs: the same figures on both, for those who may see the cluster."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.models import Cluster, GpuJob, Node
from compliance.models import SettingChange
from gpus.models import GpuDevice, IdleHolding, JobUse, NodePace, TelemetrySource
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory
from tests.gpus.peers.lives.watched import key_of

pytestmark = pytest.mark.django_db
API = "/api/v1/gpus/jobs"


def text(page):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.content.decode()))


@pytest.fixture
def person(client, world):
    client.force_login(world.person)
    return client


def test_the_page_and_rest_show_the_same_of_a_job(person, world):
    job = GpuJob.objects.get(name="train")
    node = Node.objects.get(name="n0")
    SettingChange.objects.create(
        node=node, key="vm.swappiness", state="drifted", desired="10", effective="60", at=job.queued_at
    )
    SettingChange.objects.create(
        node=node, key="vm.before", state="drifted", desired="1", at=job.queued_at - timedelta(hours=1)
    )
    SettingChange.objects.create(node=Node.objects.get(name="n1"), key="vm.after", state="drifted", at=world.at)
    GpuDevice.objects.create(
        cluster=job.cluster, node=node, node_name="n0", uuid="GPU-n0-0", holders=[["team", "a", "c"]],
        xids=[[79, 1, "window"]],
    )  # fmt: skip
    NodePace.objects.create(node=node, cluster=job.cluster, verdict="slower", gap=-0.3, until=world.at)
    detail = person.get(f"{API}/{job.pk}").json()
    page = person.get(f"/gpus/jobs/{job.pk}/")
    shown = text(page)

    assert f"{detail['gpu_hours']:.2f} GPU-hours" in shown
    assert f"{float(detail['cost']):.2f} USD" in shown
    assert f"{detail['goodput']['whole']['percent']:.1f} %" in shown
    assert f"by pod {detail['busy']['least']:.0%}"[:-1] in shown
    assert [(part["node_name"], part["drifts"], part["xids"], part["is_slower"]) for part in detail["nodes"]] == [
        ("n0", 1, [79], True), ("n1", 0, [], None), ("n2", 0, [], None),
    ]  # fmt: skip
    assert {(pod["name"], pod["node_name"], pod["outcome"]) for pod in detail["pods"]} == {
        ("a", "n0", ""), ("b", "n1", "deleted"), ("c", "n2", ""),
    }  # fmt: skip
    assert all(word in shown for word in ("vm.swappiness", "79", "1 pod came in the place of others", "no data"))
    assert not any(word in shown for word in ("vm.before", "vm.after"))
    assert f'href="/nodes/{node.pk}/#gpus"' in page.content.decode()
    back = person.get(f"/nodes/{node.pk}/").content.decode()
    address = re.search(rf'href="(/gpus/clusters/[^"]+/jobs/{job.key}/)"', back)[1]
    assert person.get(address)["Location"] == f"/gpus/jobs/{job.pk}/"


def test_the_list_of_idle_pods_leads_to_their_job(person, world):
    world.held |= {("n0", index): ("team/a", 0.0) for index in range(4)}
    world.go_on(600)
    TelemetrySource.objects.update(read_at=world.at, state="well")
    IdleHolding.objects.get_or_create(
        cluster=world.cluster, node_name="n0", namespace="team", pod="a",
        defaults={"since": world.at - timedelta(hours=2), "gpus": 4, "share": 4, "counted_until": world.at},
    )  # fmt: skip
    address = f"/gpus/clusters/{world.cluster.pk}/jobs/{key_of('u-1')}/"
    assert f'href="{address}"' in person.get("/gpus/").content.decode()


def test_the_list_sorts_filters_and_pages_alike_on_the_page_and_in_rest(person, world):
    rows = {row["name"]: row for row in person.get(API).json()["results"]}
    page = text(person.get("/gpus/jobs/"))
    for row in rows.values():
        assert f"{row['gpu_hours']:.2f}" in page
        assert f"{row['active_percent']:.1f} %" in page
    least = [row["name"] for row in person.get(f"{API}?ordering=active_share").json()["results"]]
    assert least == ["train", "serve"]
    for query, names in (
        ("state=ended", ["serve"]), ("namespace=team&name=rai", ["train"]), ("kind=JobSet", []),
        ("cluster=atlas&ordering=gpus", ["serve", "train"]),
    ):  # fmt: skip
        assert [row["name"] for row in person.get(f"{API}?{query}").json()["results"]] == names
    hours = person.get("/gpus/jobs/?ordering=-hours").content.decode()
    assert hours.index("team/train") < hours.index("team/serve")
    assert person.get(f"{API}?color=red").status_code == 400
    assert "invalid filter" in text(person.get("/gpus/jobs/?outcome=perhaps"))


def test_a_person_of_another_environment_sees_neither_list_nor_job(client, world):
    Cluster.objects.update(environment="staging")
    client.force_login(UserFactory(roles=["admin@env:production"]))
    job = GpuJob.objects.get(name="train")
    assert client.get(API).json()["results"] == []
    assert "No job yet" in text(client.get("/gpus/jobs/"))
    addresses = (f"{API}/{job.pk}", f"/gpus/jobs/{job.pk}/", f"/gpus/clusters/{job.cluster_id}/jobs/{job.key}/")
    assert {client.get(address).status_code for address in addresses} == {404}


def test_markup_in_names_stays_text_on_every_page(person, world):
    evil = '"><script>alert(1)</script>' + "x" * 200
    job = GpuJob.objects.get(name="train")
    pods = job.all_pods()
    job.pods = GpuJob.stored([pods[0]._replace(name=evil, node=evil[:253]), *pods[1:]])
    job.name, job.queue, job.kind = evil[:253], evil[:253], evil[:63]
    job.save()
    for address in ("/gpus/jobs/", f"/gpus/jobs/{job.pk}/"):
        page = person.get(address)
        assert page.status_code == 200
        assert "<script>alert" not in page.content.decode()


def test_neither_page_asks_more_of_the_database_for_more_jobs_or_pods(person, world):
    def queries(address):
        with CaptureQueriesContext(
            connection,
        ) as seen:
            assert person.get(address).status_code == 200
        return len(seen)

    job = GpuJob.objects.get(name="train")
    addresses = ("/gpus/jobs/", API, f"/gpus/jobs/{job.pk}/", f"{API}/{job.pk}")
    queries("/gpus/jobs/")  # the session's own, once
    before = [queries(address) for address in addresses]
    pod = job.all_pods()[0]
    job.pods = GpuJob.stored([pod._replace(uid=f"u{n}", name=f"p{n}", node=f"n{n % 3}") for n in range(300)])
    job.save()
    other = ClusterFactory()
    more = GpuJob.objects.bulk_create(
        GpuJob(cluster=other, key=f"k{n}", namespace="a", kind="Job", name=f"j{n}", queued_at=world.at)
        for n in range(20)
    )
    JobUse.objects.bulk_create(JobUse(job=part, day=world.at.date(), effective=60) for part in more)
    assert [queries(address) for address in addresses] == before
    assert max(before) <= 30
