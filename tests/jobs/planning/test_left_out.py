"""Nodes that a plan leaves out, with the reason."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from clusters.models import Node, NodeTuning
from common.clock import now
from tests.jobs.planning.test_planning import codes, left_out, tuning


def _degraded(reason: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": "Degraded", "status": "True", "reason": reason, "message": "no disk"}]}}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"protocol": 0}, "No agent has answered"),
        (
            {"protocol": 99, "agent_version": "9.0"},
            "Agent 9.0 and this control plane are too far apart: upgrade the control plane",
        ),
        ({"malformed": "status.settings: not a list"}, "cannot be read: status.settings: not a list"),
        ({"silent_since": now() - timedelta(days=999)}, "silent"),
        (_degraded("JournalCorrupt"), "refuses to work: no disk"),
        (_degraded("WrongNode"), "refuses to work"),
    ],
)
def test_a_node_whose_agent_cannot_be_trusted_is_left_out_with_why(world, fields, says):
    tuning(world, "n2", **fields)

    plan = world.plan()

    assert says in left_out(plan).get("n2", "")
    assert plan.summary["left_out"] == 1
    assert plan.summary["nodes"] == 2
    assert codes(plan)["left-out"] == "warn"


@pytest.mark.parametrize("fields", [_degraded("Contended"), {"silent_since": None}])
def test_a_node_that_works_with_a_complaint_is_planned(world, fields):
    tuning(world, "n2", **fields)
    assert left_out(world.plan()) == {}


def test_a_node_without_an_agents_object_is_left_out(world):
    NodeTuning.objects.filter(node__name="n3").delete()
    assert left_out(world.plan()) == {"n3": "No agent has answered there."}


@pytest.mark.parametrize(("fields", "says"), [({"is_ready": False}, "not Ready"), ({"is_cordoned": True}, "cordoned")])
def test_a_node_out_of_service_is_left_out_unless_the_strategy_takes_it(world, fields, says):
    Node.objects.filter(name="n1").update(**fields)

    assert says in left_out(world.plan())["n1"]
    taken = world.plan(include_unavailable=True)
    assert left_out(taken) == {}
    assert taken.nodes.get(name="n1").is_unavailable


def test_a_reason_of_any_length_is_kept_short(world):
    tuning(world, "n2", malformed="x" * 300)
    assert len(left_out(world.plan())["n2"]) <= 300


def test_a_plan_that_can_change_no_node_is_kept_with_its_reason_but_blocked(world):
    Node.objects.update(is_ready=False)

    plan = world.plan()

    assert codes(plan)["nothing-possible"] == "block"
    assert plan.is_blocked
    assert len(left_out(plan)) == 3
