"""Values of a component that hold for one cluster: layers, checks, two writers, secrets, pages and REST."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from audit.models import Record
from compliance.models import Assignment
from components.catalog import catalog
from components.catalog.layering import layered
from components.charts import archives
from components.cluster_values import form, overrides
from components.models import Archive, ClusterValues
from tests.clusters.factories import ClusterFactory, PoolFactory
from tests.components.chart_server import AUTHORITY, ChartServer
from tests.components.factories import ClusterValuesFactory, RepositoryFactory
from tests.components.packing import packed
from tests.factories import TokenClient, UserFactory
from tests.profiles.services.test_profiles import published
from tests.profiles.web.test_pages import browser

VALUES = "replicas: 1\nimage:\n  tag: v1\n  pull: Always\nadmin: {}\n# extra: true\n"
SCHEMA = '{"type": "object", "properties": {"replicas": {"type": "integer"}}}'
FILE = """\
name: small
title: Small
summary: A small one.
documentation: https://example.com
chart: {kind: http, url: "https://charts.example", chart: small}
sources: {S: {text: here}}
versions: [{version: 1.2.3, sources: [S]}]
namespace: space
pod_security: restricted
disruption: live
presets:
  big: {title: Big, why: More., values: {replicas: 2}, sources: [S]}
decisions: [{path: image.tag, question: Which tag?, presets: [big], sources: [S]}]
readiness: [{workloads: {namespace: space, kind: Deployment, names: [small]}}]
usual: {replicas: How many}
crds: {stay: true}
hazards: {upgrade: [{text: x, sources: [S]}], removal: [{text: x, sources: [S]}]}
"""
PROFILE = "components: {small: {presets: [big], values: {image: {pull: Never}}}}\n"


@pytest.fixture
def small(tmp_path, db):
    (tmp_path / "small.yaml").write_text(FILE)
    with catalog.extended(tmp_path):
        yield catalog.get("small")


@pytest.fixture
def stored(small):
    chart = "apiVersion: v2\nname: small\nversion: 1.2.3\n"
    files = {"Chart.yaml": chart, "values.yaml": VALUES, "values.schema.json": SCHEMA}
    return archives.store(packed(files, folder="small"), origin="uploaded", by="ann")


@pytest.fixture
def cluster(small):
    return ClusterFactory()


@pytest.fixture
def operator(db):
    return UserFactory(roles=["operator"])


@pytest.fixture
def wanted(cluster, operator):
    """The cluster's target wants it."""
    revision = published(operator, "base", PROFILE)
    Assignment.objects.create(pool=PoolFactory(cluster=cluster), revision=revision)
    return revision


def here(cluster, small):
    return overrides.component_in_cluster(cluster, small)


def text_of(answer) -> str:
    return re.sub(r"\s+", " ", answer.content.decode().replace("&#x27;", "'").replace("&quot;", '"'))


def page_of(cluster) -> str:
    return reverse("components:cluster_component", args=[cluster.pk, "small"])


def rest_of(cluster) -> str:
    return f"/api/v1/clusters/{cluster.pk}/component-values/small"


# ── Layers and findings ───────────────────────────────────────────────────────────────────────────────────────────────
def test_each_key_has_its_origin_and_the_clusters_goes_over_all(cluster, small, wanted):
    by_path = {line.path: (line.value, line.origin, line.replaces) for line in overrides.lines(
        here(cluster, small), {"image": {"pull": "IfNotPresent"}, "admin": {"$secret": {"name": "s", "key": "k"}}}
    )}  # fmt: skip
    assert by_path == {
        "replicas": (2, "preset big", ""),
        "image.pull": ("IfNotPresent", "cluster", "profile"),
        "admin": ("(secret s, key k)", "cluster", ""),
    }


def test_without_a_target_there_is_no_layer_of_a_profile_until_one_is_chosen(cluster, small, operator):
    revision = published(operator, "base", PROFILE)
    assert here(cluster, small).wish is None
    assert overrides.component_in_cluster(cluster, small, revision.pk).presets == ("big",)
    assert overrides.component_in_cluster(cluster, small, 0).wish is None


