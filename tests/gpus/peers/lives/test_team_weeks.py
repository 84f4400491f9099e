"""One team's week: what its pods held, on which nodes, at what cost; nothing of the team that shares its nodes."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import RoleBinding
from accounts.people import services
from clusters.models import GpuJob, GpuPod, Node
from common.errors import Missing
from compliance.models import NodeStanding
from gpus.models import GpuPrice, JobUse, NodeUse, Team, TeamRules
from gpus.peers.lives import team_weeks
from gpus.showback import statement, teams
from gpus.showback.periods import Period, today
from tests.clusters.factories import ClusterFactory
from tests.factories import TokenClient, UserFactory
from tests.gpus.recording import PRODUCT, Recording

pytestmark = pytest.mark.django_db
HOURS = 0.5
"""Of the recording."""


def job(world, name, namespace, **fields):
    at = world.at - timedelta(hours=1)
    values = {"kind": "Job", "key": uuid4().hex, "gpus": 2, "state": "running"}
    values |= dict.fromkeys(("queued_at", "started_at", "running_since"), at)
    return GpuJob.objects.create(cluster=world.cluster, namespace=namespace, name=name, **values | fields)


def rules(world, *lines):
    version = teams.current().version
    rows = [dict(zip(("by", "pattern", "team"), line, strict=True)) for line in lines]
    teams.save(rows, by=world.admin, version=version)


@pytest.fixture
def world(clock):
    """Two teams on two nodes: both hold GPUs of `shared`, and the other one all of `theirs`."""
    clock.at = clock.at.replace(hour=12, minute=0, second=0, microsecond=0)
    begin = clock.at - timedelta(hours=HOURS)
    part = Recording(begin, nodes=2, gpus=4, cluster=ClusterFactory(name="atlas"))
    part.names = ["shared", "theirs"]
    for old, new in (("n0", "shared"), ("n1", "theirs")):
        Node.objects.filter(cluster=part.cluster, name=old).update(name=new)
    part.held = {("shared", 0): ("blue-a/mine", 0.9), ("shared", 1): ("blue-a/mine", 0.0)}
    part.held |= {("shared", 2): ("red-secret/hers", 0.9), ("shared", 3): ("red-secret/hers", 0.9)}
    part.held |= {("theirs", index): ("red-secret/hers2", 0.9) for index in range(4)}
    part.pods()
    part.store()
    part.go_on(HOURS * 3600)
    for node in Node.objects.filter(cluster=part.cluster):
        NodeStanding.objects.create(node=node, state="compliant")
    part.admin = UserFactory(roles=["admin"])
    part.blue = teams.add(by=part.admin, name="Blue", budget=Decimal(100))
    part.red = teams.add(by=part.admin, name="Red")
    rules(part, ("namespace", "blue-*", "Blue"), ("namespace", "red-secret", "Red"))
    GpuPrice.objects.create(
        kind="gpu", model=PRODUCT.replace("-", " "), amount=Decimal(10), valid_from=date(2026, 1, 1), created_by="x"
    )
    part.member = UserFactory(roles=[f"viewer@team:{part.blue.pk}"])
    return part


def page(user, path):
    client = Client()
    client.force_login(user)
    return client.get(path)


def test_a_member_sees_the_shared_node_and_nothing_of_the_team_that_shares_it(world):
    job(world, "tune", "blue-a")
    job(world, "spy", "red-secret")
    week = team_weeks.of(world.member, world.blue.pk)
    assert [(node.cluster, node.name, node.pods, node.state) for node in week.nodes] == [
        ("atlas", "shared", 1, "unknown")
    ], "no agent was heard of"
    assert week.nodes[0].held_hours == pytest.approx(2 * HOURS)
    assert week.nodes[0].active_hours == pytest.approx(HOURS)
    assert float(week.line.gpu_hours) == pytest.approx(2 * HOURS)
    assert week.idle.percent == pytest.approx(50)
    assert [entry.job.name for entry in week.jobs] == ["tune"]
    shown = page(world.member, f"/team/{world.blue.pk}/").content.decode()
    answer = TokenClient(world.member).get(f"/api/v1/gpus/teams/{world.blue.pk}/week").content.decode()
    for text in (shown, answer):
        assert "shared" in text
        for secret in ("theirs", "red-secret", "hers", "spy", "Red"):
            assert secret not in text, secret


def test_nothing_on_the_page_leads_where_the_member_may_not_go(world):
    job(world, "tune", "blue-a")
    client = Client()
    client.force_login(world.member)
    shown = client.get(f"/team/{world.blue.pk}/").content.decode()
    links = {part.split('"')[0].split("#")[0] for part in shown.split('href="')[1:]}
    links = {link for link in links if link.startswith("/") and not link.startswith("/static/")}
    assert f"/nodes/{Node.objects.get(name='shared').pk}/" not in links
    assert "/account/" in links
    refused = {link: client.get(link).status_code for link in links if client.get(link).status_code not in (200, 302)}
    assert refused == {}
    for_admin = page(world.admin, f"/team/{world.blue.pk}/").content.decode()
    assert f'href="/nodes/{Node.objects.get(name="shared").pk}/"' in for_admin


def test_another_teams_week_is_as_if_it_were_not_there(world):
    for pk in (world.red.pk, 999_999):
        with pytest.raises(Missing):
            team_weeks.of(world.member, pk)
        assert page(world.member, f"/team/{pk}/").status_code == 404
    assert page(world.member, "/team/").headers["Location"] == f"/team/{world.blue.pk}/"
    both = UserFactory(roles=[f"viewer@team:{world.blue.pk}", f"viewer@team:{world.red.pk}"])
    listed = page(both, "/team/").content.decode()
    assert "Blue" in listed
    assert "Red" in listed
    assert page(world.member, "/").headers["Location"] == "/team/"


def test_cost_is_the_teams_line_of_the_statement_and_is_held_against_the_budget(world):
    week = team_weeks.of(world.member, world.blue.pk)
    line = next(
        line
        for line in statement.of(world.admin, Period(today() - timedelta(days=6), today() + timedelta(days=1))).lines
        if line.name == "Blue"
    )
    assert week.line.cost == line.cost == Decimal(10)
    assert (week.this_month.cost, week.this_month.budget, week.this_month.rest) == (10, 100, 90)
    answer = TokenClient(world.member).get(f"/api/v1/gpus/teams/{world.blue.pk}/week").json()
    assert (answer["month_cost"], answer["budget"], answer["budget_left"]) == ("10.00", "100.00", "90.00")
    assert "90.00 left" in page(world.member, f"/team/{world.blue.pk}/").content.decode()


def test_a_role_in_another_environment_has_its_clusters_part_and_no_budget(world):
    elsewhere = UserFactory(roles=["viewer@env:production"])
    week = team_weeks.of(elsewhere, world.blue.pk)
    assert (week.nodes, week.line.gpu_hours, week.this_month.budget, week.is_whole) == ([], 0, None, False)
    more = UserFactory(roles=["viewer@env:production", f"viewer@team:{world.blue.pk}"])
    whole = team_weeks.of(more, world.blue.pk)
    assert [node.name for node in whole.nodes] == ["shared"]
    assert not whole.nodes[0].is_open, "the cluster's own pages stay closed"
    assert "theirs" not in page(more, "/nodes/").content.decode()


def test_a_renamed_team_keeps_its_members_and_a_removed_one_gives_nothing(world):
    teams.change(world.blue, by=world.admin, version=world.blue.version, name="Azure", budget=None)
    assert "Azure" in page(world.member, f"/team/{world.blue.pk}/").content.decode()
    assert "of the team Azure" in page(world.admin, "/people/").content.decode()
    rules(world, ("namespace", "red-secret", "Red"))
    pk = world.blue.pk
    teams.remove(Team.objects.get(pk=pk), by=world.admin)
    assert page(world.member, f"/team/{pk}/").status_code == 404
    assert "Your team is gone" in page(world.member, "/team/").content.decode()
    assert TokenClient(world.member).get(f"/api/v1/gpus/teams/{pk}/week").status_code == 404
    assert "of a team that is gone: it opens nothing" in page(world.admin, "/people/").content.decode()
    again = teams.add(by=world.admin, name="Blue")
    assert again.pk != pk, "no later team has its id, so none inherits its members"
    binding = RoleBinding.objects.get(user=world.member)
    services.unbind(binding=binding, by=world.admin)


def test_rules_that_change_move_nodes_with_the_namespace(world):
    rules(world, ("namespace", "red-secret", "Blue"), ("namespace", "blue-*", "Red"))
    week = team_weeks.of(world.member, world.blue.pk)
    assert {node.name: round(node.held_hours, 6) for node in week.nodes} == {"theirs": 4 * HOURS, "shared": 2 * HOURS}


def test_an_owners_rule_goes_before_the_namespaces_for_nodes_pods_and_jobs(world):
    rules(world, ("owner", "Job/nightly-*", "Red"), ("namespace", "blue-*", "Blue"))
    TeamRules.objects.update(owners_changed_at=world.at - timedelta(days=1))
    GpuPod.objects.filter(namespace="blue-a").update(owner_kind="Job", owner_name="nightly-1", job_key="k")
    before = team_weeks.of(world.member, world.blue.pk)
    world.go_on(600)
    job(world, "nightly-2", "blue-a")
    job(world, "wrapped", "blue-a", kind="JobSet", key="k")
    job(world, "tune", "blue-a")
    week = team_weeks.of(world.member, world.blue.pk)
    assert [entry.job.name for entry in week.jobs] == ["tune"]
    assert (week.nodes[0].pods, week.nodes[0].held_hours) == (0, pytest.approx(before.nodes[0].held_hours))
    theirs = team_weeks.of(UserFactory(roles=[f"viewer@team:{world.red.pk}"]), world.red.pk)
    assert {entry.job.name for entry in theirs.jobs} == {"nightly-2", "wrapped"}
    assert {(node.name, node.pods) for node in theirs.nodes} == {("shared", 1)}
    rules(world, ("owner", "JobSet/*", "Blue"), ("owner", "Job/*", "Red"))
    week = team_weeks.of(world.member, world.blue.pk)
    assert (week.jobs, week.nodes) == ([], []), "its pods' controller is a Job, which the cost page goes by"


def test_jobs_that_live_come_first_and_those_of_another_week_are_left_out(world):
    ended = {"ended_at": world.at - timedelta(days=1), "state": "ended", "outcome": "succeeded", "running_since": None}
    job(world, "over", "blue-a", **ended | {"queued_at": world.at - timedelta(days=2), "ran_seconds": 43200})
    job(world, "old", "blue-a", **ended | {"ended_at": world.at - timedelta(days=8)})
    live = job(world, "tune", "blue-a", gpus=6)
    JobUse.objects.create(job=live, day=today(), effective=3600, low=1800)
    JobUse.objects.create(job=live, day=today() - timedelta(days=7), effective=3600)
    week = team_weeks.of(world.member, world.blue.pk)
    assert [(entry.job.name, entry.gpu_hours) for entry in week.jobs] == [("tune", 1.5), ("over", 0.0)]
    assert [entry.scheduling.percent for entry in week.jobs] == [100, 50]
    assert week.scheduling.value == pytest.approx((6 * 3600 + 2 * 43200) / (6 * 3600 + 2 * 86400))


def test_the_week_takes_as_many_queries_for_many_nodes_pods_and_jobs_as_for_few(world):
    def queries():
        with CaptureQueriesContext(connection) as seen:
            team_weeks.of(type(world.member).objects.get(pk=world.member.pk), world.blue.pk)
        return len(seen)

    job(world, "tune", "blue-a")
    few = queries()
    for number in range(40):
        job(world, f"j{number}", "blue-b", key=f"k{number}")
        GpuPod.objects.create(
            cluster=world.cluster,
            uid=f"u{number}",
            namespace="blue-b",
            name=f"p{number}",
            node_name=f"x{number}",
            gpus=1,
        )
    assert queries() == few <= 16
    assert team_weeks.of(world.member, world.blue.pk).nodes_count == 41


def test_the_page_says_how_much_more_there_is(world, monkeypatch):
    monkeypatch.setattr(team_weeks, "MOST_JOBS", 1)
    monkeypatch.setattr(team_weeks, "MOST_NODES", 0)
    job(world, "a", "blue-a")
    job(world, "b", "blue-a")
    shown = page(world.member, f"/team/{world.blue.pk}/").content.decode()
    assert "1 more job." in shown
    answer = TokenClient(world.member).get(f"/api/v1/gpus/teams/{world.blue.pk}/week").json()
    assert (answer["jobs_count"], len(answer["jobs"]), answer["nodes_count"], len(answer["nodes"])) == (2, 1, 1, 0)


def names(week):
    return {entry.job.name: entry.gpu_hours for entry in week.jobs}


def of_red(world):
    return team_weeks.of(UserFactory(roles=[f"viewer@team:{world.red.pk}"]), world.red.pk)


def test_a_finished_job_stays_with_the_team_of_its_pods_controller(world):
    rules(world, ("owner", "Job/nightly-*", "Red"), ("namespace", "blue-*", "Blue"))
    over = {"ended_at": world.at, "state": "ended", "outcome": "succeeded", "running_since": None}
    job(world, "red-set", "blue-a", kind="JobSet", controllers="\nJob/nightly-1\n", **over)
    job(world, "blue-set", "blue-a", kind="JobSet", controllers="\nJob/tune-1\n", **over)
    job(world, "bare", "blue-a", kind="Pod group", controllers="\n\n", **over)
    job(world, "elsewhere", "lab", kind="JobSet", controllers="\nJob/other\nJob/nightly-7\n", **over)
    for kind in ("JobSet", "PyTorchJob"):
        job(world, f"of-before-{kind}", "blue-a", kind=kind, **over)
    job(world, "nightly-old", "blue-a", **over)
    job(world, "tune-old", "blue-a", **over)
    assert names(team_weeks.of(world.member, world.blue.pk)) == {"blue-set": 0, "bare": 0, "tune-old": 0}
    assert names(of_red(world)) == {"red-set": 0, "elsewhere": None, "nightly-old": 0}
    rules(world, ("namespace", "blue-*", "Blue"))
    assert "of-before-JobSet" in names(team_weeks.of(world.member, world.blue.pk)), "no rule asks for its controller"


def test_a_job_of_two_teams_is_listed_for_both_without_gpu_hours(world):
    rules(world, ("owner", "Job/nightly-*", "Red"), ("namespace", "blue-*", "Blue"))
    mixed = job(world, "set", "blue-a", kind="JobSet", key="k", controllers="\nJob/tune-1\n")
    GpuPod.objects.filter(namespace="blue-a").update(owner_kind="Job", owner_name="tune-1", job_key="k")
    GpuPod.objects.create(
        cluster=world.cluster, uid="z", namespace="blue-a", name="z", node_name="theirs", gpus=3, owner_kind="Job",
        owner_name="nightly-9", job_key="k",
    )  # fmt: skip
    wide = job(world, "wide", "blue-a", controllers="\n" + "".join(f"Job/w-{number}\n" for number in range(20)))
    for row in (mixed, wide):
        JobUse.objects.create(job=row, day=today(), effective=4 * 3600)
    assert names(team_weeks.of(world.member, world.blue.pk)) == {"set": None, "wide": None}
    assert names(of_red(world)) == {"set": None}
    assert "shared with another team" in page(world.member, f"/team/{world.blue.pk}/").content.decode()
    answer = TokenClient(world.member).get(f"/api/v1/gpus/teams/{world.blue.pk}/week").json()
    assert [(entry["gpu_hours"], entry["is_shared"]) for entry in answer["jobs"]] == [(None, True)] * 2


def test_nodes_of_before_an_owners_rule_are_nobodys(world):
    rules(world, ("owner", "Job/nightly-*", "Red"), ("namespace", "blue-*", "Blue"))
    GpuPod.objects.all().delete()
    week = team_weeks.of(world.member, world.blue.pk)
    assert week.nodes == []
    assert week.nodes_since == today() + timedelta(days=1)
    assert week.line.gpu_hours > 0
    NodeUse.objects.filter(namespace="blue-a").update(owner="Job/nightly-1")
    assert [node.name for node in of_red(world).nodes] == ["shared"], "written with the owner's name"
    changed_at = TeamRules.objects.get().owners_changed_at
    world.go_on(600)
    rules(world, ("owner", "Job/nightly-*", "Red"), ("namespace", "blue-*", "Blue"), ("namespace", "lab", "Blue"))
    assert TeamRules.objects.get().owners_changed_at == changed_at, "no other owner is named"


def test_the_page_says_since_when_nodes_are_recorded_and_denies_nothing(world):
    GpuPod.objects.all().delete()
    assert f"nodes recorded since {today()}" in page(world.member, f"/team/{world.blue.pk}/").content.decode()
    NodeUse.objects.filter(namespace="blue-a").delete()
    shown = page(world.member, f"/team/{world.blue.pk}/").content.decode()
    assert "No pod of the team held a GPU" not in shown
    assert f"nodes recorded since {today()}" in shown
    NodeUse.objects.update(day=today() - timedelta(days=7))
    assert "No pod of the team held a GPU" in page(world.member, f"/team/{world.blue.pk}/").content.decode()
    NodeUse.objects.all().delete()
    assert "No node was recorded yet" in page(world.member, f"/team/{world.blue.pk}/").content.decode()
    assert TokenClient(world.member).get(f"/api/v1/gpus/teams/{world.blue.pk}/week").json()["nodes_since"] is None


def test_jobs_of_other_teams_take_no_place_among_those_that_are_read(world, monkeypatch):
    rules(world, ("namespace", "red-secret", "Red"), ("namespace", "*", "Blue"))
    monkeypatch.setattr(team_weeks, "MOST_READ", 2)
    job(world, "mine", "blue-a", queued_at=world.at - timedelta(hours=5))
    for number in range(3):
        job(world, f"r{number}", "red-secret")
    week = team_weeks.of(world.member, world.blue.pk)
    assert (list(names(week)), week.jobs_count, week.jobs_are_cut) == (["mine"], 1, False)
    assert (of_red(world).jobs_count, of_red(world).jobs_are_cut) == (2, True)
    assert "More than 2 that live" in page(world.admin, f"/team/{world.red.pk}/").content.decode()
    answer = TokenClient(world.admin).get(f"/api/v1/gpus/teams/{world.red.pk}/week").json()
    assert answer["jobs_are_cut"] is True
