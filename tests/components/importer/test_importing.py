"""Draft of a profile from what a cluster runs: matched to the catalog, without secrets, or the reason why not."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from django.urls import reverse

from clusters.fleet import FleetUnavailable
from clusters.kube.discovery import Resource, ServedApis
from clusters.models import Cluster
from components.catalog import catalog
from components.importer import importing
from profiles.services import editing
from tests.clusters.factories import ClusterFactory
from tests.components.catalog.test_catalog import write
from tests.components.kube import Kube, payload, record
from tests.factories import TokenClient, UserFactory
from tests.profiles.web.test_pages import browser

DEFAULTS = {"color": "green", "size": {"a": 1, "b": 2}, "adminPassword": ""}
DEPLOYMENT = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: tiny, namespace: space}\n"
AT = "/apis/apps/v1/namespaces/space/deployments/tiny"


@pytest.fixture
def kube(tmp_path, monkeypatch, db):
    """A cluster that has what `installed` puts there; the catalog has a component `small` of the chart `tiny`."""
    made = Kube()
    served = ServedApis("v1.35.0", {("apps/v1", "Deployment"): Resource("apps/v1", "Deployment", "deployments", True)})

    @contextmanager
    def api_server(cluster):
        yield made

    monkeypatch.setattr(importing.registry, "api_server", api_server)
    monkeypatch.setattr(importing.discovery, "read", lambda server: served)
    chart = "chart: {kind: http, url: 'https://small.example/charts', chart: tiny}"
    with catalog.extended(write(tmp_path, chart=chart)):
        yield made


@pytest.fixture
def operator(db):
    return UserFactory(roles=["operator"])


def installed(kube: Kube, *payloads: dict) -> None:
    kube.say(
        "GET",
        "/api/v1/secrets",
        {"items": [record(helm_payload, namespace=helm_payload["namespace"]) for helm_payload in payloads]},
    )
    kube.say("GET", AT, {"metadata": {"name": "tiny"}})


def release(config: dict | None = None, *, chart: str = "tiny", version: str = "1.2.3", **over):
    about = {"metadata": {"name": chart, "version": version}, "values": DEFAULTS}
    return payload(**({"chart": about, "config": config or {}, "manifest": DEPLOYMENT, "name": "small"} | over))


def read(operator):
    return importing.draft_profile(ClusterFactory(name="atlas"), by=operator)


def test_what_differs_from_the_chart_becomes_a_draft_that_can_be_judged(kube, operator):
    installed(kube, release({"color": "green", "size": {"a": 1, "b": 3}, "more": [1, {"x": "y"}]}, namespace="space"))
    draft = read(operator)
    (wanted,) = editing.check(draft.source).content.components
    assert (wanted.name, wanted.version) == ("small", "1.2.3")
    assert dict(wanted.values) == {"size": {"b": 3}, "more": [1, {"x": "y"}]}


def test_a_preset_that_stands_there_whole_is_named_and_only_the_rest_written_out(kube, operator):
    installed(kube, release({"replicas": 2, "size": {"b": 3}}, namespace="space"))
    draft = read(operator)
    (wanted,) = editing.check(draft.source).content.components
    assert (wanted.presets, dict(wanted.values)) == (("big",), {"size": {"b": 3}})
    assert draft.found[0].notes[0] == "Among its values is all of the preset big."

    installed(kube, release({"replicas": 3}, namespace="space"))
    again = importing.draft_profile(Cluster.objects.get(), by=operator)
    (wanted,) = editing.check(again.source).content.components
    assert (wanted.presets, dict(wanted.values)) == ((), {"replicas": 3})


def test_a_password_does_not_travel_and_is_asked_for(kube, operator):
    installed(kube, release({"adminPassword": "hunter2", "users": [{"token": "hunter2"}]}))
    draft = read(operator)
    assert "hunter2" not in repr(draft)
    (imported,) = draft.found
    assert tuple(imported.keys) == ("adminPassword", "users[0].token")
    assert "# To do: make the Secret space/small-values with the key adminPassword, for adminPassword." in draft.source
    (wanted,) = editing.check(draft.source).content.components
    assert wanted.values["adminPassword"] == {"$secret": {"name": "small-values", "key": "adminPassword"}}


def test_what_cannot_be_taken_says_why(kube, operator):
    broken = record(release(name="broken", version="1.2.3"))
    broken["data"] = {"release": "bm8="}
    others = [
        release(name="harbor", chart="harbor"),
        release(name="busy", info={"status": "pending-upgrade"}),
        release({"a": 2**60}, name="huge"),
        release({"a": "\ud800"}, name="half"),
    ]
    kube.say("GET", "/api/v1/secrets", {"items": [broken, *(record(helm_payload) for helm_payload in others)]})
    draft = read(operator)
    why = {imported.release: imported.why_not for imported in draft.found}
    assert draft.source == ""
    assert not any(imported.is_taken for imported in draft.found)
    assert "cannot be read" in why["broken"]
    assert why["harbor"] == "The catalog has no component of the chart harbor."
    assert "is pending-upgrade: another helm works on it" in why["busy"]
    assert "cannot carry exactly" in why["huge"]
    assert "no Unicode" in why["half"]


@pytest.mark.parametrize(
    ("meta", "who"),
    [
        ({"annotations": {"argocd.argoproj.io/tracking-id": "tiny:apps/Deployment:a/b"}}, "Argo CD's Application tiny"),
        ({"labels": {"helm.toolkit.fluxcd.io/name": "t"}}, "Flux's HelmRelease t"),
    ],
)
def test_what_somebody_else_keeps_is_left_to_them(kube, operator, meta, who):
    installed(kube, release())
    kube.say("GET", AT, {"metadata": {"name": "tiny", **meta}})
    (imported,) = read(operator).found
    assert f"It is kept by {who}" in imported.why_not


def test_two_releases_of_one_component_are_for_a_person_to_tell_apart(kube, operator):
    installed(kube, release(name="one"), release(name="two"))
    draft = read(operator)
    assert [imported.why_not for imported in draft.found] == [
        "The cluster has several releases of it: space/one, space/two. Remove all but one."
    ] * 2


def test_a_version_that_nobody_tested_and_another_name_are_told(kube, operator):
    installed(kube, release(name="mine", version="9.9.9"))
    (imported,) = read(operator).found
    assert imported.is_taken
    assert imported.notes == (
        "The presets were checked against 1.2.3, not against 9.9.9.",
        "It stays the release space/mine.",
    )


def test_a_record_cannot_write_lines_of_the_draft(kube, operator):
    installed(kube, release(name="x", chart="a\ncomponents: {evil: {}}\n"), release())
    source = read(operator).source
    assert [component.name for component in editing.check(source).content.components] == ["small"]


# ── Pages and REST ────────────────────────────────────────────────────────────────────────────────────────────────────
def test_two_passwords_of_one_name_get_two_keys_and_each_key_is_one_that_a_secret_can_have(kube, operator):
    given = {"db": {"password": "one"}, "cache": {"password": "two"}, "users": {"my admin/password": "three"}}
    installed(kube, release(given, namespace="space"))
    draft = read(operator)
    (wanted,) = editing.check(draft.source).content.components
    keys = [
        wanted.values[part][name]["$secret"]["key"]
        for part, name in (("db", "password"), ("cache", "password"), ("users", "my admin/password"))
    ]
    assert keys == ["password", "cache.password", "my-admin-password"]
    for key, path in zip(keys, ("db.password", "cache.password", 'users["my admin/password"]'), strict=True):
        assert f"with the key {key}, for {path}." in draft.source


def test_the_page_reads_only_when_it_is_asked_and_its_draft_opens_in_the_editor(kube, operator):
    cluster, client = ClusterFactory(name="atlas"), browser(operator)
    installed(kube, release({"color": "red"}), release(name="harbor", chart="harbor"))
    address = reverse("components:installed", args=[cluster.pk])
    assert address in client.get(reverse("components:installed_choose")).content.decode()
    assert client.get(address).status_code == 200
    assert kube.asked == []

    answer = client.post(address)
    page = answer.content.decode()
    assert "The catalog has no component of the chart harbor." in page
    assert "color: red" in page
    sent = {"view": "yaml", "intent": "check", "source": answer.context["draft"].source}
    editor = client.post(reverse("profiles:profile_new"), sent)
    assert editor.status_code == 200
    assert "color: red" in editor.content.decode()


def test_a_cluster_that_does_not_answer_is_told(operator, monkeypatch):
    def api_server(cluster):
        raise FleetUnavailable("nobody answers")

    monkeypatch.setattr(importing.registry, "api_server", api_server)
    cluster = ClusterFactory(name="atlas")
    answer = browser(operator).post(reverse("components:installed", args=[cluster.pk]))
    assert (answer.status_code, "atlas could not be read: nobody answers." in answer.content.decode()) == (409, True)
    answer = TokenClient(operator).post(f"/api/v1/clusters/{cluster.pk}/actions/draft-profile")
    assert (answer.status_code, answer.json()["detail"]) == (409, "atlas could not be read: nobody answers.")


def test_over_rest_the_same(kube, operator):
    cluster = ClusterFactory()
    installed(kube, release({"color": "red"}))
    answer = TokenClient(operator).post(f"/api/v1/clusters/{cluster.pk}/actions/draft-profile")
    assert answer.status_code == 200
    assert [imported["component"] for imported in answer.json()["found"]] == ["small"]
    assert "color: red" in answer.json()["source"]
    viewer = UserFactory(roles=["viewer"])
    assert TokenClient(viewer).post(f"/api/v1/clusters/{cluster.pk}/actions/draft-profile").status_code == 403