def test_what_the_chart_does_not_know_is_flagged_and_what_its_schema_refuses_is_refused(
    cluster, small, stored, wanted, operator
):
    findings = overrides.judge(here(cluster, small), {"replica": 1, "replicas": "two", "extra": 1})
    assert [(finding.path, finding.severity, finding.code, finding.is_own) for finding in findings] == [
        ("replicas", "block", "schema", True),
        ("replica", "warn", "unknown-key", True),
        ("extra", "warn", "commented-key", True),
        ("image.tag", "block", "decision", False),
    ]
    with pytest.raises(overrides.Invalid) as refused:
        overrides.save(here(cluster, small), {"replicas": "two"}, by=operator, version=0)
    assert list(refused.value.fields) == ["values.replicas"]
    assert not ClusterValues.objects.exists()


def test_a_password_in_plain_text_is_refused_wherever_it_stands(cluster, small, operator):
    for own in ({"adminPassword": "hunter2"}, {"users": [{"token": "hunter2"}]}, {"adminPassword": "•••••"}):
        with pytest.raises(overrides.Invalid) as refused:
            overrides.save(here(cluster, small), own, by=operator, version=0)
        assert "hunter2" not in f"{refused.value} {refused.value.fields}"
    assert not ClusterValues.objects.exists()
    assert not Record.objects.filter(action="component-values.update").exists()


@pytest.mark.parametrize(
    ("own", "path"),
    [
        ([], "values"),
        ({"a": 2**60}, "values.a"),
        ({"a": {"b": {"$secret": "x"}}}, "values.a.b"),
        ({"a": float("inf")}, "values.a"),
        ({str(n): n for n in range(20_000)}, "values"),
    ],
)
def test_values_that_helm_could_not_carry_are_refused_with_their_path(cluster, small, operator, own, path):
    with pytest.raises(overrides.Invalid) as refused:
        overrides.save(here(cluster, small), own, by=operator, version=0)
    assert list(refused.value.fields) == [path]


def test_the_origin_of_ten_thousand_keys_is_found_at_once(small):
    many = {f"key{n}": {"a": n} for n in range(5_000)}
    assert layered(small, "", (), many, many).origins["key7.a"] == "cluster"


# ── Saving ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_saving_is_recorded_with_its_difference_and_secrets_as_words(cluster, small, operator):
    secret = {"$secret": {"name": "grafana", "key": "pass"}}
    overrides.save(here(cluster, small), {"replicas": 1, "a": {"b": 1}}, by=operator, version=0)
    saved = overrides.save(here(cluster, small), {"replicas": True, "a": {"b": 1}, "x": secret}, by=operator, version=1)
    assert (saved.version, saved.changed_by) == (2, str(operator))
    record = next(record for record in Record.objects.filter(action="component-values.update") if "x" in record.after)
    assert record.before == {"replicas": 1, "x": None}
    assert record.after == {"replicas": True, "x": "(secret grafana, key pass)"}
    assert record.cluster_id == cluster.pk


def test_saving_what_is_there_already_writes_nothing(cluster, small, operator):
    ClusterValuesFactory(cluster=cluster, component="small", values={"replicas": 1})
    assert overrides.save(here(cluster, small), {"replicas": 1}, by=operator, version=1).version == 1
    assert not Record.objects.filter(action="component-values.update").exists()


def test_the_slower_of_two_writers_is_told_who_was_faster(cluster, small, operator):
    slow = here(cluster, small)
    overrides.save(here(cluster, small), {"replicas": 2}, by=operator, version=0)
    with pytest.raises(overrides.Stale, match=str(operator)):
        overrides.save(slow, {"replicas": 3}, by=operator, version=0)
    assert ClusterValues.objects.get().values == {"replicas": 2}


# ── The page ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_form_shows_asks_and_saves_and_leads_to_a_plan(cluster, small, stored, wanted, operator):
    client = browser(operator)
    page = text_of(client.get(page_of(cluster)))
    assert "Which tag?" in page
    assert "preset big" in page
    assert 'Without it: <span class="mono breaks">2</span>, from preset big' in page

    sent = {
        "view": "form",
        "version": "0",
        "path": ["image.tag", "replicas"],
        "value": ["v2", ""],
        "source": "admin: {x: 1}",
    }
    answer = client.post(page_of(cluster), sent, follow=True)
    assert answer.status_code == 200
    assert ClusterValues.objects.get().values == {"image": {"tag": "v2"}, "admin": {"x": 1}}
    assert "Nothing changed in the cluster" in text_of(answer)
    assert reverse("jobs:plan_new") in text_of(answer)


