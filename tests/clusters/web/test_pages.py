"""Decisions and counts of the pages: the context that a template gets, not how it looks."""

from __future__ import annotations

from datetime import timedelta

import pytest

from clusters.inventory import reachability, store
from clusters.models import Cluster, GpuPod, Node, Pool
from common import hooks
from common.clock import now
from tests.clusters.factories import (
    ClusterFactory,
    PoolFactory,
    raw_lease,
    raw_node,
)
from tests.clusters.web.addresses import KUBECONFIG, URL, at

pytestmark = pytest.mark.django_db


# ── a cluster ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_list_counts_nodes_by_health(log_in, shown, fleet):
    ClusterFactory(name="silent", reach="unreachable")

    log_in("viewer").get(at("clusters"))

    rows = {row.name: row for row in shown["clusters"]}
    assert rows["atlas"].health == {"degraded": 1, "healthy": 2}
    assert (rows["atlas"].node_count, rows["atlas"].gpu_count, rows["atlas"].gpu_allocated) == (3, 16, 8)
    assert rows["silent"].health == {"unreachable": 0}
    assert shown["may_connect"] is False


def test_the_clusters_nodes_are_asked_for_worst_first_once_somebody_comes_to_see_them(log_in, shown, fleet):
    log_in("viewer").get(at("worst", fleet.pk))

    assert [node.name for node in shown["worst"]] == ["n1", "n2", "n0"]


def test_the_cluster_page_counts_its_nodes_and_has_panels_from_above(log_in, shown, fleet):
    PoolFactory(cluster=fleet, name="train")
    panels = [hooks.Panel("jobs/_freeze.html", {"freeze": None}, 20), hooks.Panel("x/_first.html", {}, 10)]
    hooks.cluster_panels.subscribe(lambda request, cluster: panels if cluster == fleet else [])

    log_in("viewer").get(at("cluster", fleet.pk))

    assert (shown["counts"]["degraded"], shown["counts"]["cordoned"], shown["not_enrolled"]) == (1, 1, 2)
    assert [(row.pool.name, row.text, row.count) for row in shown["pools"]] == [("train", "pool=train", 2)]
    assert [panel.order for panel in shown["panels"]] == [10, 20]
    assert shown["why_not"]["disconnect"] == "You need the role admin here."


def test_a_cluster_that_does_not_answer_says_since_when_and_why(log_in, shown, fleet):
    since = now() - timedelta(hours=1)
    reachability.lost(fleet, "no route to host", since=since)

    log_in("viewer").get(at("cluster", fleet.pk))

    assert f"{since:%H:%M}" in shown["why_unknown"]
    assert "no route to host" in shown["why_unknown"]
    assert shown["counts"]["unreachable"] == 3


def test_a_cluster_nobody_watches_is_unknown_too(fleet):
    Cluster.objects.update(observed_at=now() - timedelta(minutes=5))

    assert "no watch is running" in Cluster.objects.get().why_unknown


def test_settings_are_saved_and_a_stale_form_is_told(log_in, shown, fleet):
    admin = log_in("admin")
    form = {"name": "atlas", "environment": "staging", "budget": "3", "version": "1"}

    assert admin.post(at("update", fleet.pk), form).status_code == 302
    answer = admin.post(at("update", fleet.pk), form | {"budget": "4"})

    assert answer.status_code == 422
    assert "changed meanwhile" in str(shown["settings_form"].errors)
    assert Cluster.objects.get().budget == 3


def test_disconnecting_says_what_stays_before_it_is_done(log_in, shown, sim):
    cluster = ClusterFactory(uid=sim.uid, server=URL)
    admin = log_in("admin")

    admin.get(at("disconnect", cluster.pk))
    assert shown["leaving"].stays
    assert shown["leaving"].commands
    assert Cluster.objects.exists()
    admin.post(at("disconnect", cluster.pk))

    assert not Cluster.objects.exists()


# ── pools ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_pool_is_previewed_before_it_is_saved(log_in, shown, fleet):
    operator = log_in("operator")
    form = {"name": "train", "selector": "pool=train", "description": ""}

    operator.post(at("pool_new", fleet.pk), form | {"intent": "preview"})
    assert (shown["preview"].count, Pool.objects.count()) == (2, 0)
    operator.post(at("pool_new", fleet.pk), form | {"intent": "save"})
    pool = Pool.objects.get()
    operator.get(at("pool", pool.pk))
    assert shown["form"]["selector"].value() == "pool=train"
    operator.post(at("pool", pool.pk), form | {"selector": "pool", "version": "1", "intent": "save"})
    assert Pool.objects.get().selector == {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}
    operator.post(at("pool_delete", pool.pk))

    assert not Pool.objects.exists()


@pytest.mark.parametrize("selector", ["", "  ", ",", "a=b=c", "a in (", "=", "🦀=1"])
def test_a_selector_that_cannot_be_read_is_refused_beside_its_field(log_in, shown, fleet, selector):
    form = {"name": "train", "selector": selector, "intent": "save"}

    answer = log_in("operator").post(at("pool_new", fleet.pk), form)

    assert answer.status_code == 422
    assert "selector" in shown["form"].errors


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["n1", "n2", "n0"]),
        ("q=N0", ["n0"]),
        ("cluster=atlas", ["n1", "n2", "n0"]),
        ("cluster=elsewhere", []),
        ("health=degraded", ["n1"]),
        ("health=healthy&cordoned=no", ["n0"]),
        ("cordoned=yes", ["n2"]),
        ("pool=nonsense", []),
        ("after=nonsense", ["n1", "n2", "n0"]),
        ("ordering=-name", ["n2", "n1", "n0"]),
        ("ordering=name&cordoned=no", ["n0", "n1"]),
    ],
)
def test_filters_live_in_the_url(log_in, shown, fleet, query, names):
    log_in("viewer").get(f"{at('nodes')}?{query}")

    assert [node.name for node in shown["listing"].page.rows] == names


