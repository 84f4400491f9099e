"""Approval rules over REST."""

from __future__ import annotations

import uuid

import pytest

from jobs.approvals import rulebook
from jobs.models import ApprovalRule
from tests.factories import TokenClient, UserFactory

PATH = "/api/v1/approval-rules"


def test_rules_are_written_and_read_over_rest(world):
    client = TokenClient(world.admin)
    sent = {"name": "A third of the GPUs", "gpu_percent": 33, "approvers": 2, "of_count": 1, "of_role": "admin"}
    made = client.post(PATH, sent)
    assert made.status_code == 201, made.json()
    rule = made.json()
    assert rule["about"] == "every environment, at least 33 % of the cluster's GPUs"
    assert rule["demand"] == "2 approvers, 1 of them admin here"
    assert made["Location"] == f"{PATH}/{rule['id']}"

    assert client.patch(made["Location"], {"approvers": 3}).status_code == 428
    changed = client.patch(made["Location"], {"approvers": 3}, HTTP_IF_MATCH=made["ETag"])
    assert (changed.status_code, changed.json()["approvers"], changed.json()["gpu_percent"]) == (200, 3, 33)
    assert client.patch(made["Location"], {"approvers": 1}, HTTP_IF_MATCH=made["ETag"]).status_code == 412

    plan = TokenClient(world.operator).get(f"/api/v1/plans/{world.plan().pk}").json()
    assert [(r["name"], r["missing"]) for r in plan["approval"]["rules"]] == [
        ("A third of the GPUs", 3),
        ("default", 1),
    ]
    assert (plan["approval"]["needed"], plan["approval"]["missing"]) == (3, 3)

    gone = client.delete(made["Location"], headers={"If-Match": changed["ETag"]})
    assert (gone.status_code, gone.json()["status"]) == (202, "waiting")
    other = TokenClient(UserFactory(roles=["admin"]))
    assert other.post(f"{gone['Location']}/actions/consent").json()["status"] == "done"
    assert client.get(made["Location"]).status_code == 404


@pytest.mark.parametrize(
    "sent",
    [
        {}, {"name": "x"}, {"name": "x", "approvers": "many"}, {"name": "x", "approvers": 1, "cluster": "x"},
        {"name": "x", "approvers": 1, "cluster": str(uuid.uuid4())}, {"name": "x\x00", "approvers": 1},
        {"name": "x", "approvers": 1, "of_scope": "x" * 61}, {"name": ["x"], "approvers": 1},
        {"name": "x", "approvers": 10**30},
    ],
)  # fmt: skip
def test_rubbish_sent_as_a_rule_is_refused_by_field(world, sent):
    answer = TokenClient(world.admin).post(PATH, sent)
    assert answer.status_code == 422, answer.json()
    assert ApprovalRule.objects.count() == len(rulebook.BUILT_IN)
