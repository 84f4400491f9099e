"""Messages after a pressed button: each verb says what happened, once, where the focus is put."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from common.clock import now
from jobs import tasks
from jobs.approvals import verdicts
from jobs.models import Freeze, Plan, Rollout
from jobs.rollouts import freezes, rollout_actions
from tests.jobs.conftest import World
from tests.jobs.pages import FORM, browser


@pytest.fixture(autouse=True)
def asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "wake", lambda pk: None)


def press(user: Any, path: str, **typed: Any) -> str:
    """Return the message on top of the next page; the keyboard's way begins there."""
    answer = browser(user).post(path, typed, follow=True)
    assert answer.status_code == 200
    messages = [str(message) for message in answer.context["messages"]]
    assert len(messages) == 1, messages
    html = answer.content.decode()
    assert html.count('tabindex="-1" autofocus') == 1
    return messages[0]


def judge(plan: Plan, verb: str) -> dict[str, str]:
    return {"digest": plan.digest, "verdict": verb, "comment": "Why."}


def test_each_step_of_an_approval_is_told(world: World) -> None:
    made = press(world.operator, "/plans/new/", **FORM, pool=world.pool.pk, revision=world.revision().pk, message="Why")
    assert made == "P-1 was created. Nothing is written yet: read it, then request its approval."
    plan, path = Plan.objects.get(), "/plans/P-1"

    assert press(world.operator, f"{path}/request/", comment="Why") == (
        "Approval of P-1 is requested. 1 approver must still agree."
    )
    message = press(world.approver, f"{path}/verdict/", **judge(plan, "request-changes"))
    assert message == f"You requested changes to P-1. It is back with {world.operator}."
    press(world.operator, f"{path}/request/", comment="It cannot be smaller.")
    assert "no more approvals are needed" in press(world.approver, f"{path}/verdict/", **judge(plan, "approve"))
    assert press(world.approver, f"{path}/retract/") == (
        "You withdrew your approval of P-1. 1 approver must still agree."
    )
    assert press(world.approver, f"{path}/verdict/", **judge(plan, "reject")) == "You rejected P-1: it has ended."
    other = world.plan()
    assert press(world.operator, f"/plans/{other}/withdraw/") == f"{other} is withdrawn: it has ended."


def test_a_start_says_when(world: World) -> None:
    plan = world.approved()
    assert press(world.operator, f"/plans/{plan}/start/") == f"You started R-1, which carries {plan} out."
    rollout_actions.abort(Rollout.objects.get(), by=world.operator)
    world.run(Rollout.objects.get())
    later = world.approved(world.plan(world.revision({"vm.swappiness": "20"})))
    at = now() + timedelta(hours=5)
    message = press(world.operator, f"/plans/{later}/start/", at=f"{at:%Y-%m-%dT%H:%M}")
    assert message == f"R-2 carries {later} out from {at:%Y-%m-%d %H:%M} UTC on."


def test_each_verb_about_a_rollout_and_about_one_node_is_told(world: World) -> None:
    rollout = world.started(world.plan(canary=1, batch="1", order="name"))
    world.until(rollout, "succeeded")
    path = "/rollouts/R-1"
    third = rollout.steps.get(node_name="n3")

    assert press(world.operator, f"{path}/pause/") == "You paused R-1. In-progress nodes finish; no other one starts."
    assert press(world.operator, f"{path}/resume/") == "You resumed R-1."
    assert press(world.operator, f"{path}/skip/", step=third.pk) == "You skipped n3 of R-1: it stays as it is."
    assert press(world.operator, f"{path}/abort/", in_flight="revert", confirmed="yes") == (
        "You aborted R-1. In-progress nodes are reverted."
    )
    world.run(rollout)
    message = press(world.operator, f"{path}/revert/", confirmed="yes")
    assert message == "You requested the revert of each node that R-1 changed."


def test_a_second_try_is_told_of_the_node_it_is_about(world: World) -> None:
    world.sim.faults.add("refuse", verb="patch", resource="nodetunings", name="n1")
    rollout = world.run(world.started(world.plan(canary=1, order="name")))
    assert rollout.status == "stopped"
    failed = rollout.steps.get(node_name="n1")
    message = press(world.operator, "/rollouts/R-1/retry-failed/", step=failed.pk, back="step")
    assert message == "You requested another attempt for n1 of R-1."


def test_a_freeze_and_its_end_are_told_and_that_another_one_stands(world: World) -> None:
    freezes.freeze(cluster=None, reason="Year end", by=world.admin)
    message = press(world.operator, "/freezes/", cluster=world.cluster.pk, reason="Launch", until="")
    assert message == "atlas is frozen until it is lifted. In-progress nodes finish."
    own = Freeze.objects.get(cluster=world.cluster)
    message = press(world.operator, f"/freezes/{own.pk}/lift/")
    assert message == "The freeze of atlas is lifted; another one is still active."


def test_a_refusal_is_told_in_the_same_place(world: World) -> None:
    rollout = world.started()
    world.run(rollout)
    assert press(world.operator, "/rollouts/R-1/pause/").startswith("Not possible")
    assert verdicts.has_approved(rollout.plan, world.approver)
