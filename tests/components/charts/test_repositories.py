"""Chart repositories as an administrator keeps them: no password comes back, and every error is in plain words."""

from __future__ import annotations

import pytest
from django.urls import reverse

from audit.models import Record
from components.catalog import catalog
from components.charts import archives, repositories
from components.models import Archive, Repository
from jobs.models import PlanComponent
from tests.components.catalog.test_catalog import write
from tests.components.chart_server import AUTHORITY, ChartServer
from tests.components.charts.fetching import BASIC
from tests.components.factories import RepositoryFactory
from tests.components.packing import tiny
from tests.controlplane.pki import Authority
from tests.factories import TokenClient, UserFactory
from tests.profiles.web.test_pages import browser

REST = "/api/v1/chart-repositories"
LIST = "/components/repositories/"


@pytest.fixture
def admin(db):
    return UserFactory(roles=["admin"])


@pytest.fixture
def server(settings):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    made = ChartServer()
    yield made
    made.close()


def sent(server, **over):
    return {"name": "mirror", "url": server.url("/charts"), "ca": AUTHORITY.pem, "hosts": "", "is_enabled": "on"} | over


def test_one_is_added_shown_changed_and_recorded_without_its_password(admin, server):
    client = browser(admin)
    answer = client.post(
        f"{LIST}new/", sent(server, username="robot", password="hunter2", hosts="files.example\nx:8443")
    )
    assert answer.status_code == 302, answer.context["form"].errors
    row = Repository.objects.get()
    assert (row.hosts, row.open_secret(), row.changed_by) == (["files.example", "x:8443"], "hunter2", str(admin))
    address = reverse("components:repository", args=[row.pk])
    for page in (client.get(LIST), client.get(address)):
        assert "hunter2" not in page.content.decode()
        assert "robot" in page.content.decode()
    assert "hunter2" not in str(list(Record.objects.values_list("before", "after")))

    changed = sent(server, username="robot", version="1", hosts="", is_enabled="")
    assert client.post(address, changed).status_code == 302
    row.refresh_from_db()
    assert (row.hosts, row.is_enabled, row.version, row.open_secret()) == ([], False, 2, "hunter2")
    stale = client.post(address, changed)
    assert (stale.status_code, 'name="version" value="2"' in stale.content.decode()) == (412, True)
    assert client.post(address, changed | {"version": "2", "forget_password": "on"}).status_code == 302
    row.refresh_from_db()
    assert row.open_secret() == ""


def test_a_stored_password_is_not_sent_to_another_host_than_it_was_given_for(admin):
    row = RepositoryFactory.build(url="https://charts.example/a")
    row.set_secret("hunter2")
    row.save()
    with pytest.raises(repositories.Invalid) as refused:
        repositories.update(row, by=admin, version=1, url="https://evil.example/a")
    assert list(refused.value.fields) == ["password"]
    row.refresh_from_db()
    assert repositories.update(row, by=admin, version=1, url="https://charts.example/b").open_secret() == "hunter2"
    assert repositories.update(row, by=admin, version=2, url="https://x.example", password="new").open_secret()


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": "No Name"}, "name"),
        ({"url": "http://charts.example"}, "url"),
        ({"url": "https://ann:pw@charts.example"}, "url"),
        ({"url": "https://[::1"}, "url"),
        ({"url": "https://charts.example:99999"}, "url"),
        ({"url": "ftp://x"}, "url"),
        ({"stands_for": "charts"}, "stands_for"),
        ({"username": "a:b"}, "username"),
        ({"ca": "no certificate"}, "ca"),
        ({"hosts": ["https://x"]}, "hosts"),
        ({"hosts": ["x"] * 30}, "hosts"),
        ({"password": "a\nb"}, "password"),
    ],
)
def test_what_cannot_be_is_refused_by_name_and_nothing_is_stored(admin, wrong, field):
    api = TokenClient(admin)
    answer = api.post(REST, {"name": "mirror", "url": "https://charts.example"} | wrong)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].startswith(field)
    assert not Repository.objects.exists()


@pytest.mark.parametrize("field", ["name", "url", "stands_for"])
def test_what_another_has_already_is_named(admin, field):
    repository = {"name": "a", "url": "https://a.example", "stands_for": "https://charts.example"}
    other = {"name": "b", "url": "https://b.example", "stands_for": ""}
    repositories.create(by=admin, **repository)
    with pytest.raises(repositories.Invalid) as refused:
        repositories.create(by=admin, **other | {field: repository[field]})
    assert list(refused.value.fields) == [field]
    assert Repository.objects.count() == 1


