"""Chart archives that people upload: judged before a byte is stored, listed with who uses them, deleted when unused."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connections
from django.urls import reverse

from audit.models import Record
from common.errors import WrongState
from components.charts import archives, uploads
from components.models import Archive
from components.release import work
from jobs.models import Plan, PlanComponent
from jobs.planning import digests
from tests.clusters.factories import ClusterFactory
from tests.components.packing import CHART, packed, tiny
from tests.factories import TokenClient, UserFactory
from tests.jobs.releases import Releases, wanted
from tests.profiles.web.test_pages import browser

PAGE = "/components/archives/"
REST = "/api/v1/chart-archives"


@pytest.fixture
def admin(db):
    return UserFactory(roles=["admin"])


def file(content: bytes) -> SimpleUploadedFile:
    return SimpleUploadedFile("tiny-1.2.3.tgz", content)


def send(client: TokenClient, content: bytes):
    return super(TokenClient, client).post(REST, {"archive": file(content)})


def linked() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        entry = tarfile.TarInfo("tiny/Chart.yaml")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(entry)
    return out.getvalue()


BAD = {
    "nothing": (b"", "archive"),
    "no gzip": (b"hello", "archive"),
    "cut short": (tiny()[:80], "archive"),
    "a link": (linked(), "tiny/Chart.yaml"),
    "a path that leaves": (packed({"../Chart.yaml": CHART}), "tiny/../Chart.yaml"),
    "no chart": (packed({"x": "y"}), "Chart.yaml"),
    "no version": (packed({"Chart.yaml": "apiVersion: v2\nname: tiny\n"}), "Chart.yaml: version"),
}


def test_an_upload_is_stored_recorded_and_shown_with_its_digest(admin):
    client, content = browser(admin), tiny()
    answer = client.post(PAGE, {"archive": file(content)}, follow=True)
    archive = Archive.objects.get()
    assert (archive.sha256, archive.origin, archive.stored_by) == (
        hashlib.sha256(content).hexdigest(), "uploaded", str(admin),
    )  # fmt: skip
    assert Record.objects.get(action="chart-archive.upload").after["sha256"] == archive.sha256
    page = answer.content.decode()
    assert "tiny 1.2.3 is stored" in page
    assert archive.sha256 in page
    assert "not in the catalog" in page

    client.post(PAGE, {"archive": file(content)})
    assert Archive.objects.count() == Record.objects.filter(action="chart-archive.upload").count() == 1
    other = packed({"Chart.yaml": CHART, "values.yaml": "color: red\n"})
    assert f"instead of the archive {archive.sha256[:12]}" in client.post(
        PAGE, {"archive": file(other)}, follow=True
    ).content.decode()  # fmt: skip


@pytest.mark.parametrize(("content", "field"), BAD.values(), ids=BAD)
def test_a_bad_archive_is_refused_by_name_and_nothing_of_it_is_stored(admin, content, field):
    page = browser(admin).post(PAGE, {"archive": file(content)})
    assert page.status_code == 422
    assert field in {"archive"} or field in page.content.decode()
    answer = send(TokenClient(admin), content)
    assert answer.status_code == 422, answer.content
    assert answer.json()["errors"][0]["field"] == field
    assert not Archive.objects.exists()
    assert not Record.objects.filter(action__startswith="chart-archive").exists()


def test_a_file_is_asked_for_and_one_that_is_too_large_is_not_read(admin):
    assert "Choose a file" in browser(admin).post(PAGE, {}).content.decode()
    api = TokenClient(admin)
    assert api.post(REST, {"archive": "text"}).json()["errors"][0]["field"] == "archive"
    huge = api.generic("POST", REST, b"x", "multipart/form-data; boundary=x", CONTENT_LENGTH=str(50 << 20))
    assert (huge.status_code, huge.json()["errors"][0]["field"]) == (413, "archive")
    assert api.generic("POST", REST, b"x", "multipart/form-data").status_code == 400


def test_an_archive_may_be_larger_than_other_requests(admin):
    content = packed({"Chart.yaml": CHART, "files/noise": hashlib.shake_256(b"x").digest(2 << 20)})
    assert len(content) > 2 << 20
    assert send(TokenClient(admin), content).status_code == 201


def test_one_that_a_plan_names_stays_and_any_other_can_be_deleted(make_world, admin):
    world = make_world(nodes=1)
    plan = world.plan(world.revision({"vm.swappiness": "30"}))
    archive = archives.store(tiny(), origin="uploaded", by="ann")
    part = PlanComponent.objects.create(
        plan=plan, component="kueue", archive=archive.pk, prepared={}, position=1, left_out="x"
    )
    client, api = browser(admin), TokenClient(admin)
    assert reverse("jobs:plan", args=[plan.number]) in client.get(PAGE).content.decode()
    assert api.get(REST).json()["results"][0]["plans"] == [f"P-{plan.number}"]
    refused = api.delete(f"{REST}/{archive.pk}")
    assert (refused.status_code, f"P-{plan.number} name it" in refused.json()["detail"]) == (409, True)
    assert client.post(f"{PAGE}{archive.pk}/delete/").status_code == 409
    assert Archive.objects.exists()

    part.delete()
    assert api.delete(f"{REST}/{archive.pk}").status_code == 204
    assert Record.objects.get(action="chart-archive.delete").before["sha256"] == archive.pk
    assert api.delete(f"{REST}/{archive.pk}").status_code == 404


def test_a_plan_whose_archive_is_deleted_while_it_is_made_is_not_stored(make_world, monkeypatch, admin):
    world = make_world(nodes=1)
    releases = Releases().install(monkeypatch)
    real = releases.prepare

    def prepare(*arguments):
        prepared = real(*arguments)
        uploads.delete(Archive.objects.get(pk=prepared.archive), by=admin)
        return prepared

    monkeypatch.setattr(work, "prepare", prepare)
    with pytest.raises(WrongState, match="archive of volcano was deleted while this plan was made"):
        world.plan(world.revision({}, components=wanted("volcano")))
    assert not Plan.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_an_archive_is_not_deleted_between_a_plans_look_and_its_end(make_world, monkeypatch):
    world = make_world(nodes=1)
    Releases().install(monkeypatch)
    storing, deleting = threading.Event(), threading.Event()
    digest, uses = digests.plan_digest, uploads.uses
    refused: list[str] = []

    def of(plan):
        storing.set()
        deleting.wait(0.5)  # comes only if a deletion does not wait for this transaction
        return digest(plan)

    def used(*args):
        result = uses(*args)
        deleting.set()
        return result

    def delete():
        try:
            assert storing.wait(20)
            uploads.delete(Archive.objects.get(), by=world.admin)
        except WrongState as error:
            refused.append(str(error))
        finally:
            connections.close_all()

    monkeypatch.setattr(digests, "plan_digest", of)
    monkeypatch.setattr(uploads, "uses", used)
    thread = threading.Thread(target=delete)
    thread.start()
    plan = world.plan(world.revision({}, components=wanted("volcano")))
    thread.join(60)

    assert refused == [f"tiny 1.0.0 cannot be deleted: {plan} name it."]
    assert Archive.objects.filter(pk=plan.components.get().archive).exists()


def test_plans_of_clusters_that_one_may_not_see_are_no_more_than_a_fact(make_world, admin):
    world = make_world(nodes=1)
    plan = world.plan(world.revision({"vm.swappiness": "30"}))
    archive = archives.store(tiny(), origin="uploaded", by="ann")
    PlanComponent.objects.create(
        plan=plan, component="kueue", archive=archive.pk, prepared={}, position=1, left_out="x"
    )
    elsewhere = UserFactory(roles=[f"viewer@cluster:{ClusterFactory().pk}"])
    page = browser(elsewhere).get(PAGE).content.decode()
    assert f"P-{plan.number}" not in page
    assert "plans that you may not see" in page
    (row,) = TokenClient(elsewhere).get(REST).json()["results"]
    assert (row["plans"], row["is_used"]) == ([], True)
    (row,) = TokenClient(admin).get(REST).json()["results"]
    assert (row["plans"], row["is_used"]) == ([f"P-{plan.number}"], True)


def test_only_an_admin_of_everything_stores_and_deletes(db):
    archive = archives.store(tiny(), origin="https://charts.example/tiny")
    for roles in (["viewer"], ["operator", "approver"], ["admin@env:staging"]):
        client = browser(UserFactory(roles=roles))
        assert client.post(PAGE, {"archive": file(b"")}).status_code == 403
        assert client.post(f"{PAGE}{archive.pk}/delete/").status_code == 403
        assert "You need the role admin in all clusters." in client.get(PAGE).content.decode()


def test_the_list_costs_the_same_and_never_reads_an_archive(admin, django_assert_max_num_queries):
    archives.store(tiny(), origin="uploaded")
    client = browser(admin)
    client.get(PAGE)
    with django_assert_max_num_queries(8) as queries:
        client.get(PAGE)
    assert not any('"content"' in query["sql"] for query in queries.captured_queries)
    assert not any('"prepared"' in query["sql"] for query in queries.captured_queries)  # megabytes a plan


def test_clusters_on_which_a_chart_does_not_run_are_told_when_it_is_stored(admin):
    for name, version in (("old", "v1.31.4"), ("new", "v1.36.0-eks-1"), ("unseen", "")):
        ClusterFactory(name=name, kubernetes_version=version)
    demanding = packed({"Chart.yaml": CHART + "kubeVersion: '>=1.34-0'\n", "templates/a.yaml": ""})

    answer = send(TokenClient(admin), demanding)

    assert answer.status_code == 201
    [warning] = answer.json()["warnings"]
    assert "old" in warning
    assert "v1.31.4" in warning
    assert send(TokenClient(admin), tiny()).json()["warnings"] == []
