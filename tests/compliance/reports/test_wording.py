"""Sentences about nodes that are not at their pool's target, and where a page leads from them."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.template import Context, Template

from clusters.models import Pool
from common.hooks import WorkRef
from compliance.models import Assignment
from compliance.reports import wording
from compliance.reports.selectors import UNASSIGNED, Cell, Column
from compliance.templatetags.compliance import cell_url

POOL = Pool(pk=3, name="train")


def ref(number: int, status: str, kind: str = "plan") -> WorkRef:
    return WorkRef(uuid4(), number, 3, 7, status, kind=kind)


@pytest.mark.parametrize(
    ("nodes", "rollout", "plan", "sentence"),
    [
        (1, ref(5, "running", "rollout"), ref(8, "draft"), "waits for R-5"),
        (2, ref(5, "running", "rollout"), None, "wait for R-5"),
        (1, None, None, "in train needs a plan"),
        (2, None, None, "in train need a plan"),
        (2, None, ref(8, "draft"), "in train: approval not requested for P-8"),
        (1, None, ref(8, "review"), "waits for P-8"),
        (2, None, ref(8, "approved"), "wait for P-8"),
    ],
)
def test_pending_nodes_say_what_they_wait_for(
    nodes: int, rollout: WorkRef | None, plan: WorkRef | None, sentence: str
) -> None:
    assert wording.waits_for(nodes, POOL, rollout, plan) == sentence


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ("draft", "is drafted for it: review its changes and request approval."),
        ("approved", "is approved and can be started."),
        ("changes", "was sent back for changes."),
        ("review", "needs review."),
    ],
)
def test_a_plan_says_what_has_to_be_done_with_it(status: str, sentence: str) -> None:
    assert wording.next_of_plan(ref(8, status)) == sentence


@pytest.mark.parametrize(
    ("mode", "query"), [("apply", "pool=3&revision=7"), ("enforce", "pool=3&revision=7&enforce=1")]
)
def test_a_target_knows_the_query_of_its_repair(mode: str, query: str) -> None:
    assert Assignment(pool_id=3, revision_id=7, mode=mode).plan_query == query


@pytest.mark.parametrize(
    ("worst", "url"),
    [
        ("drifted", "/compliance/settings/?pool=3&key=vm.swappiness&state=drifted"),
        ("compliant", "/compliance/settings/?pool=3&key=vm.swappiness"),
        ("pending", "/compliance/nodes/?pool=3&state=pending"),
        (UNASSIGNED, "/compliance/nodes/?pool=3"),
    ],
)
def test_a_cell_leads_to_its_settings_or_to_nodes_without_them(worst: str, url: str) -> None:
    counts = dict.fromkeys(("compliant", "drifted", "pending", "unknown", UNASSIGNED), 0) | {worst: 1}
    column = Column(Assignment(pool_id=3, revision_id=7), cells={"vm.swappiness": Cell(counts)})
    assert cell_url(column, "vm.swappiness") == url


def test_a_query_leaves_out_what_is_empty_and_is_escaped() -> None:
    source = "{% query cluster=name health='' compliance='drifted' %}{% query health='' %}"
    assert Template(source).render(Context({"name": "a&b"})) == "?cluster=a%26b&amp;compliance=drifted"