# ── Trying ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_test_says_what_the_catalog_finds_there_and_stores_nothing(admin, server, tmp_path):
    server.index(tiny())
    chart = "chart: {kind: http, url: 'https://small.example/charts', chart: tiny}"
    with catalog.extended(write(tmp_path, chart=chart)):
        form = sent(server, intent="test", stands_for="https://small.example/charts", password="typed")
        page = browser(admin).post(f"{LIST}new/", form).content.decode()
    assert "Its index.yaml lists 1 chart." in page
    assert "Chart tiny: has 1.2.3, and 2 versions in all" in page
    assert 'value="typed"' in page, "what was typed is not lost"
    assert not Repository.objects.exists()


def test_a_registry_is_asked_whether_it_takes_who_we_are(admin, server):
    server.say("/v2/", {})
    server.wanted["/v2/"] = BASIC
    row = RepositoryFactory.build(url=server.oci("/charts"), ca=AUTHORITY.pem, username="robot")
    row.set_secret("hunter2")
    assert repositories.probe(row, by=admin).is_reached
    row.set_secret("other")
    probe = repositories.probe(row, by=admin)
    assert not probe.is_reached
    assert "user name and password" in probe.text


def test_each_failure_is_in_plain_words(admin, server):
    def probe_text(**over) -> str:
        row = RepositoryFactory.build(**{"name": "m", "url": server.url("/charts"), "ca": AUTHORITY.pem} | over)
        verdict = repositories.probe(row, by=admin)
        assert not verdict.is_reached
        return verdict.text

    assert "has nothing at /charts/index.yaml (404)" in probe_text()
    server.wanted["/charts/index.yaml"] = BASIC
    assert "user name and password: they may be needed" in probe_text()
    server.wanted.clear()
    server.say("/charts/index.yaml", status=302, Location="https://elsewhere.example/x")
    assert "sends us to elsewhere.example, a host that it does not name" in probe_text()
    assert "certificate" in probe_text(ca=Authority().pem)
    server.say("/charts/index.yaml", "<html>")
    assert "not the index of a chart repository" in probe_text()
    server.close()
    assert "connect" in probe_text().lower()


# ── REST ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_over_rest_the_same_with_an_etag(admin, server):
    api = TokenClient(admin)
    server.index(tiny())
    wish = {"name": "mirror", "url": server.url("/charts"), "ca": AUTHORITY.pem, "password": "hunter2"}
    made = api.post(REST, wish)
    assert (made.status_code, made["ETag"], made.json()["has_password"]) == (201, '"1"', True)
    at = made["Location"]
    assert api.post(f"{at}/actions/test").json()["is_reached"]
    assert api.patch(at, {"is_enabled": False}).status_code == 428
    assert api.patch(at, {"is_enabled": False}, HTTP_IF_MATCH='"1"').json()["is_enabled"] is False
    assert api.patch(at, {"is_enabled": True}, HTTP_IF_MATCH='"1"').status_code == 412
    for text in (made.content, api.get(at).content, api.get(REST).content):
        assert b"hunter2" not in text
        assert b'"password"' not in text


def test_one_is_deleted_while_no_plan_names_a_chart_that_it_serves(make_world, admin):
    chart = catalog.get("volcano").chart
    row = RepositoryFactory(stands_for=f"{chart.url}/", name="mirror")
    other = RepositoryFactory(name="other")
    world = make_world(nodes=1)
    plan = world.plan(world.revision({"vm.swappiness": "30"}))
    archive = archives.store(tiny(), origin=chart.reference)
    Archive.objects.filter(pk=archive.pk).update(name=chart.chart)
    part = PlanComponent.objects.create(
        plan=plan, component="volcano", prepared={"archive": archive.pk}, archive=archive.pk, position=1, left_out="x"
    )
    api, at = TokenClient(admin), f"{REST}/{row.pk}"
    assert api.delete(at).status_code == 428
    refused = api.delete(at, HTTP_IF_MATCH='"1"')
    assert refused.status_code == 409
    assert refused.json()["detail"].startswith(f"mirror cannot be deleted: P-{plan.number} names volcano ")
    client = browser(admin)
    assert client.post(f"{LIST}{row.pk}/delete/", {"version": "1"}).status_code == 409
    assert client.post(f"{LIST}{other.pk}/delete/", {"version": "2"}).status_code == 412
    assert client.post(f"{LIST}{other.pk}/delete/", {"version": "1"}).status_code == 302
    assert list(Repository.objects.all()) == [row]

    part.delete()
    assert api.delete(at, HTTP_IF_MATCH='"1"').status_code == 204
    record = Record.objects.get(action="chart-repository.delete", target_name="mirror")
    assert (record.before["stands_for"], record.after) == (row.stands_for, None)


def test_only_an_admin_of_everything_sees_them(db):
    RepositoryFactory()
    for roles in (["operator", "approver", "viewer"], ["admin@env:production"]):
        user = UserFactory(roles=roles)
        assert browser(user).get(LIST).status_code == 403
        assert TokenClient(user).get(REST).status_code == 403
