"""The fleet run of the demo's history: what its operator and the people of its clusters are shown."""

from __future__ import annotations

import pytest

from accounts.models import User
from jobs.approvals import rings
from jobs.models import FleetRun, Plan
from jobs.rollouts import fleet_runs
from tests.demo import glossary


@pytest.mark.usefixtures("world")
class TestFleetRun:
    def test_a_limit_can_go_from_development_to_production_and_nothing_of_it_has_begun(self) -> None:
        run = FleetRun.objects.get()
        plans = [member.plan for ring in rings.rings_of(run) for member in ring.members]

        assert run.status == FleetRun.Status.DRAFT
        assert [plan.cluster.environment for plan in plans] == ["development", "staging", "production"]
        assert {plan.status for plan in plans} == {Plan.Status.DRAFT}
        assert all(plan.summary["nodes"] for plan in plans), "each of them has nodes to change"

    def test_its_operator_may_request_and_start_it_and_its_page_leads_to_each_plan(self) -> None:
        run = FleetRun.objects.get()
        operator = User.objects.get(email="operator@example.com")
        page = glossary.Reader(operator.email).page(f"/fleet-runs/F-{run.number}/")

        for verb in ("request", "start"):
            assert not fleet_runs.reasons_of_person(run, operator)[verb], verb
            assert not fleet_runs.reasons_of_state(run)[verb], verb
        for plan in Plan.objects.filter(fleet_run=run):
            assert f"/plans/P-{plan.number}/" in page
