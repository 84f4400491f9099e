"""Laws of the search: names, numbers and identifiers are found by people permitted to see them, in few queries."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts.models import User
from clusters.models import Cluster, Node
from common import hooks
from common.search import EACH, LONGEST, Needle
from config.search import results
from jobs import tasks
from profiles.models import Profile
from tests.factories import TokenClient, UserFactory
from tests.jobs.pages import browser, page, text_of
from tests.jobs.rows import more_nodes, more_plans

MANY = 20_000
API = "/api/v1/search"


@pytest.fixture(autouse=True)
def asleep(monkeypatch):
    monkeypatch.setattr(tasks, "wake", lambda pk: None)


def names(user: User, text: str) -> dict[str, list[str]]:
    return {group.kind: [hit.name for hit in group.found] for group in results(user, text)}


def test_everything_is_found_by_its_name_or_number(world):
    rollout = world.started()
    for text, kind, name in (
        ("n1", "node", "n1"),
        ("N1", "node", "n1"),
        ("atl", "cluster", "atlas"),
        ("gp", "profile", "gpu"),
        ("P-1", "plan", "P-1"),
        ("p1", "plan", "P-1"),
        ("1", "plan", "P-1"),
        ("R-1", "rollout", "R-1"),
        ("P-1", "rollout", "R-1"),
        ("train", "plan", "P-1"),
        ("vm.swap", "setting", "vm.swappiness"),
        ("  vm.swappiness ", "setting", "vm.swappiness"),
        ("huge pages", "setting", "hugepages-2Mi"),
    ):
        assert name in names(world.operator, text).get(kind, []), (text, kind)
    assert names(world.operator, "vm.swappiness")["setting"][0] == "vm.swappiness", "the key itself comes first"
    assert "rollout" not in names(world.operator, "P-2")
    assert rollout.number == 1


def test_an_identifier_or_how_it_begins_finds_its_object(world):
    rollout = world.started()
    plan, step, node = rollout.plan, rollout.steps.first(), world.node("n1")
    assert Node.objects.filter(pk=node.pk).update(uid="5f0c7a1e-3f0e-4b7c-9a55-0123456789ab")
    for text, kind, name in (
        (str(plan.pk), "plan", "P-1"),
        (str(plan.pk)[:8], "plan", "P-1"),
        (str(plan.pk)[:15].upper(), "plan", "P-1"),
        (plan.pk.hex, "plan", "P-1"),
        (str(rollout.pk)[:11], "rollout", "R-1"),
        (str(step.pk), "rollout", "R-1"),
        (str(world.cluster.pk)[:9], "cluster", "atlas"),
        (plan.digest, "plan", "P-1"),
        (plan.digest[:15], "plan", "P-1"),
        (plan.digest.removeprefix("sha256:")[:12], "plan", "P-1"),
        (plan.revision.digest[:19], "profile", "gpu r1"),
        ("5f0c7a1e", "node", "n1"),
        ("5f0c7a1e-3f0e-4b7c-9a55-0123456789ab", "node", "n1"),
    ):
        assert name in names(world.operator, text).get(kind, []), (text, kind)
    assert names(world.operator, str(plan.pk)[:7]).get("plan") is None, "seven digits are no identifier"
    assert names(world.operator, str(uuid.uuid4())) == {}


def test_a_node_that_is_gone_is_found_by_its_uid_alone(world):
    uid = "aaaaaaaa-1111-4222-8333-444444444444"
    Node.objects.filter(name="n2").update(gone_at=world.clock(), uid=uid)
    assert "node" not in names(world.operator, "n2")
    (group,) = results(world.operator, uid)
    assert (group.found[0].name, group.found[0].note) == ("n2", "atlas, gone")


def test_nobody_finds_what_they_may_not_see(world):
    plan = world.started().plan
    other = Cluster.objects.create(
        uid="o", name="other", environment="production", credential=b"-", credential_key="-", server="x"
    )
    stranger = UserFactory(roles=[f"viewer@cluster:{other.pk}"])
    nobody = UserFactory()
    uid = "bbbbbbbb-1111-4222-8333-444444444444"
    Node.objects.filter(name="n1").update(uid=uid)
    for text in ("n", "n1", uid, uid[:8], "atlas", str(world.cluster.pk), "P-1", "R-1", "1", str(plan.pk), plan.digest):
        assert not set(names(stranger, text)) & {"node", "cluster", "plan", "rollout"}, text
        assert names(nobody, text) == {}, text
    assert names(stranger, "other")["cluster"] == ["other"]
    assert names(stranger, "swappiness")["setting"], "the catalog is everybody's who has a role"
    assert names(nobody, "swappiness") == {}


@pytest.fixture
def vast(world):
    """20,000 nodes, 300 plans and rollouts, 60 clusters and profiles."""
    more_nodes(world, MANY - 3)
    more_plans(world, 300, status="started", with_rollouts="succeeded")
    Cluster.objects.bulk_create(
        Cluster(uid=f"u{i}", name=f"gpu-{i}", credential=b"-", credential_key="-", server="x") for i in range(60)
    )
    Profile.objects.bulk_create(Profile(name=f"gpu-{i}") for i in range(60))
    return world


def test_at_20000_nodes_it_finds_few_of_each_kind_in_few_queries_by_an_index(vast):
    scoped = UserFactory(roles=["viewer@env:staging"])
    for person in (vast.operator, scoped):
        for text in ("m1", "gpu", "train", "P-1100", str(uuid.uuid4()), "aaaaaaaa", "e", "sha256:" + "a" * 64):
            user = User.objects.get(pk=person.pk)  # a fresh object, without cached permissions
            with CaptureQueriesContext(connection) as seen:
                groups = results(user, text)
            assert len(seen) <= 10, (text, len(seen))
            assert all(len(group.found) <= EACH for group in groups), text
    by_kind = {group.kind: group for group in results(vast.operator, "m1")}
    assert len(by_kind["node"].found) == EACH
    assert by_kind["node"].more == "/nodes/?q=m1"
    assert results(vast.operator, "train")[0].more == "/plans/?q=train"


@pytest.mark.parametrize(
    ("text", "index"), [("m1", "node_name_prefix"), ("5f0c7a1e", "sqlite_autoindex_clusters_node_1")]
)
def test_the_search_for_nodes_is_answered_by_an_index(world, text, index):
    if connection.vendor == "postgresql":  # which plan is best of a few rows is a matter of chance
        Node.objects.bulk_create(Node(cluster=world.cluster, uid=str(uuid.uuid4()), name=f"x{i}") for i in range(1000))
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE clusters_node, clusters_cluster")
            cursor.execute("SET LOCAL enable_seqscan = off")
    needle = Needle.of(text)
    rows = Node.objects.present().filter(needle.begins("name")).order_by("name", "pk")
    if needle.digits:
        rows = Node.objects.filter(needle.begins("uid"), cluster__in=Cluster.objects.order_by().values("pk"))
    plan = rows.explain()
    if connection.vendor == "postgresql":
        column = "uid" if needle.digits else "name"
        assert re.search(rf"on clusters_node .*\n\s+Index Cond: .*\({column}\)::text ~?>=~? ", plan), plan
    else:
        assert f"clusters_node USING INDEX {index} (" in plan, plan


@given(text=st.text(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
def test_any_text_is_searched_for_without_a_failure(world, text):
    """A room that raises is logged and left out, so each is asked by itself here."""
    needle = Needle.of(text)
    assert (needle is None) == (not text.replace("\x00", " ").split())
    if needle:
        assert 1 <= len(needle.text) <= LONGEST
        for find in hooks.search._subscribers:
            list(find(world.operator, needle))


@pytest.mark.parametrize(
    "text", ["ffffffff" * 4, "0" * 32, "999999999", "P-999999999", "-" * 36, "%", "_", "'\"", "sha256:"]
)
def test_odd_texts_are_searched_for_on_the_page_and_over_rest(world, text):
    assert browser(world.operator).get("/search/", {"q": text}).status_code == 200
    assert TokenClient(world.operator).get(API, {"q": text}).status_code == 200


def test_the_page_works_without_javascript_and_says_when_nothing_is_found(world):
    html = page(world.operator, "/search/?q=n1")
    assert 'name="q" type="search" value="n1"' in html
    assert f'href="/nodes/{world.node("n1").pk}/"' in html
    results_page = page(world.operator, "/search/?q=nothing-like-this")
    assert "nothing-like-this" in text_of(results_page)
    assert "/nodes/?q=nothing-like-this" in results_page
    assert "Nodes by the start of their name" in text_of(page(world.operator, "/search/"))
    assert "<script>" not in page(world.operator, "/search/?q=<script>x</script>")
    assert page(world.operator, "/search/found/").strip() == ""
    assert "<html" not in page(world.operator, "/search/found/?q=n1")


def test_every_page_has_the_box(world):
    for path in ("/", "/nodes/", "/audit/", "/account/"):
        html = page(world.operator, path)
        assert 'action="/search/"' in html
        assert 'aria-keyshortcuts="/"' in html


def test_over_rest_it_says_the_same_and_refuses_what_it_cannot_read(world):
    world.started()
    client: Any = TokenClient(world.operator)
    answer = client.get(API, {"q": "atlas"}).json()
    assert answer["q"] == "atlas"
    assert [(g["kind"], [r["name"] for r in g["results"]]) for g in answer["groups"]] == list(
        names(world.operator, "atlas").items()
    )
    hit = answer["groups"][0]["results"][0]
    assert hit == {
        "id": str(world.cluster.pk), "name": "atlas", "note": "staging", "page": f"/clusters/{world.cluster.pk}/",
    }  # fmt: skip
    for query in ("", "?q=", "?q=%20", f"?q={'x' * 129}", "?q=a&color=red"):
        assert client.get(f"{API}{query}").status_code == 400, query
