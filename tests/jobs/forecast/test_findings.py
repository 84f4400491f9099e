"""Laws of what a person must read before a drain: blocks, warnings, and pods that are in no one's way."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.forecast.findings import SHOWN, PlanFinding, drain_findings, left_out_findings, ranked, setting_findings
from jobs.forecast.strategy import Strategy

N1 = frozenset({"n1"})


def pod(name: str = "p", node: str = "n1", owner: str = "ReplicaSet", **fields: Any) -> dict[str, Any]:
    raw: dict[str, Any] = {
        "metadata": {"namespace": "ml", "name": name, "labels": {"app": "train"}},
        "spec": {"nodeName": node},
        "status": {"phase": "Running"},
    }
    if owner:
        raw["metadata"]["ownerReferences"] = [{"kind": owner, "name": "o", "controller": True}]
    for part, values in fields.items():
        raw[part] |= values
    return raw


def budget(allowed: int | None = 0, namespace: str = "ml", selector: Any = ...) -> dict[str, Any]:
    chosen = {"matchLabels": {"app": "train"}} if selector is ... else selector
    status = {} if allowed is None else {"disruptionsAllowed": allowed}
    return {"metadata": {"namespace": namespace, "name": "keep"}, "spec": {"selector": chosen}, "status": status}


def about(pods: list[Any], budgets: list[Any] | None = None, drained: frozenset[str] = N1, **strategy: Any) -> Any:
    findings, evicted = drain_findings(pods, budgets or [], drained, Strategy(**strategy))
    return {f.code: f for f in findings}, evicted


# ── PodDisruptionBudgets ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "selector", [{"matchLabels": {"app": "train"}}, {}, {"matchExpressions": [{"key": "app", "operator": "Exists"}]}]
)
@pytest.mark.parametrize("allowed", [0, None])
def test_a_budget_that_allows_nothing_is_named_with_a_pod_and_its_node(selector, allowed):
    by_code, _ = about([pod("train-0")], [budget(allowed, selector=selector)], drain_timeout_seconds=600)

    assert by_code["pdb"].severity == "warn"
    assert "ml/keep" in by_code["pdb"].title
    assert "ml/train-0 on n1" in by_code["pdb"].detail
    assert "10 min" in by_code["pdb"].detail
    assert by_code["pdb"].nodes == ["n1"]


@pytest.mark.parametrize(
    "other",
    [budget(1), budget(namespace="ops"), budget(selector=None), budget(selector={"matchLabels": {"app": "web"}})],
    ids=["allows-one", "another-namespace", "selects-nothing", "selects-others"],
)
def test_a_budget_that_does_not_stand_in_the_way_is_not_mentioned(other):
    assert "pdb" not in about([pod()], [other])[0]


def test_each_budget_is_one_finding_over_all_its_nodes():
    findings, _ = drain_findings(
        [pod("a", "n1"), pod("b", "n2"), pod("c", "n2")], [budget()], frozenset({"n1", "n2"}), Strategy()
    )

    assert [(f.code, f.nodes) for f in findings] == [("pdb", ["n1", "n2"])]


# ── consents ──────────────────────────────────────────────────────────────────────────────────────────────────────────

EMPTY_DIR = {"spec": {"nodeName": "n1", "volumes": [{"name": "tmp", "emptyDir": {}}]}}


@pytest.mark.parametrize(
    ("raw", "code", "consent"),
    [
        (pod("lonely", owner=""), "bare-pods", "delete_unmanaged_pods"),
        (pod("lonely", **EMPTY_DIR), "empty-dir", "delete_empty_dir_data"),
    ],
)
def test_what_would_be_lost_blocks_until_the_plan_consents_and_warns_then(raw, code, consent):
    blocked = about([raw])[0][code]
    assert blocked.severity == "block"
    assert consent in blocked.detail
    assert "ml/lonely on n1" in blocked.detail

    consented = about([raw], **{consent: True})[0][code]
    assert consented.severity == "warn"
    assert "Consented" in consented.detail


def test_one_consent_does_not_stand_for_the_other():
    raw = pod(owner="", **EMPTY_DIR)
    by_code, _ = about([raw], delete_unmanaged_pods=True)
    assert (by_code["bare-pods"].severity, by_code["empty-dir"].severity) == ("warn", "block")


def test_an_owner_that_does_not_control_recreates_nothing():
    raw = pod()
    raw["metadata"]["ownerReferences"][0]["controller"] = False
    assert "bare-pods" in about([raw])[0]


# ── grace ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("grace", "warns"), [(600, True), (599, False), (None, False), (0, False)])
def test_a_pod_that_may_take_longer_to_stop_than_the_drain_is_given_warns(grace, warns):
    raw = pod(spec={"nodeName": "n1", "terminationGracePeriodSeconds": grace})
    assert ("long-grace" in about([raw], drain_timeout_seconds=600)[0]) is warns


def test_a_pod_without_a_word_about_it_stops_in_thirty_seconds_and_one_that_says_none_at_once():
    assert "long-grace" in about([pod()], drain_timeout_seconds=30)[0]
    at_once = pod(spec={"nodeName": "n1", "terminationGracePeriodSeconds": 0})
    assert "long-grace" not in about([at_once], drain_timeout_seconds=30)[0]


# ── who is not in the way ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "raw",
    [
        pod(owner="DaemonSet", **EMPTY_DIR),
        pod(owner="", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}),
        pod(owner="", status={"phase": "Succeeded"}),
        pod(owner="", status={"phase": "Failed"}),
        pod(node="n2", owner=""),
        pod(node="", owner=""),
        {},
    ],
    ids=["daemon", "mirror", "succeeded", "failed", "another-node", "unscheduled", "empty"],
)
def test_pods_that_a_drain_leaves_alone_are_not_counted(raw):
    assert about([raw], [budget()]) == ({}, 0)


def test_every_pod_that_must_go_is_counted_once():
    assert about([pod("a"), pod("b", owner=""), pod("c", owner="DaemonSet")], [budget()])[1] == 2


# ── how they are told ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_blocks_comes_first_and_then_what_concerns_most_nodes():
    rows = ranked([
        PlanFinding("note", "n", "", "", ["a"] * 9), PlanFinding("warn", "few", "", "", ["a"]),
        PlanFinding("block", "b", "", "", []), PlanFinding("warn", "many", "", "", ["a", "b"]),
    ])  # fmt: skip
    assert [row["code"] for row in rows] == ["b", "many", "few", "n"]


def test_a_finding_over_a_thousand_nodes_lists_a_few_and_counts_all():
    row = PlanFinding("warn", "x", "t", "d", [f"n{i:04}" for i in range(1000)]).to_json()
    assert (len(row["nodes"]), row["count"]) == (SHOWN, 1000)


def test_nodes_left_out_are_grouped_by_why():
    findings = left_out_findings({"They are not Ready.": ["a", "b"], "No agent has answered there.": ["c"]})
    assert [(f.title, f.nodes) for f in findings] == [("2 nodes left out", ["a", "b"]), ("1 node left out", ["c"])]
    assert findings[0].detail.startswith("They are not Ready.")


def test_a_key_that_lacks_warns_and_one_that_is_higher_is_noted():
    findings = setting_findings({"vm.swappiness": ["a"]}, {"fs.aio-max-nr": ["b"]})
    assert [(f.severity, f.code, f.nodes) for f in findings] == [
        ("warn", "key-missing", ["a"]), ("note", "already-higher", ["b"]),
    ]  # fmt: skip
