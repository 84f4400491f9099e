"""Rights that each component needs, as approvers see them: their holder, what lacks, what is dangerous."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import yaml
from django.test import Client

from components.plans.authority import Authority, Right
from jobs.models import PlanComponent
from jobs.planning import digests
from tests.jobs.component_steps import plan_of
from tests.jobs.releases import Releases
from tests.jobs.web.test_component_pages import pages, read

__all__ = ["pages"]
THINGS = Right("", ("example.org",), ("things",), (), (), ("get", "create"), "Thing one", lacks=("create things",))
BIND = Right(
    "",
    ("rbac.authorization.k8s.io",),
    ("clusterroles",),
    ("cluster-admin",),
    (),
    ("bind",),
    "ClusterRoleBinding all",
    use="bind",
    danger="it makes its subjects cluster administrators",
)
LACKING = Authority("setpoint-helm", (BIND, THINGS))
UNTIL = Authority("setpoint-helm-admin", (BIND, THINGS), "2026-11-23T14:30:00+00:00")


@pytest.fixture
def releases(monkeypatch: Any) -> Releases:
    return Releases().install(monkeypatch)


def test_a_plan_shows_each_right_who_has_it_and_the_role_to_apply(world, releases, pages):
    releases.authorities["volcano"] = LACKING
    plan = plan_of(world, "volcano", "kueue")
    page = read(pages, f"/plans/P-{plan.number}/")
    assert "setpoint-helm lacks 1" in page
    assert page.index("Lacks create things") < page.index("Dangerous: it makes"), "what lacks comes first"
    assert page.count("kubectl apply -f setpoint-component-") == 1, "kueue was not asked about"

    part = plan.components.get(component="volcano")
    answer = pages.get(f"/plans/P-{plan.number}/components/{part.pk}/role.yaml")
    assert 'filename="setpoint-component-volcano.yaml"' in answer["Content-Disposition"]
    role, binding = yaml.safe_load_all(answer.content)
    assert (role["kind"], binding["kind"]) == ("ClusterRole", "ClusterRoleBinding")
    assert [rule["resources"] for rule in role["rules"]] == [["things"]], "nothing dangerous is in it"
    other = plan.components.get(component="kueue")
    assert pages.get(f"/plans/P-{plan.number}/components/{other.pk}/role.yaml").status_code == 404


def test_a_role_of_a_cluster_that_is_not_theirs_is_nobodys_to_read(world, releases):
    releases.authorities["volcano"] = LACKING
    plan = plan_of(world, "volcano")
    path = f"/plans/P-{plan.number}/components/{plan.components.get().pk}/role.yaml"
    assert Client().get(path).status_code == 302


def test_rest_tells_the_same(world, releases, pages):
    releases.authorities["volcano"] = UNTIL
    plan = plan_of(world, "volcano")
    [row] = pages.get(f"/api/v1/plans/{plan.pk}/components").json()["results"]
    rights = row["rights"]
    assert (rights["account"], rights["lacking"]) == ("setpoint-helm-admin", 1)
    assert rights["administrator_until"] == "2026-11-23T14:30:00Z"
    [bind] = [rule for rule in rights["rules"] if rule["danger"]]
    assert (bind["verbs"], bind["resource_names"]) == (["bind"], ["cluster-admin"])
    assert yaml.safe_load_all(rights["role"])


def test_that_helm_is_a_cluster_administrator_is_a_line_of_its_own_for_approvers(world, releases, pages):
    from jobs.approvals import reviews

    releases.authorities["volcano"] = UNTIL
    plan = reviews.request(plan_of(world, "volcano"), by=world.operator)
    client = Client()
    client.force_login(world.approver)
    page = read(client, f"/plans/P-{plan.number}/")
    form = page[page.index('name="verdict"') :]
    assert "helm is a cluster administrator for volcano, until 2026-11-23 14:30 UTC" in form


def test_account_and_rights_are_part_of_what_is_approved(world, releases):
    seen_digests = []
    for authority in (LACKING, UNTIL, dataclasses.replace(LACKING, rights=(THINGS,)), None):
        releases.authorities = {"volcano": authority} if authority else {}
        plan = plan_of(world, "volcano")
        assert digests.is_as_approved(plan)
        seen_digests.append(plan.components.get().digest)
    assert len(set(seen_digests)) == 4


def test_who_alters_the_account_in_the_table_is_found(world, releases):
    releases.authorities["volcano"] = LACKING
    plan = plan_of(world, "volcano")
    row = plan.components.get()
    row.prepared["authority"]["administrator_until"] = "2030-01-01T00:00:00+00:00"
    PlanComponent.objects.filter(pk=row.pk).update(prepared=row.prepared)
    assert not digests.are_components_intact(plan)
