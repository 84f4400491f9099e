from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts.models import RoleBinding, User
from audit.models import Record
from clusters import objects
from clusters.inventory import store
from clusters.models import Node, Pool
from clusters.services import label_selectors, lifecycle
from common import hooks
from common.errors import Invalid, NotAllowed, Stale, WrongState
from tests.clusters.factories import ClusterFactory, PoolFactory, raw_node

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator():
    user = User.objects.create_user("olga@example.com")
    RoleBinding.objects.create(user=user, role="operator", scope="*")
    return user


@pytest.fixture
def cluster():
    cluster = ClusterFactory()
    labels = [
        {"pool": "train", "zone": "a"},
        {"pool": "train", "zone": "b"},
        {"pool": "dev", "nvidia.com/gpu.product": "H100"},
    ]
    raws = [raw_node(f"n{i}", labels=own) for i, own in enumerate(labels)]
    store.observe_nodes(cluster, raws, complete=True)
    return cluster


def names(queryset):
    return sorted(queryset.values_list("name", flat=True))


def test_a_pool_matches_present_nodes_of_its_own_cluster_only(cluster):
    elsewhere = ClusterFactory()
    store.observe_nodes(elsewhere, [raw_node("x", labels={"pool": "train"})], complete=True)
    pool = PoolFactory(cluster=cluster, selector={"matchLabels": {"pool": "train"}})
    assert names(lifecycle.matching(pool)) == ["n0", "n1"]

    store.observe_nodes(cluster, [], complete=False, deleted=[raw_node("n0")])

    assert names(lifecycle.matching(pool)) == ["n1"]


KEYS = st.sampled_from(["pool", "nvidia.com/gpu.product", "a__b", "7", "x.y/z-1"])
VALUES = st.sampled_from(["", "a", "b", "true", "60", "A_b.c"])
expressions = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        KEYS,
        st.sampled_from(["In", "NotIn"]),
        st.lists(VALUES, min_size=1, max_size=3),
    ),
    st.builds(lambda k, o: {"key": k, "operator": o}, KEYS, st.sampled_from(["Exists", "DoesNotExist"])),
)
label_maps = st.dictionaries(KEYS, VALUES, max_size=4)
some_selectors = st.builds(
    lambda labels, items: {"matchLabels": labels, "matchExpressions": items},
    label_maps,
    st.lists(expressions, max_size=3),
).filter(lambda s: s["matchLabels"] or s["matchExpressions"])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(selector=some_selectors, labels=st.lists(label_maps, min_size=1, max_size=5))
def test_the_database_answers_what_a_selector_means(selector, labels):
    Node.objects.all().delete()
    cluster = ClusterFactory()
    for number, own in enumerate(labels):
        Node.objects.create(cluster=cluster, uid=f"u{number}", name=f"n{number}", labels=own)

    selected = names(label_selectors.nodes(selector, Node.objects.all()))

    assert selected == [f"n{i}" for i, own in enumerate(labels) if objects.selects(selector, own)]
    again = label_selectors.parse(label_selectors.text(label_selectors.check(selector)))
    assert names(label_selectors.nodes(again, Node.objects.all())) == selected


@pytest.mark.parametrize(
    ("selector", "named"),
    [
        ({}, "empty"),
        ({"matchLabels": {}}, "empty"),
        ({"matchLabels": {}, "matchExpressions": []}, "empty"),
        ("", "empty"),
        (" , ", "cannot be read"),
        (None, "must be an object"),
        ([], "must be an object"),
        ({"labels": {"a": "b"}}, "selector.labels"),
        ({"matchLabels": ["pool"]}, "matchLabels"),
        ({"matchLabels": {"pool": 7}}, "matchLabels[pool]"),
        ({"matchLabels": {"pool": "a b"}}, "not a label value"),
        ({"matchLabels": {"../../etc": "x"}}, "not a label name"),
        ({"matchLabels": {"a\nb": "x"}}, "not a label name"),
        ({"matchLabels": {"x" * 64: "x"}}, "not a label name"),
        ({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}, "must be one of In"),
        ({"matchExpressions": [{"key": "a", "operator": "In"}]}, "must not be empty for In"),
        ({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["1"]}]}, "must be empty"),
        ({"matchExpressions": ["a"]}, "matchExpressions[0]"),
        ({"matchLabels": {f"l{i}": "v" for i in range(33)}}, "more than 32"),
        ("pool=a,pool=b", "two values"),
        ("pool in a", "cannot be read"),
    ],
)
def test_a_selector_that_cannot_be_is_refused_by_name(cluster, operator, selector, named):
    with pytest.raises(Invalid) as caught:
        lifecycle.create_pool(cluster, name="p", selector=selector, by=operator)

    assert named in str(caught.value)
    assert caught.value.fields
    assert not Pool.objects.exists()


