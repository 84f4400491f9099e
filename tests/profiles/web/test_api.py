"""The same rules over REST: status codes, one shape of refusal, versions by ETag."""

from __future__ import annotations

import pytest
from rest_framework.test import APIClient

from profiles.models import Profile, Revision
from profiles.services import editing
from tests.profiles.services.test_profiles import OTHER, SOURCE, made, published

ROOT = "/api/v1"


def client_of(user) -> APIClient:
    client = APIClient()
    client.force_authenticate(user)
    return client


@pytest.fixture
def api(olga):
    return client_of(olga)


def fields_of(answer) -> dict[str, str]:
    assert answer["Content-Type"].startswith("application/problem+json")
    return {error["field"]: error["message"] for error in answer.json()["errors"]}


def test_a_stranger_sees_nothing(olga):
    made(olga)

    for path in ("/profiles", "/profiles/base", "/revisions", "/settings", "/settings/vm.swappiness"):
        assert APIClient().get(ROOT + path).status_code == 401, path


def test_from_nothing_to_a_revision(api):
    created = api.post(f"{ROOT}/profiles", {"name": "base", "source": SOURCE}, format="json")
    assert created.status_code == 201
    assert created["Location"] == f"{ROOT}/profiles/base"
    assert created["ETag"] == '"1"'
    assert created.json()["actions"] == ["check", "edit", "publish", "discard", "change_owner"]

    patched = api.patch(f"{ROOT}/profiles/base", {"source": OTHER}, format="json", headers={"If-Match": '"1"'})
    assert (patched.status_code, patched["ETag"], patched.json()["draft"]) == (200, '"2"', OTHER)

    done = api.post(
        f"{ROOT}/profiles/base/actions/publish", {"message": "m"}, format="json", headers={"If-Match": patched["ETag"]}
    )
    assert done.status_code == 201
    revision = api.get(done["Location"]).json()
    assert (revision["name"], revision["message"], revision["authors"]) == ("base r1", "m", ["olga@example.com"])
    assert revision["content"]["settings"][0]["value"] == "20"
    assert api.get(f"{ROOT}/revisions/{revision['digest']}").json()["id"] == revision["id"]
    assert api.get(f"{ROOT}/profiles/base").json()["latest"]["number"] == 1


@pytest.mark.parametrize(("header", "status"), [(None, 428), ('"7"', 412), ('W/"1"', 412), ("rubbish", 412)])
def test_a_write_says_which_version_it_is_based_on(api, olga, header, status):
    made(olga)
    headers = {"If-Match": header} if header else {}

    for answer in (
        api.patch(f"{ROOT}/profiles/base", {"source": OTHER}, format="json", headers=headers),
        api.post(f"{ROOT}/profiles/base/actions/publish", {}, format="json", headers=headers),
        api.post(f"{ROOT}/profiles/base/actions/discard", {}, format="json", headers=headers),
    ):
        assert answer.status_code == status
    assert (Profile.objects.get().draft, Revision.objects.count()) == (SOURCE, 0)


def test_an_invalid_document_is_a_problem_that_names_field_and_line(api, olga):
    made(olga)
    source = "settings:\n  vm.swappiness: 999\n  vm.nope: 1\n"

    for answer in (
        api.patch(f"{ROOT}/profiles/base", {"source": source}, format="json", headers={"If-Match": "*"}),
        api.post(f"{ROOT}/profiles", {"name": "other", "source": source}, format="json"),
        api.post(f"{ROOT}/profiles/base/actions/check", {"source": source}, format="json"),
    ):
        assert answer.status_code == 422
        assert set(fields_of(answer)) == {"settings.vm.swappiness (line 2)", "settings.vm.nope (line 3)"}
    assert [(p.name, p.draft) for p in Profile.objects.all()] == [("base", SOURCE)]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": {"a": 1}},
        {"name": "a b"},
        {"name": "base"},
        {"name": "x" * 64},
        {"name": "x", "source": 3},
        [],
        "x",
        None,
        {"name": "x", "source": "\x00"},
        {"name": "x", "description": "d" * 301},
        {"name": "x", "source": "a" * 300_000},
    ],
)
def test_rubbish_is_refused_with_its_field_and_nothing_stored(api, olga, body):
    made(olga)

    answer = api.post(f"{ROOT}/profiles", body, format="json")

    assert answer.status_code in (400, 422), answer.content
    assert answer["Content-Type"].startswith("application/problem+json")
    assert Profile.objects.count() == 1


def test_a_check_says_what_would_be_and_stores_nothing(api, olga, vera):
    published(olga)
    source = "settings:\n  vm.swappiness: 10\n  net.core.rmem_max: 512Mi\n"

    answer = client_of(vera).post(f"{ROOT}/profiles/base/actions/check", {"source": source}, format="json")

    assert answer.status_code == 200
    body = answer.json()
    assert [(w["line"], w["code"]) for w in body["warnings"]] == [(3, "platform")]
    assert [(c["key"], c["before"], c["after"]) for c in body["changes"]] == [("net.core.rmem_max", None, "536870912")]
    assert body["worst_class"] == "live"
    assert Profile.objects.get().draft == ""