def test_bad_input_is_told_beside_its_place_and_nothing_typed_is_lost(cluster, small, stored, operator):
    client = browser(operator)
    sent = {"view": "form", "version": "0", "path": ["replicas"], "value": ["[1"], "source": "admin: {x: &a 1}\n"}
    answer = client.post(page_of(cluster), sent)
    page = text_of(answer)
    assert answer.status_code == 422
    assert 'value="[1"' in page
    assert "cannot be read" in page
    assert "anchors and aliases" in page
    assert "&amp;a 1" in page

    answer = client.post(
        page_of(cluster), {"view": "yaml", "version": "0", "source": "image:\n  tga: x\nreplicas: two\n"}
    )
    page = text_of(answer)
    assert answer.status_code == 422
    assert 'data-line="3">Line 3</a>, <span class="mono xs">replicas</span>' in page
    assert 'data-line="2">Line 2</a>, <span class="mono xs">image.tga</span>' in page
    assert "did you mean tag?" in page
    assert not ClusterValues.objects.exists()


def test_a_second_writer_keeps_what_was_typed_and_may_replace(cluster, small, operator):
    client = browser(operator)
    ClusterValuesFactory(cluster=cluster, component="small", values={"replicas": 1}, changed_by="bob")
    answer = client.post(page_of(cluster), {"view": "yaml", "version": "0", "source": "replicas: 3\n"})
    assert answer.status_code == 412
    assert "bob changed these values meanwhile" in text_of(answer)
    assert "replicas: 3" in answer.content.decode()
    assert 'name="version" value="1"' in answer.content.decode()


@pytest.mark.parametrize(("intent", "source"), [("check", "replicas: 3"), ("form", "replicas: 3"), ("save", "pa: [")])
def test_looking_once_more_does_not_hide_that_somebody_was_faster(cluster, small, operator, intent, source):
    client = browser(operator)
    ClusterValuesFactory(cluster=cluster, component="small", values={"replicas": 1}, changed_by="bob")  # meanwhile
    sent = {"view": "yaml", "version": "0", "source": source, "intent": intent}
    page = client.post(page_of(cluster), sent).content.decode()
    version = re.search('name="version" value="([0-9]+)"', page)[1]
    answer = client.post(page_of(cluster), {"view": "yaml", "version": version, "source": "replicas: 3"})
    assert answer.status_code == 412
    assert ClusterValues.objects.get().values == {"replicas": 1}


def test_switching_views_keeps_what_is_typed(cluster, small, operator):
    client = browser(operator)
    sent = {
        "view": "form",
        "version": "0",
        "path": ["replicas"],
        "value": ["7"],
        "source": "b: [1, 2]",
        "intent": "yaml",
    }
    page = client.post(page_of(cluster), sent).content.decode()
    assert "replicas: 7" in page
    sent = {"view": "yaml", "version": "0", "source": "replicas: 7\nb: [1, 2]\n", "intent": "form"}
    answer = client.post(page_of(cluster), sent)
    assert [(row.path, row.typed) for row in answer.context["rows"]] == [("replicas", "7")]
    assert answer.context["source"].startswith("b:")


def test_a_viewer_sees_no_secret_and_cannot_save(cluster, small):
    ClusterValuesFactory(cluster=cluster, component="small", values={"adminPassword": "hunter2"})
    client = browser(UserFactory(roles=["viewer"]))
    page = client.get(page_of(cluster))
    assert "hunter2" not in page.content.decode()
    assert "You need the role operator here." in text_of(page)
    assert client.post(page_of(cluster), {}).status_code == 403
    assert "hunter2" not in client.get(rest_of(cluster)).content.decode()


def test_the_list_says_what_is_wanted_and_what_is_own(cluster, small, wanted, operator):
    ClusterValuesFactory(cluster=cluster, component="small", values={"a": {"b": 1, "c": 2}})
    answer = browser(operator).get(reverse("components:cluster_components", args=[cluster.pk]))
    first = answer.context["rows"][0]
    assert (first.component.name, first.count, first.is_near) == ("small", 2, True)


