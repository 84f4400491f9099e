"""The judge of audit logs, on logs written by hand: a lawful one passes, and each breach is named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from contract import names
from tests.full.harness.laws import Judge

US = names.CONTROLLER_USERNAME
OWNER = "here/step-1"
Events = list[dict[str, Any]]


def event(second: int, user: str, verb: str, resource: str, name: str, body: Any = None, **more: Any) -> dict[str, Any]:
    at = f"2026-11-21T12:00:{second:02d}.000000Z"
    return {
        "stage": "ResponseComplete",
        "stageTimestamp": at,
        "requestReceivedTimestamp": at,
        "verb": verb,
        "user": {"username": user, "extra": more.pop("extra", {})},
        "objectRef": {"resource": resource.partition("/")[0], "subresource": resource.partition("/")[2], "name": name},
        "responseStatus": {"code": more.pop("code", 200)},
        "requestObject": body,
    }


def cordon(second: int, node: str = "n1", owner: str = OWNER) -> dict[str, Any]:
    body = {
        "metadata": {"uid": f"uid-{node}", "annotations": {names.CORDONED_BY: owner}},
        "spec": {"unschedulable": True},
    }
    return event(second, US, "patch", "nodes", node, body)


def uncordon(second: int, node: str = "n1") -> dict[str, Any]:
    meta = {"uid": f"uid-{node}", "resourceVersion": "7", "annotations": {names.CORDONED_BY: None}}
    return event(second, US, "patch", "nodes", node, {"metadata": meta, "spec": {"unschedulable": None}})


def spec(second: int, node: str = "n1", **fields: Any) -> dict[str, Any]:
    wanted = {
        "nodeUID": f"uid-{node}",
        "mode": "apply",
        "rollout": "rollout-1",
        "step": "step-1",
        "attempt": 1,
        "settings": [{"key": "vm.swappiness", "operator": "=", "value": "10", "expect": "60"}],
        **fields,
    }
    return event(second, US, "patch", "nodetunings", node, {"spec": wanted})


def hand_over(second: int) -> dict[str, Any]:
    return event(
        second, US, "patch", "nodes", "n1", {"metadata": {"uid": "uid-n1", "annotations": {names.CORDONED_BY: None}}}
    )


def by_eve(second: int, *, cordoned: bool) -> dict[str, Any]:
    return event(second, "eve", "patch", "nodes", "n1", {"spec": {"unschedulable": cordoned}})


GRANT = {"id": "step-1.1", "action": "kubelet", "bootID": "boot-1"}


def lawful() -> Events:
    return [
        cordon(10),
        spec(11),
        spec(12, restart=GRANT),
        event(13, US, "create", "pods/eviction", "p1", {"deleteOptions": {"preconditions": {"uid": "uid-p1"}}}),
        event(14, names.AGENT_USERNAME, "patch", "nodetunings/status", "n1", extra=bound_to("n1")),
        uncordon(15),
    ]


def bound_to(node: str) -> dict[str, list[str]]:
    return {"authentication.kubernetes.io/node-name": [node]}


def judged(events: Events, **step: Any) -> list[str]:
    judge = Judge("here")
    steps = [
        {"id": f"step-{n}", "node_name": f"n{n}", "node_uid": f"uid-n{n}", "worst_class": "kubelet-restart",
         "status": "succeeded", "is_disrupted": True, **(step if n == 1 else {})}
        for n in (1, 2)
    ]  # fmt: skip
    verdict = {"verdict": "approve", "digest": "sha256:1", "at": "2026-11-21T12:00:05Z"}
    judge.expect(
        rollout={"id": "rollout-1", "name": "R-1"},
        plan={
            "digest": "sha256:1",
            "revision": "sha256:r",
            "verdicts": [verdict],
            "approval": {"needed": 1},
            "summary": {"budget": 1},
        },
        nodes=[{"name": "n1", "is_unavailable": False}],
        steps=steps,
    )
    return judge.hear(events).broken


def test_a_lawful_log_breaks_nothing():
    assert judged(lawful()) == []


def by_helm(second: int, place: str, who: str = names.HELM_USERNAME) -> dict[str, Any]:
    return event(second, who, "patch", place, "x", {}) | {"userAgent": "Helm/3.17.3"}


BREACHES: dict[str, tuple[Callable[[Events], Any], str]] = {
    "helm before the approval": (lambda e: e.insert(0, by_helm(3, "configmaps")), "before any component was approved"),
    "helm as the controller": (lambda e: e.append(by_helm(60, "configmaps", US)), "with the controller's identity"),
    "two out": (lambda e: e.insert(1, cordon(10, "n2", "here/step-2")), "the budget is 1 (law 1)"),
    "a foreign cordon counts": (
        lambda e: e.insert(0, event(9, "eve", "patch", "nodes", "n3", {"spec": {"unschedulable": True}})),
        "2 nodes out of service",
    ),
    "before the approval": (lambda e: e.insert(0, spec(3)), "before R-1 was approved (law 2)"),
    "cordoned too early": (lambda e: e.insert(0, cordon(3)), "cordoned n1 before R-1 was approved (law 2)"),
    "an unknown rollout": (lambda e: e.insert(2, spec(11, rollout="rollout-9")), "no approved rollout: rollout-9"),
    "another node's step": (lambda e: e.insert(2, spec(11, "n2")), "spec of n2 is for n1"),
    "a node of another UID": (lambda e: e.insert(2, spec(11, nodeUID="uid-old")), "is for n1 uid-old (law 9)"),
    "no cordon": (lambda e: e.pop(0), "disturbs n1, which nobody has cordoned (law 1)"),
    "kept": (lambda e: e.pop(), "n1 is still cordoned, its step is succeeded (law 5)"),
    "a cordon taken off twice": (lambda e: e.append(uncordon(16)), "which it had not cordoned (law 5)"),
    "another party's cordon taken off": (
        lambda e: e.__setitem__(slice(5, 5), [by_eve(14, cordoned=False), by_eve(14, cordoned=True)]),
        "whose cordon is eve's (law 5)",
    ),
    "another party's cordon given away": (lambda e: e.append(hand_over(16)), "which it had not cordoned (law 5)"),
    "another party's cordon taken over": (
        lambda e: e.insert(0, event(9, "eve", "patch", "nodes", "n1", {"spec": {"unschedulable": True}})),
        "took the cordon of n1 from eve (law 5)",
    ),
    "taken off unseen": (
        lambda e: e[-1]["requestObject"]["metadata"].pop("resourceVersion"),
        "without looking at the version",
    ),
    "a node without its UID": (
        lambda e: e[0]["requestObject"]["metadata"].pop("uid"),
        "a node was written without its UID (law 9)",
    ),
    "a pod without its UID": (lambda e: e[3].update(requestObject={}), "which pod by its UID (law 9)"),
    "a node created": (lambda e: e.append(event(16, US, "create", "nodes", "n1")), "nothing that Setpoint does"),
    "another account's token": (
        lambda e: e.append(event(16, US, "create", "serviceaccounts/token", names.HELM_SERVICE_ACCOUNT)),
        "made a token of setpoint-helm",
    ),
    "a pod deleted": (lambda e: e.append(event(16, US, "delete", "pods", "p1")), "nothing that Setpoint does"),
    "something else asked": (lambda e: e.insert(2, spec(11, settings=[])), "something else within attempt 1 (law 6)"),
    "two restarts": (
        lambda e: e.insert(3, spec(12, restart={**GRANT, "bootID": "boot-2"})),
        "two restarts within attempt 1 (law 6)",
    ),
    "back to an old attempt": (lambda e: e.insert(1, spec(10, attempt=2)), "went back to attempt 1"),
    "changes in mode observe": (
        lambda e: e.insert(2, spec(11, mode="observe", step="step-9")),
        "in mode observe (law 2)",
    ),
    "a grant in mode observe": (
        lambda e: e.insert(3, spec(12, mode="observe", restart=GRANT)),
        "in mode observe (law 2)",
    ),
    "a spec by a person": (
        lambda e: e.append(event(16, "eve", "patch", "nodetunings", "n1", {"spec": {}})),
        "eve: eve wrote the spec of n1",
    ),
    "another agent's object": (
        lambda e: e.append(event(16, names.AGENT_USERNAME, "patch", "nodetunings/status", "n1", extra=bound_to("n2"))),
        "the agent of n2 wrote n1",
    ),
    "an agent's spec": (
        lambda e: e.append(event(16, names.AGENT_USERNAME, "patch", "nodetunings", "n1", extra=bound_to("n1"))),
        "an agent may not patch nodetunings",
    ),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_each_breach_is_named(breach: str):
    events = copy.deepcopy(lawful())
    change, words = BREACHES[breach]
    change(events)

    assert any(words in sentence for sentence in judged(events)), judged(events)


def test_a_token_of_its_own_that_is_renewed_is_no_breach():
    renewal = event(16, US, "create", "serviceaccounts/token", names.CONTROLLER_SERVICE_ACCOUNT)

    assert judged([*lawful(), renewal]) == []


def test_a_grant_written_again_after_a_lost_answer_is_one_grant_although_it_ends_later():
    events = lawful()
    at = next(
        i for i, audit_event in enumerate(events) if (audit_event["requestObject"].get("spec") or {}).get("restart")
    )
    again = [spec(12, restart=GRANT | {"expires": f"2026-11-21T12:00:0{second}Z"}) for second in (0, 3)]
    assert judged([*events[:at], *again, *events[at + 1 :]]) == []


def test_a_refused_write_is_no_breach():
    events = [*lawful(), {**spec(16, "n2", step="step-9"), "responseStatus": {"code": 403}}]
    assert judged(events) == []


@pytest.mark.parametrize(
    ("status", "is_disrupted", "broken"), [("failed", True, 0), ("held", True, 0), ("failed", False, 1)]
)
def test_a_node_may_stay_cordoned_only_after_a_failed_disruption(status: str, is_disrupted: bool, broken: int):
    assert len(judged(lawful()[:-1], status=status, is_disrupted=is_disrupted)) == broken


def test_a_json_patch_is_read_as_well():
    label = [{"op": "add", "path": "/metadata/labels/feature.node.kubernetes.io~1cpu", "value": "x"}]
    taken = [{"op": "replace", "path": "/spec/unschedulable", "value": False}]
    wanted = [{"op": "replace", "path": "/spec/settings", "value": []}]
    assert judged([event(9, "nfd", "patch", "nodes", "n1", label), *lawful()]) == []
    assert len(judged([cordon(10)])) == 1
    assert judged([cordon(10), event(11, "eve", "patch", "nodes", "n1", taken)]) == []
    assert "eve wrote the spec of n1" in judged([event(9, "eve", "patch", "nodetunings", "n1", wanted)])[0]


def test_a_cordon_that_a_person_took_off_or_took_over_is_no_breach():
    assert judged([*lawful()[:-1], by_eve(14, cordoned=False), uncordon(15)]) == []
    assert judged([*lawful()[:-1], hand_over(15)]) == []


@pytest.mark.parametrize(
    ("takes", "second", "version", "words"),
    [
        (1, 6, "7", ""),
        (0, 6, "7", "taken that no approved plan names (law 2)"),
        (1, 3, "7", "taken that no approved plan names (law 2)"),
        (1, 6, "", "taken that no approved plan names (law 2)"),
    ],
)
def test_a_forced_write_is_lawful_only_for_an_approved_plan_that_takes_and_onto_a_version(
    takes: int, second: int, version: str, words: str
):
    judge = Judge("here")
    judge.expect(
        rollout={"id": "rollout-1", "name": "R-1"},
        plan={
            "digest": "sha256:1",
            "revision": "sha256:r",
            "verdicts": [{"verdict": "approve", "digest": "sha256:1", "at": "2026-11-21T12:00:05Z"}],
            "approval": {"needed": 1},
            "summary": {"budget": 1, "takes": takes},
        },
        nodes=[],
        steps=[{"id": "step-1", "kind": "policies"}],
    )
    body = {"metadata": {"resourceVersion": version}}
    write = event(second, US, "patch", "resourcequotas", "gpus", body) | {"requestURI": "/x?force=true"}
    assert [words in sentence for sentence in judge.hear([write]).broken[-1:]] == ([True] if words else [])


def test_too_few_approvals_are_a_breach():
    judge = Judge("here")
    judge.expect(
        rollout={"id": "rollout-1", "name": "R-1"},
        plan={"digest": "sha256:1", "verdicts": [], "approval": {"needed": 2}},
        nodes=[],
        steps=[],
    )
    assert judge.broken == ["R-1 was started with 0 of 2 approvals"]