def test_kubectls_form_is_understood(cluster, operator):
    pool = lifecycle.create_pool(cluster, name="p", selector="pool=train, zone in (a,c), !old, zone", by=operator)

    assert names(lifecycle.matching(pool)) == ["n0"]


@pytest.mark.parametrize(
    ("selector", "count", "warning"),
    [
        ("pool=train", 2, ""),
        ("pool", 3, "This selects all 3 nodes."),
        ("pool=gone", 0, "No node has these labels now."),
    ],
)
def test_a_preview_counts_and_warns(cluster, selector, count, warning):
    seen = lifecycle.preview(cluster, selector)

    assert (seen.count, seen.total, seen.warning) == (count, 3, warning)


def test_a_pool_needs_an_operator_a_free_name_and_is_on_record(cluster, operator):
    viewer = User.objects.create_user("vera@example.com")
    with pytest.raises(NotAllowed, match="operator"):
        lifecycle.create_pool(cluster, name="p", selector="pool", by=viewer)
    lifecycle.create_pool(cluster, name="p", selector="pool", by=operator)
    with pytest.raises(Invalid, match="has a pool p already"):
        lifecycle.create_pool(cluster, name="p", selector="pool", by=operator)
    with pytest.raises(Invalid, match="usable name"):
        lifecycle.create_pool(cluster, name="Not a name", selector="pool", by=operator)

    assert [r.action for r in Record.objects.all()] == ["pool.create"]


def test_a_change_based_on_an_older_version_is_refused(cluster, operator):
    pool = PoolFactory(cluster=cluster)
    lifecycle.update_pool(pool, by=operator, version=1, selector="pool=dev")

    with pytest.raises(Stale):
        lifecycle.update_pool(Pool.objects.get(), by=operator, version=1, selector="pool=train")

    pool.refresh_from_db()
    assert (pool.version, pool.selector) == (2, {"matchLabels": {"pool": "dev"}})


def test_a_pool_in_use_keeps_its_selector_and_stays(cluster, operator):
    pool = PoolFactory(cluster=cluster)
    hooks.pool_blockers.subscribe(lambda pk: ["R-7 is running"] if pk == pool.pk else [])

    with pytest.raises(WrongState, match="R-7 is running"):
        lifecycle.update_pool(pool, by=operator, selector="pool=dev")
    with pytest.raises(WrongState, match="R-7 is running"):
        lifecycle.delete_pool(pool, by=operator)
    lifecycle.update_pool(pool, by=operator, description="renamed is fine")

    assert Pool.objects.get().description == "renamed is fine"


def test_an_unheard_objection_counts_as_one(cluster, operator):
    pool = PoolFactory(cluster=cluster)

    def broken(_):
        raise RuntimeError("database away")

    hooks.pool_blockers.subscribe(broken)

    with pytest.raises(RuntimeError):
        lifecycle.delete_pool(pool, by=operator)
    assert Pool.objects.exists()


def test_an_unused_pool_is_deleted(cluster, operator):
    lifecycle.delete_pool(PoolFactory(cluster=cluster), by=operator)

    assert not Pool.objects.exists()
    assert Record.objects.get().action == "pool.delete"