# ── REST ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_over_rest_the_same_with_an_etag(cluster, small, stored, wanted, operator):
    api = TokenClient(operator)
    read = api.get(rest_of(cluster))
    assert (read.status_code, read["ETag"], read.json()["revision"]) == (200, '"0"', "base r1")
    assert api.put(rest_of(cluster), {"values": {}}).status_code == 428

    refused = api.put(rest_of(cluster), {"values": {"replicas": "x"}}, HTTP_IF_MATCH='"0"')
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "values.replicas"

    saved = api.put(rest_of(cluster), {"values": {"replicas": 3, "image": {"tag": "v9"}}}, HTTP_IF_MATCH='"0"')
    assert (saved.status_code, saved["ETag"]) == (200, '"1"')
    assert {"path": "replicas", "value": 3, "origin": "cluster", "replaces": "preset big"} in saved.json()["layers"]
    assert [finding["path"] for finding in saved.json()["findings"]] == []
    assert api.put(rest_of(cluster), {"values": {}}, HTTP_IF_MATCH='"0"').status_code == 412
    listed = api.get(rest_of(cluster).removesuffix("/small")).json()["results"]
    assert [(row["component"], row["version"]) for row in listed] == [("small", 1)]


# ── Text and values ───────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "value",
    ["true", "6443", "", " a", "a: b", "x # y", "10.0.0.0/8", True, None, 1.5, [1, "no"], {"a": {}}, "a\nb", "'"],
)
def test_what_a_row_shows_is_read_as_the_same_value(value):
    typed, rest = form.split({"a": {"b": value}, "c": {}}, ["a.b"])
    assert rest == {"c": {}}
    assert form.of_rows(typed.items(), form.as_yaml(rest)).values == {"a": {"b": value}, "c": {}}


def test_a_key_in_two_places_is_a_mistake():
    read = form.of_rows([("a.b", "1")], "a: {b: 2}")
    assert list(read.problems) == ["a.b"]
    assert list(form.of_rows([("a.b", "1")], "a: 5").problems) == ["a.b"]


# ── The chart that they are checked against ───────────────────────────────────────────────────────────────────────────
@pytest.fixture
def server(settings):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    made = ChartServer()
    RepositoryFactory(url=made.url("/charts"), stands_for="https://charts.example", ca=AUTHORITY.pem)
    yield made
    made.close()


def offered(server) -> None:
    chart = packed(
        {"Chart.yaml": "apiVersion: v2\nname: small\nversion: 1.2.3\n", "values.yaml": VALUES}, folder="small"
    )
    server.routes["/charts/index.yaml"] = (
        200,
        b"apiVersion: v1\nentries: {small: [{name: small, version: 1.2.3, urls: [small-1.2.3.tgz]}]}\n",
        {},
    )
    server.routes["/charts/small-1.2.3.tgz"] = (200, chart, {})


def test_the_chart_is_fetched_now_or_it_is_said_why_not_and_nothing_typed_is_lost(cluster, small, operator, server):
    client, address = browser(operator), page_of(cluster)
    assert "Fetch this chart now" in text_of(client.get(address))
    sent = {"intent": "fetch", "view": "yaml", "version": "0", "revision": "0", "source": "replicas: 7\nunknown: 1\n"}

    refused = client.post(address, sent)
    assert (refused.status_code, Archive.objects.count()) == (422, 0)
    assert re.search(r'id="fetch-error" role="alert">.*?404', text_of(refused))
    assert "replicas: 7 unknown: 1" in text_of(refused)

    offered(server)
    fetched = client.post(address, sent)
    assert (fetched.status_code, Archive.objects.get().name) == (200, "small")
    assert "replicas: 7 unknown: 1" in text_of(fetched)
    assert "Fetch this chart now" not in text_of(fetched)
    assert [finding.path for finding in overrides.judge(here(cluster, small), {"unknown": 1})] == ["unknown"]
    assert Record.objects.get(action="chart-archive.fetch").after["version"] == "1.2.3"
    assert not ClusterValues.objects.exists(), "nothing was saved"


def test_over_rest_the_chart_is_fetched_by_who_may_set_values(cluster, small, operator, server):
    address = f"{rest_of(cluster)}/actions/fetch-chart"
    assert TokenClient(UserFactory(roles=["viewer"])).post(address, {}).status_code == 403
    client = TokenClient(operator)
    assert client.post(address, {}).json()["errors"][0]["field"] == "repository"

    offered(server)
    answer = client.post(address, {})
    assert (answer.status_code, answer.json()["is_checked"]) == (200, True)
    assert browser(UserFactory(roles=["viewer"])).post(page_of(cluster), {"intent": "fetch"}).status_code == 403
