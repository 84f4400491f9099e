"""Counts always sum: for any observations, in any order, and in every view."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.http import QueryDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clusters.models import Cluster, Node, NodeTuning, Pool
from common.clock import now
from compliance.models import Assignment, ComplianceState, NodeExpectation, NodeStanding, SettingState
from compliance.reports import filters, pages, selectors, shares
from compliance.services import expectations, standings
from profiles.models import Profile, Revision
from tests.factories import UserFactory

KEYS = ("vm.swappiness", "vm.max_map_count", "kernel.pid_max")
POOLS = ("a", "b")
DESIRED = {"vm.swappiness": "10", "vm.max_map_count": "65530", "kernel.pid_max": "100"}


@pytest.fixture
def fleet(db: None) -> dict[str, Any]:
    cluster = Cluster.objects.create(
        uid=str(uuid4()), name="atlas", server="https://x", credential=b"-", credential_key="-",
        reach=Cluster.Reach.REACHABLE, observed_at=now(),
    )  # fmt: skip
    profile = Profile.objects.create(name="gpu")
    revisions = [
        Revision.objects.create(
            profile=profile, number=number, digest=f"sha256:{number:064x}", source="",
            content={"settings": [{"key": k, "operator": "=", "value": DESIRED[k]} for k in keys]},
        )
        for number, keys in ((1, KEYS[:1]), (2, KEYS))
    ]  # fmt: skip
    for name in POOLS:
        pool = Pool.objects.create(cluster=cluster, name=name, selector={"matchLabels": {"pool": name}})
        Assignment.objects.create(pool=pool, revision=revisions[1])
    return {"cluster": cluster, "revisions": revisions, "user": UserFactory(roles=["viewer"])}


WHAT = ("expect", "answer", "move", "silence", "speak", "garble", "go", "forget", "join", "assign", "roll", "revert")
event = st.fixed_dictionaries(
    {
        "node": st.integers(0, 5),
        "what": st.sampled_from(
            [
                "expect",
                "answer",
                "move",
                "silence",
                "speak",
                "garble",
                "go",
                "forget",
                "join",
                "assign",
                "roll",
                "revert",
            ]
        ),
        "revision": st.sampled_from([0, 1, None]),
        "values": st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["10", "60", "65530", "100"])),
        "said": st.sampled_from(["Effective", "Drifted", "Contended", "Moved", "NotEffective", "Nonsense"]),
        "pool": st.sampled_from(["a", "b", "none"]),
        "lacks": st.booleans(),
    }
)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(events=st.lists(event, max_size=12))
def test_counts_always_sum_whatever_the_order_of_observations(fleet: dict[str, Any], events: list[Any]) -> None:
    cluster = fleet["cluster"]
    Node.objects.all().delete()
    for pool in Pool.objects.all():
        Assignment.objects.get_or_create(pool=pool, defaults={"revision": fleet["revisions"][1]})
    nodes = [
        Node.objects.create(cluster=cluster, uid=f"u{n}", name=f"n{n}", labels={"pool": POOLS[n % 2]}) for n in range(6)
    ]
    NodeTuning.objects.bulk_create(NodeTuning(node=node, protocol=1, mode="apply") for node in nodes)
    expectations.observe(cluster.pk, [node.pk for node in nodes])
    for item in events:
        _happen(item, nodes[item["node"] % len(nodes)], fleet, nodes)
        _check(fleet)
    _check_settings(fleet["user"], cluster)
    assert standings.renew_all(cluster.pk) == 0  # nothing was missed on the way


def _happen(item: dict[str, Any], node: Node, fleet: dict[str, Any], nodes: list[Node]) -> None:
    if item["what"] in ("join", "assign", "roll", "revert"):
        _happen_to_many(item, fleet, nodes)
        return
    tuning = NodeTuning.objects.filter(node=node)
    if item["what"] == "expect":
        revision = fleet["revisions"][item["revision"]] if item["revision"] is not None else None
        keys = [s["key"] for s in revision.content["settings"]] if revision else []
        wanted = tuple(expectations.Desired(k, "=", DESIRED[k], item["values"].get(k)) for k in keys[item["lacks"] :])
        expectations.expect([expectations.Expected(node.pk, revision, wanted)], rollout_id=uuid4())
    elif item["what"] == "forget":
        expectations.forget({node.pk: list(item["values"])})
    elif item["what"] == "answer":
        reports = [{"key": k, "state": item["said"], "effective": v} for k, v in item["values"].items()]
        tuning.update(status={"settings": reports}, observed=item["values"])
    elif item["what"] == "garble":
        tuning.update(malformed="status: must be an object")
    elif item["what"] == "silence":
        tuning.update(silent_since=now() - timedelta(hours=1))
    elif item["what"] == "speak":
        tuning.update(silent_since=None, malformed="")
    elif item["what"] == "move":
        Node.objects.filter(pk=node.pk).update(labels={"pool": item["pool"]})
    elif item["what"] == "go":
        Node.objects.filter(pk=node.pk).update(gone_at=now())
    expectations.observe(fleet["cluster"].pk, [node.pk])


def _happen_to_many(item: dict[str, Any], fleet: dict[str, Any], nodes: list[Node]) -> None:
    """A node joins, a pool gets another target or none, or a rollout brings all its nodes there, or takes them back."""
    cluster, name = fleet["cluster"], item["pool"] if item["pool"] != "none" else "a"
    revision = fleet["revisions"][item["revision"] or 0]
    if item["what"] == "join":
        new = Node.objects.create(cluster=cluster, uid=f"u{len(nodes)}", name=f"n{len(nodes)}", labels={"pool": name})
        NodeTuning.objects.create(node=new, protocol=1, mode="apply", observed=item["values"])
        nodes.append(new)
        expectations.observe(cluster.pk, [new.pk])
        return
    pool = Pool.objects.get(cluster=cluster, name=name)
    if item["what"] == "revert":
        Assignment.objects.filter(pool=pool).delete()
    else:
        Assignment.objects.update_or_create(pool=pool, defaults={"revision": revision, "set_at": now()})
    standings.renew_pool(pool)
    if item["what"] == "roll":
        members = [n for n in Node.objects.present().filter(cluster=cluster) if n.labels.get("pool") == name]
        wanted = tuple(
            expectations.Desired(s["key"], "=", s["value"], item["values"].get(s["key"]))
            for s in revision.content["settings"]
        )
        expectations.expect([expectations.Expected(n.pk, revision, wanted) for n in members], rollout_id=uuid4())


def _check(fleet: dict[str, Any]) -> None:
    user, present = fleet["user"], Node.objects.present().count()
    shown = selectors.count(Node.objects.all())
    groups = selectors.groups(Node.objects.all())
    assert sum(shown.values()) == present
    assert selectors.counted(groups) == shown
    listed = [node.shown for node in selectors.nodes(user)]  # type: ignore[attr-defined]
    assert {name: listed.count(name) for name in selectors.SHOWN} == shown
    assert (
        selectors.counted(selectors.groups_of([Cluster.objects.get(pk=fleet["cluster"].pk)])[fleet["cluster"].pk])
        == shown
    )
    narrowed = {name: Node.objects.present().filter(selectors.is_shown(name)).count() for name in selectors.SHOWN}
    assert narrowed == shown, "what an index serves is what is counted"

    in_pools = NodeStanding.objects.filter(pool__isnull=False, node__gone_at=None).count()
    columns = selectors.matrix(list(selectors.assignments(user)), groups)
    assert sum(column.nodes for column in columns) == in_pools
    for column in columns:
        here = selectors.counted(g for g in groups if g.pool_id == column.assignment.pool_id)
        for cell in column.cells.values():
            assert cell.total == column.nodes
            assert min(cell.counts.values()) >= 0
            assert cell.counts["unknown"] == here["unknown"]
            assert cell.counts["drifted"] <= here["drifted"]
            assert cell.counts["compliant"] >= here["compliant"] - cell.counts["unassigned"]
    silent = NodeTuning.objects.exclude(silent_since=None).values("node")
    assert not selectors.nodes(user).filter(pk__in=silent, shown="compliant").exists()
    for node in selectors.nodes(user).filter(shown="compliant"):
        assert not SettingState.objects.filter(node=node).exclude(state="compliant").exists()
    page = pages.fleet(user, {})
    assert page["counts"] == shown
    assert sum(row["total"] for row in page["pools"]) == in_pools
    _check_levels(user, shown, in_pools)


def _check_settings(user: Any, cluster: Cluster) -> None:
    """Check that the counts of chips and the API, rolled up or not, equal the rows listed under each filter."""
    for query in ("", "name=n1", f"pool={Pool.objects.latest('pk').pk}", f"cluster={cluster.name}",
                  "key=vm.swappiness", "since=2020-01-01T00:00:00Z"):  # fmt: skip
        node_shares = shares.by_node(user, QueryDict(query))
        counts = shares.counts(node_shares)
        for state in ComplianceState.values:
            rows = filters.SettingFilter(QueryDict(f"{query}&state={state}"), queryset=selectors.settings_of(user)).qs
            assert rows.count() == counts[state], (query, state)
        rows = filters.SettingFilter(QueryDict(query), queryset=selectors.settings_of(user)).qs
        every = shares.WorstSettings(rows, node_shares)
        assert [row.shown for row in every[:]] == [s for s in shares.WORST_FIRST for _ in range(counts[s])]


def _check_levels(user: Any, shown: dict[str, int], in_pools: int) -> None:
    """Check that the summary for programs sums at every level: the fleet, each cluster, each pool."""
    summary = pages.summary(user, {})
    assert summary["counts"] == shown
    for name in selectors.SHOWN:
        assert sum(row["counts"][name] for row in summary["clusters"]) == shown[name]
    assert sum(sum(row["counts"].values()) for row in summary["pools"]) == in_pools
    for row in summary["pools"]:
        held = selectors.nodes(user).filter(standing__pool=row["pool"])
        assert sum(row["counts"].values()) == held.count()
        for name in selectors.SHOWN:
            assert row["counts"][name] == held.filter(shown=name).count()
        assert row["joining"] <= row["counts"]["pending"] + row["counts"]["unknown"]


def test_a_fleet_that_cannot_be_reached_is_unknown_and_still_sums(fleet: dict[str, Any]) -> None:
    node = Node.objects.create(cluster=fleet["cluster"], uid="u", name="n", labels={"pool": "a"})
    NodeExpectation.objects.create(node=node, revision=fleet["revisions"][1])
    NodeTuning.objects.create(node=node, protocol=1)
    standings.renew([node.pk])
    assert selectors.count(Node.objects.all())["compliant"] == 1
    Cluster.objects.update(observed_at=now() - timedelta(minutes=3))
    assert selectors.count(Node.objects.all()) == {
        "compliant": 0, "drifted": 0, "pending": 0, "unknown": 1, "unassigned": 0,
    }  # fmt: skip
    assert pages.matrix(fleet["user"], {})["settings"][0]["cells"][0]["counts"]["unknown"] == 1
