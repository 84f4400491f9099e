"""Two administrators at the same moment: at most one version is active, and every loser learns why."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import PendingChange, User
from common.errors import Missing, WrongState
from jobs.approvals import policybook
from jobs.models import PolicyVersion
from jobs.policy import judgement
from tests.factories import UserFactory
from tests.jobs.approvals.test_approvals_at_once import at_once
from tests.jobs.conftest import World
from tests.jobs.policy.test_policy_of_plans import activate, rule, text_of

pytestmark = pytest.mark.django_db(transaction=True)


def propose(by: User, nodes: int) -> PolicyVersion:
    return policybook.propose(by=by, text=text_of(rule(f"plan.nodes > {nodes}")), message=f"{nodes}")[0]


def activated(row: PolicyVersion, by: User) -> Any:
    return lambda: policybook.activate(PolicyVersion.objects.get(pk=row.pk), by=User.objects.get(pk=by.pk))


@pytest.mark.parametrize("is_first", [True, False])
def test_of_two_versions_activated_at_once_one_wins(world: World, is_first: bool) -> None:
    """The first ever included, where there is no active row that both could lock."""
    if not is_first:
        activate(world, rule("false"))
    rows = [propose(world.admin, nodes) for nodes in (7, 8)]
    others = [UserFactory(roles=["admin"]) for _ in rows]
    refusals = at_once(*(activated(row, by) for row, by in zip(rows, others, strict=True)))
    assert [type(refusal) for refusal in refusals] == [WrongState]
    (active,) = PolicyVersion.objects.active()
    assert active.pk in {row.pk for row in rows}
    assert (active.is_genuine, judgement.active_version()) == (True, active)
    assert PendingChange.objects.filter(kind=policybook.ACTIVATE, status="waiting").count() == 1, "the loser's waits"
    assert PolicyVersion.objects.exclude(activated_at=None).count() == (1 if is_first else 2)


def test_of_two_consents_to_one_version_at_once_one_counts(world: World) -> None:
    row = propose(world.admin, 7)
    refusals = at_once(*(activated(row, UserFactory(roles=["admin"])) for _ in range(3)))
    assert {type(refusal) for refusal in refusals} <= {WrongState, Missing}
    assert len(refusals) == 2
    assert PolicyVersion.objects.active().get().pk == row.pk


def test_activation_and_withdrawal_at_once_agree(world: World) -> None:
    row, other = propose(world.admin, 7), UserFactory(roles=["admin"])
    refusals = at_once(activated(row, other), lambda: policybook.withdraw(row, by=world.admin))
    assert [type(refusal) for refusal in refusals] == [WrongState]
    status = PendingChange.objects.get(kind=policybook.ACTIVATE).status
    assert PolicyVersion.objects.active().exists() == (status == "done")


def test_a_version_proposed_while_another_is_activated_never_takes_its_place_unseen(world: World) -> None:
    """Whichever came first: what is activated was proposed against the version that it takes the place of."""
    first, proposer = propose(world.admin, 7), UserFactory(roles=["admin"])
    made: list[PolicyVersion] = []
    refusals = at_once(
        activated(first, UserFactory(roles=["admin"])),
        lambda: made.append(propose(User.objects.get(pk=proposer.pk), 8)),
    )
    assert refusals == []
    assert PolicyVersion.objects.active().get().pk == first.pk
    base = PendingChange.objects.get(kind=policybook.ACTIVATE, status="waiting").wanted["base"]
    if base == first.number:
        activated(made[0], UserFactory(roles=["admin"]))()
    else:
        with pytest.raises(WrongState, match="activated after"):
            activated(made[0], UserFactory(roles=["admin"]))()
    assert PolicyVersion.objects.active().count() == 1


def test_proposals_at_once_have_numbers_of_their_own(world: World) -> None:
    people = [UserFactory(roles=["admin"]) for _ in range(4)]
    acts = [lambda by=by, nodes=nodes: propose(User.objects.get(pk=by.pk), nodes) for nodes, by in enumerate(people)]
    assert at_once(*acts) == []
    assert len(set(PolicyVersion.objects.values_list("number", flat=True))) == 4
