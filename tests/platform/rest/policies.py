"""Versions of the approval policy that addresses of the table of access name."""

from __future__ import annotations

from jobs.approvals import policybook
from jobs.policy import policy_text
from tests.factories import UserFactory


def policy_addresses() -> dict[str, int | str]:
    """A version that is active, and one that waits for another administrator, by the part of an address."""
    proposer, text = UserFactory(roles=["admin"]), policy_text.EMPTY
    active, _ = policybook.propose(by=proposer, text=text, message="x")
    policybook.activate(active, by=UserFactory(roles=["admin"]))
    waiting, _ = policybook.propose(by=proposer, text=f"# x\n{text}", message="x")
    pages = ("approvals/policy/v<int:number>", "^approvals/policy/v(?P<number>[0-9]{1,9})")
    names = (*pages, "policy-versions/<int:number>")
    return dict.fromkeys(names, waiting.number) | {"(?P<verb>activate|withdraw)": "activate"}
