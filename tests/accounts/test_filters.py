"""Filters kept under a name: an address and no more; bad input is refused, and other people's are theirs."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from accounts import filters
from accounts.models import SavedFilter
from audit.models import Record
from common.errors import Invalid, Missing, NotAllowed
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("?health=degraded&q=gpu", "health=degraded&q=gpu"),
        ("q=gpu&page=7&cluster=", "q=gpu"),
        ("q=a%26b", "q=a%26b"),
    ],
)
def test_a_query_is_kept_in_one_form_without_its_page(query: str, kept: str) -> None:
    assert filters.canonical(query) == kept


@pytest.mark.parametrize(
    "query",
    ["", "?", "page=3", "q", "=x", "Q=1", "a b=1", "q=%0a", "&".join(f"a{n}=1" for n in range(30)), "q=" + "x" * 2000],
)
def test_what_is_no_filter_is_refused_beside_its_field(query: str) -> None:
    with pytest.raises(Invalid) as refused:
        filters.keep(page="nodes", name="mine", query=query, by=UserFactory())

    assert refused.value.fields["query"]
    assert not SavedFilter.objects.exists()


@pytest.mark.parametrize("bad", [{"page": "elsewhere"}, {"name": "  "}, {"name": "x" * 61}])
def test_page_and_name_are_judged_too(bad: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refused:
        filters.keep(**{"page": "nodes", "name": "mine", "query": "q=x", "by": UserFactory()} | bad)

    assert list(refused.value.fields) == list(bad)


def test_the_same_name_again_replaces_it() -> None:
    me = UserFactory()
    filters.keep(page="nodes", name="Sick", query="health=degraded", by=me)
    filters.keep(page="nodes", name="Sick", query="health=unknown", by=me)

    assert [kept.filter.query for kept in filters.of_page("nodes", me).own] == ["health=unknown"]


def test_only_shared_ones_are_seen_by_others_and_recorded() -> None:
    me, other = UserFactory(), UserFactory()
    filters.keep(page="nodes", name="secret", query="q=x", by=me)
    filters.keep(page="nodes", name="ours", query="q=y", by=me, is_shared=True)

    seen = filters.of_page("nodes", other)

    assert [kept.filter.name for kept in seen.shared] == ["ours"]
    assert [record.target_name for record in Record.objects.filter(action="filter.create")] == ["ours"]


def test_a_private_one_is_not_there_for_others_and_a_shared_one_is_dropped_by_its_owner_or_an_administrator() -> None:
    me, other, admin = UserFactory(), UserFactory(), UserFactory(roles=["admin"])
    secret = filters.keep(page="nodes", name="secret", query="q=x", by=me)
    ours = filters.keep(page="nodes", name="ours", query="q=y", by=me, is_shared=True)

    with pytest.raises(Missing):
        filters.drop(pk=secret.pk, by=admin)
    with pytest.raises(NotAllowed):
        filters.drop(pk=ours.pk, by=other)
    filters.drop(pk=ours.pk, by=admin)

    assert list(SavedFilter.objects.all()) == [secret]


def test_keeping_leads_back_to_the_list_and_never_elsewhere() -> None:
    client = Client()
    client.force_login(UserFactory(roles=["viewer"]))

    kept = client.post("/filters/", {"page": "nodes", "name": "mine", "query": "q=x"})
    refused = client.post("/filters/", {"page": "nodes", "name": "mine", "query": "//evil.test"})

    assert (kept.status_code, kept["Location"]) == (302, "/nodes/?q=x")
    assert (refused.status_code, refused["Location"]) == (302, "/nodes/")


@pytest.mark.parametrize(("page", "query"), [("audit", "action=plan.approve"), ("clusters", "environment=production")])
def test_audit_and_clusters_keep_filters_as_the_other_lists_do(page: str, query: str) -> None:
    me, other = UserFactory(roles=["viewer"]), UserFactory(roles=["viewer"])
    ClusterFactory()
    client, theirs = Client(), Client()
    client.force_login(me)
    theirs.force_login(other)
    assert 'id="keep-filter"' in client.get(f"/{page}/?{query}").content.decode()

    kept = client.post("/filters/", {"page": page, "name": "Mine", "query": query, "is_shared": "1"})

    assert (kept.status_code, kept["Location"]) == (302, f"/{page}/?{query}")
    for someone in (client, theirs):
        shown = someone.get(f"/{page}/").content.decode()
        assert f'href="/{page}/?{query}"' in shown
        assert "Mine" in shown