def test_chips_count_what_the_other_filters_leave(log_in, shown, fleet):
    log_in("viewer").get(f"{at('nodes')}?health=degraded&q=n")

    assert shown["counts"]["health"] == {"unreachable": 0, "degraded": 1, "unknown": 0, "healthy": 2}
    assert shown["listing"].page.count == 1


def test_a_pool_of_a_cluster_one_may_not_see_is_not_there(log_in, shown, fleet):
    pool = PoolFactory()

    stranger = log_in("viewer", f"cluster:{fleet.pk}")

    assert stranger.get(f"{at('nodes')}?pool={pool.pk}").status_code == 404
    assert stranger.get(at("cluster", pool.cluster_id)).status_code == 404


def test_a_nodes_page_says_of_a_pod_that_containers_ran_out_of_memory(log_in, fleet, clock):
    where = at("node", Node.objects.get(name="n0").pk)
    viewer = log_in("viewer")
    assert "out of memory" not in viewer.get(where).text

    GpuPod.objects.filter(name="p1").update(memory_kills=2, memory_killed_at=clock.at)

    text = " ".join(viewer.get(where).text.split())
    assert "out of memory: 2 containers, " in text


def test_the_node_page_shows_observed_values_pods_and_panels(log_in, shown, fleet, clock):
    hooks.node_panels.subscribe(lambda request, node: [hooks.Panel("compliance/_settings.html", {"node": node})])
    store.observe_leases(fleet, [raw_lease("n0", f"{clock.at:%Y-%m-%dT%H:%M:%S}Z")], at=clock.at)
    viewer = log_in("viewer")

    viewer.get(at("node", Node.objects.get(name="n0").pk))
    assert shown["observed"] == [("vm.swappiness", "60")]
    assert [pod.name for pod in shown["gpu_pods"]] == ["p1"]
    assert (shown["silent_since"], shown["is_gone"], len(shown["panels"])) == (None, False, 1)
    clock.forward(minutes=4)
    viewer.get(at("node", Node.objects.get(name="n0").pk))
    assert shown["silent_since"] is not None
    viewer.get(at("node", Node.objects.get(name="n1").pk))

    assert shown["tuning"] is None


def test_a_replaced_node_names_its_successor(log_in, shown, fleet):
    old = Node.objects.get(name="n0")
    store.observe_nodes(fleet, [raw_node("n0", uid="another")], complete=False)

    log_in("viewer").get(at("node", old.pk))

    assert shown["is_gone"] is True
    assert shown["replaced_by"].uid == "another"


@pytest.mark.parametrize("page", ["clusters", "nodes"])
def test_pages_cost_a_fixed_number_of_queries(log_in, fleet, page, django_assert_max_num_queries):
    raws = [raw_node(f"m{number}") for number in range(80)]
    store.observe_nodes(fleet, raws, complete=False)
    for _ in range(6):
        ClusterFactory()
    viewer = log_in("viewer")

    with django_assert_max_num_queries(14):
        assert viewer.get(at(page)).status_code == 200


def test_the_manifest_can_be_fetched_by_kubectl(client):
    answer = client.get(at("manifest"))

    assert answer.status_code == 200
    assert b"kind: ValidatingAdmissionPolicy" in answer.content


def test_every_other_page_wants_a_log_in(client, fleet):
    node, pool = fleet.nodes.first(), PoolFactory(cluster=fleet)
    pages = [at("clusters"), at("connect"), at("nodes"), at("node", node.pk), at("pool", pool.pk)]
    pages += [at(name, fleet.pk) for name in ("cluster", "rotate", "disconnect", "pool_new")]

    assert all(client.get(page).status_code == 302 for page in pages)


@pytest.mark.parametrize("name", ["update", "refresh", "disconnect"])
def test_what_changes_something_is_not_done_by_a_link(log_in, fleet, shown, name):
    log_in("admin").get(at(name, fleet.pk))

    assert Cluster.objects.filter(pk=fleet.pk, version=1).exists()


def test_every_page_renders_with_its_real_template(log_in, fleet, sim):
    """No `shown` here: a name that a template expects and a view does not give shows up as an error or a hole."""
    admin, pool = log_in("admin"), PoolFactory(cluster=fleet, name="train")
    pages = [at("clusters"), at("connect"), at("nodes"), at("pool", pool.pk)]
    pages += [at("node", node.pk) for node in fleet.nodes.all()]
    pages += [at(name, fleet.pk) for name in ("cluster", "rotate", "disconnect", "pool_new")]

    for page in pages:
        answer = admin.get(page)
        assert answer.status_code == 200, page
        assert b"<h1" in answer.content, page
    form = {"name": "real", "environment": "staging", "budget": "1", "kubeconfig": KUBECONFIG, "intent": "test"}
    judged = admin.post(at("connect"), form).content.decode()
    assert "s3cret" in judged
    assert "permissions are there" in judged
