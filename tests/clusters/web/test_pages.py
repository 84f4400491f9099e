"""Decisions and counts of the pages: the context that a template gets, not how it looks."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.urls import reverse

from accounts.models import RoleBinding, User
from clusters.connection import registry
from clusters.inventory import reachability, store
from clusters.models import Cluster, Node, Pool
from clusters.web import node_views, views
from common import hooks
from common.clock import now
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.clusters.factories import (
    ClusterFactory,
    PoolFactory,
    raw_lease,
    raw_node,
    raw_pod,
    raw_status,
    raw_tuning,
)

pytestmark = pytest.mark.django_db

URL = "https://atlas.example:6443"
KUBECONFIG = f"""apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{URL}"}}}}]
users: [{{name: u, user: {{token: s3cret}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
"""


@pytest.fixture
def shown(monkeypatch):
    """The last template rendered, with its context."""
    seen = {}

    def render(request, template, context, status=200):
        seen.clear()
        seen.update(context, template=template)
        return HttpResponse(template, status=status)

    for module in (views, node_views):
        monkeypatch.setattr(module, "render", render)
    return seen


@pytest.fixture
def sim():
    cluster = SimCluster(name="atlas")
    with registry.override(URL, SimFleet(cluster)):
        yield cluster


@pytest.fixture
def fleet():
    cluster = ClusterFactory(reach="reachable", observed_at=now(), name="atlas")
    raws = [
        raw_node("n0", gpus=8, labels={"pool": "train"}),
        raw_node("n1", gpus=8, labels={"pool": "train"}, ready=False),
        raw_node("n2", unschedulable=True),
    ]
    store.observe_nodes(cluster, raws, complete=True)
    store.observe_tunings(cluster, [raw_tuning("n0", status=raw_status("n0"))], complete=True)
    store.observe_pods(cluster, [raw_pod("p1", node="n0", gpus=8)], complete=True)
    return cluster


@pytest.fixture
def log_in(client):
    def as_(role, scope="*"):
        user = User.objects.create_user(f"{role}@example.com")
        RoleBinding.objects.create(user=user, role=role, scope=scope)
        client.force_login(user)
        return client

    return as_


def at(name, *args):
    return reverse(f"clusters:{name}", args=args)


# ── connecting ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_test_looks_and_connect_stores(log_in, shown, sim):
    admin = log_in("admin")
    form = {"name": "atlas", "environment": "staging", "budget": "2", "kubeconfig": KUBECONFIG}

    answer = admin.post(at("connect"), form | {"intent": "test"})
    assert (answer.status_code, shown["verdict"].is_connectable, Cluster.objects.count()) == (200, True, 0)
    assert shown["form"]["kubeconfig"].value() == KUBECONFIG
    assert "no-store" in answer["Cache-Control"]
    answer = admin.post(at("connect"), form | {"intent": "connect"})

    cluster = Cluster.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, at("cluster", cluster.pk))
    assert (cluster.budget, registry.credentials(cluster).token) == (2, "s3cret")


def test_the_test_judges_the_name_beside_the_cluster(log_in, shown, sim):
    taken = ClusterFactory(name="taken").name
    form = {"environment": "staging", "budget": "2", "kubeconfig": KUBECONFIG, "intent": "test"}
    admin = log_in("admin")
    for name, said in (("Atlas_1", "Small letters"), (taken, "already")):
        admin.post(at("connect"), form | {"name": name})
        assert said in str(shown["form"].errors["name"])
        assert shown["verdict"] is not None, "the cluster is asked all the same"


def test_a_kubeconfig_of_several_contexts_lets_one_be_chosen(log_in, sim):
    several = KUBECONFIG.replace("contexts: [", "contexts: [{name: y, context: {cluster: c, user: u}}, ")
    admin = log_in("admin")
    form = {"name": "atlas", "environment": "staging", "budget": "2", "kubeconfig": several, "intent": "test"}

    refused = admin.post(at("connect"), form).content.decode()
    assert "these are the contexts of the kubeconfig" in refused
    found = re.search(r'<select name="context".*?</select>', refused, re.DOTALL)[0]
    assert re.findall(r'<option value="(\w*)"', found) == ["", "y", "x"]
    assert "s3cret" in refused, "nothing typed is lost"
    assert admin.post(at("connect"), form | {"context": "x"}).context["verdict"].is_connectable


def test_an_uploaded_file_is_read_and_kept_for_the_second_click(log_in, shown, sim):
    upload = SimpleUploadedFile("config", KUBECONFIG.encode())

    log_in("admin").post(
        at("connect"), {"name": "a", "environment": "staging", "budget": "1", "upload": upload, "intent": "test"}
    )

    assert shown["verdict"].is_connectable
    assert shown["form"]["kubeconfig"].value() == KUBECONFIG


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kubeconfig": KUBECONFIG.replace("token: s3cret", "exec: {command: sh}")}, "kubeconfig"),
        ({"kubeconfig": "{" * 500}, "kubeconfig"),
        ({"kubeconfig": ""}, "kubeconfig"),
        ({"kubeconfig": "", "server": "http://x", "token": "t"}, "server"),
        ({"kubeconfig": "", "server": URL, "token": "a b"}, "token"),
        ({"kubeconfig": KUBECONFIG, "server": URL, "token": "t"}, "kubeconfig"),
        ({"name": "Not A Name"}, "name"),
        ({"budget": "0"}, "budget"),
        ({"environment": "moon"}, "environment"),
        ({"upload": SimpleUploadedFile("config", b"\xff\xfe\x00"), "kubeconfig": ""}, "upload"),
        ({"upload": SimpleUploadedFile("config", b"a" * 300_000), "kubeconfig": ""}, "upload"),
    ],
)
def test_an_error_stands_beside_its_field_and_nothing_typed_is_lost(log_in, shown, sim, change, field):
    form = {"name": "atlas", "environment": "staging", "budget": "1", "kubeconfig": KUBECONFIG, "intent": "connect"}

    answer = log_in("admin").post(at("connect"), form | change)

    assert answer.status_code == 422
    assert field in shown["form"].errors
    assert shown["form"]["name"].value() == (form | change)["name"]
    assert not Cluster.objects.exists()


def test_a_name_that_is_refused_costs_no_second_test(log_in, sim):
    form = {"name": "Not a name", "environment": "staging", "budget": "1", "kubeconfig": KUBECONFIG}
    admin = log_in("admin")
    assert 'value="connect"' not in admin.get(at("connect")).content.decode()

    refused = admin.post(at("connect"), form | {"intent": "connect"}).content.decode()

    assert 'aria-invalid="true"' in refused
    assert 'value="connect"' in refused


def test_a_cluster_that_was_just_connected_is_not_said_to_be_lost(log_in):
    page = log_in("admin").get(at("cluster", ClusterFactory(reach="never").pk)).content.decode()
    assert "being read for the first time" in page
    assert "Its nodes are unknown" not in page


def test_what_the_cluster_lacks_is_said_beside_the_credential(log_in, shown, sim):
    sim.faults.outage = True
    form = {"name": "atlas", "environment": "staging", "budget": "1", "kubeconfig": KUBECONFIG, "intent": "connect"}

    log_in("admin").post(at("connect"), form)

    assert "does not answer" in str(shown["form"].errors["kubeconfig"])


def test_a_credential_is_rotated_from_its_page(log_in, shown, sim):
    cluster = ClusterFactory(uid=sim.uid, server=URL)

    log_in("admin").post(at("rotate", cluster.pk), {"server": URL, "token": "fresh", "intent": "connect"})

    assert registry.credentials(Cluster.objects.get()).token == "fresh"


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