def test_a_viewer_may_look_and_is_told_why_not_more(olga, vera):
    made(olga)
    viewer = client_of(vera)

    assert viewer.get(f"{ROOT}/profiles/base").json()["permissions"] == ["check"]
    for answer in (
        viewer.post(f"{ROOT}/profiles", {"name": "x"}, format="json"),
        viewer.patch(f"{ROOT}/profiles/base", {"source": OTHER}, format="json", headers={"If-Match": "*"}),
        viewer.post(f"{ROOT}/profiles/base/actions/publish", {}, format="json", headers={"If-Match": "*"}),
        viewer.post(f"{ROOT}/profiles/base/actions/discard", {}, format="json", headers={"If-Match": "*"}),
    ):
        assert answer.status_code == 403
        assert "operator" in answer.json()["detail"]
    assert (Profile.objects.get().draft, Revision.objects.count()) == (SOURCE, 0)


def test_what_the_state_forbids_is_a_conflict_and_not_among_the_actions(api, olga):
    empty = editing.create(name="empty", by=olga)

    assert api.get(f"{ROOT}/profiles/empty").json()["actions"] == ["check", "edit", "change_owner"]
    answer = api.post(f"{ROOT}/profiles/{empty}/actions/publish", {}, format="json", headers={"If-Match": "*"})
    assert (answer.status_code, answer.json()["code"]) == (409, "wrong-state")


def test_lists_cost_the_same_at_any_length(api, olga, django_assert_num_queries):
    for n in range(3):
        published(olga, f"p{n}", f"labels: {{a: '{n}'}}\n")
    with django_assert_num_queries(2):  # count and rows; the roles are remembered
        answer = api.get(f"{ROOT}/profiles?ordering=-name")
    assert [(p["name"], p["latest"], p["revision_count"]) for p in answer.json()["results"]] == [
        ("p2", 1, 1),
        ("p1", 1, 1),
        ("p0", 1, 1),
    ]
    with django_assert_num_queries(2):
        assert api.get(f"{ROOT}/revisions").json()["count"] == 3


def test_revisions_of_a_profile_newest_first_and_what_each_changed(api, olga):
    published(olga)
    second = published(olga, source=OTHER)

    listed = api.get(f"{ROOT}/profiles/base/revisions").json()
    assert [r["name"] for r in listed["results"]] == ["base r2", "base r1"]
    changed = api.get(f"{ROOT}/revisions/{second.pk}/diff").json()
    assert [(c["key"], c["before"], c["after"]) for c in changed] == [("vm.swappiness", "10", "20")]
    assert api.get(f"{ROOT}/revisions/{second.pk}/diff?against={second.digest}").json() == []


@pytest.mark.parametrize("name", ["0", "999999999", "x", "sha256:" + "0" * 64, "sha256:zz", "-1", "9" * 40])
def test_a_revision_that_is_not_there_is_missing(api, olga, name):
    published(olga)

    assert api.get(f"{ROOT}/revisions/{name}").status_code == 404
    assert api.get(f"{ROOT}/revisions/{name}/diff").status_code == 404


def test_the_catalog_is_searched_filtered_and_paged(api):
    assert api.get(f"{ROOT}/settings?q=swappiness").json()["results"][0]["key"] == "vm.swappiness"
    reboot = api.get(f"{ROOT}/settings?apply_class=reboot&limit=5").json()
    assert len(reboot["results"]) == 5
    assert all(s["key"].startswith("cmdline.") or s["observe_only"] for s in reboot["results"])
    seen = api.get(f"{ROOT}/settings?observe_only=true&family=readonly").json()["results"]
    assert "kubelet.reserved" in {s["key"] for s in seen}
    assert api.get(f"{ROOT}/settings?observe_only=perhaps").status_code == 422
    assert api.get(f"{ROOT}/settings?fields=key").json()["results"][0].keys() == {"key"}


def test_one_setting_has_range_risk_and_source(api):
    setting = api.get(f"{ROOT}/settings/net.core.rmem_max").json()

    assert {"platform": "AKS", "minimum": 212992, "maximum": 134217728} in setting["platforms"]
    assert setting["risk"]
    assert setting["sources"][0]["url"].startswith("https://")
    assert api.get(f"{ROOT}/settings/hugepages-2Mi.node1").json()["apply_class"] == "kubelet-restart"
    missing = api.get(f"{ROOT}/settings/vm.swapiness")
    assert (missing.status_code, "did you mean vm.swappiness?" in missing.json()["detail"]) == (404, True)
