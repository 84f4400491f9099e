"""Timelines: one order over every app's entries, complete at any page size, and restricted to the object's viewers."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from audit import services as audit
from audit.models import Record
from common import timeline as past
from common.errors import Invalid
from common.timeline import DRIFT, EDITS, ROLLOUTS, VERDICTS, WHAT, Entry, place
from compliance.models import SettingChange
from compliance.reports import timelines
from jobs.approvals import reviews
from jobs.models import Plan, Rollout, StepEvent
from jobs.rollouts import rollout_actions
from jobs.web import timeline_views
from tests.factories import TokenClient, UserFactory
from tests.jobs.conftest import World

MOST_QUERIES = 15


@pytest.fixture
def busy_world(world: World) -> World:
    """A plan with a comment, its rollout over three nodes, and a file that then won on n2."""
    plan = world.plan()
    world.tick()
    plan = reviews.request(plan, by=world.operator)
    world.tick()
    plan = reviews.approve(plan, by=world.approver, digest=plan.digest, comment="Go on.")
    world.tick()
    world.run(rollout_actions.start(plan, by=world.operator))
    world.sim.drop_file("n2", "/etc/sysctl.d/99-site.conf", "vm.swappiness = 60")
    world.sim.drift("n2", "vm.swappiness", "60")
    world.tick(6)
    return world


def abouts(world: World) -> dict[str, timelines.About]:
    user = world.admin
    return {
        "cluster": timelines.of_cluster(user, world.cluster.pk),
        "node": timelines.of_node(user, world.node("n2").pk),
        "pool": timelines.of_pool(user, world.pool.pk),
        "profile": timelines.of_profile(user, "gpu"),
        "plan": timeline_views.plan_subject(user, Plan.objects.latest("number").pk),
        "rollout": timeline_views.rollout_subject(user, Rollout.objects.latest("number").pk),
    }


def pages_of(world: World) -> dict[str, str]:
    return {
        "cluster": f"clusters/{world.cluster.pk}",
        "node": f"nodes/{world.node('n2').pk}",
        "pool": f"pools/{world.pool.pk}",
        "profile": "profiles/gpu",
        "plan": f"plans/P-{Plan.objects.latest('number').number}",
        "rollout": f"rollouts/R-{Rollout.objects.latest('number').number}",
    }


def api_of(world: World) -> dict[str, str]:
    plan, rollout = Plan.objects.latest("number"), Rollout.objects.latest("number")
    return pages_of(world) | {"plan": f"plans/{plan.pk}", "rollout": f"rollouts/{rollout.pk}"}


def sentences(about: timelines.About, user: Any, only: str = "") -> list[str]:
    return [entry.text for entry in timelines.read(about, user, limit=500, only=only)[0]]


def browser(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


# ── what is told ──────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_cluster_tells_of_plans_verdicts_rollouts_and_drift_in_one_order(busy_world: World) -> None:
    lines = sentences(abouts(busy_world)["cluster"], busy_world.admin)
    assert lines == [
        "vm.swappiness drifted to 60 on n2",
        "R-1 succeeded",
        "R-1 started",
        "P-1 approved",
        "Approval of P-1 was requested",
        "P-1 was made",
    ]


def test_a_pool_and_a_profile_tell_what_was_planned_with_them(busy_world: World) -> None:
    work = ["R-1 succeeded: gpu r1 to atlas / train", "R-1 started: gpu r1 to atlas / train", "P-1 approved"]
    made = "P-1 was made: gpu r1 to atlas / train"
    assert sentences(abouts(busy_world)["pool"], busy_world.admin) == ["vm.swappiness drifted to 60 on n2", *work, made]
    assert sentences(abouts(busy_world)["profile"], busy_world.admin) == [*work, made]


def test_a_plan_tells_its_verdicts_with_their_words_and_what_became_of_it(busy_world: World) -> None:
    about = abouts(busy_world)["plan"]
    assert sentences(about, busy_world.admin) == [
        "R-1 succeeded",
        "R-1 started",
        "P-1 approved",
        "Approval of P-1 was requested",
        "P-1 was made",
    ]
    verdict = timelines.read(about, busy_world.admin, limit=5, only=VERDICTS)[0][0]
    assert (verdict.by, verdict.detail) == (str(busy_world.approver), "“Go on.”")


def test_a_rollout_tells_its_log_once_and_what_drifted_of_what_it_wrote(busy_world: World) -> None:
    lines = sentences(abouts(busy_world)["rollout"], busy_world.admin)
    assert lines[0] == "vm.swappiness drifted to 60 on n2"
    assert lines[-4:] == ["R-1 started", "P-1 approved", "Approval of P-1 was requested", "P-1 was made"]
    logged = StepEvent.objects.count()
    assert len(lines) == logged + 5
    assert sum(line.startswith("Succeeded") for line in lines) == 1


def test_what_somebody_asked_of_a_rollout_is_told_once(world: World) -> None:
    rollout = world.started()
    world.slice(rollout)
    rollout_actions.pause(rollout, by=world.operator)
    about = timeline_views.rollout_subject(world.admin, rollout.pk)
    assert sum("aused" in text for text in sentences(about, world.admin)) == 1


def test_a_node_tells_its_settings_and_its_steps_and_nobody_elses(busy_world: World) -> None:
    lines = sentences(abouts(busy_world)["node"], busy_world.admin)
    assert lines[0] == "vm.swappiness drifted to 60"
    assert {"vm.swappiness is 10, as desired", "vm.swappiness waits to become = 10"} <= set(lines)
    events = StepEvent.objects.filter(step__node=busy_world.node("n2")).count()
    assert len(lines) == 3 + 1 + events
    rollout = [text for text in lines if text.startswith("R-1")]
    assert sentences(abouts(busy_world)["node"], busy_world.admin, ROLLOUTS) == rollout
    assert "R-1, gpu r1: succeeded" in rollout


def test_an_edit_says_what_changed(world: World) -> None:
    audit.record(
        by=world.admin, action="pool.update", target=f"pool:{world.pool.pk}", target_name="train",
        cluster_id=world.cluster.pk, before={"name": "old", "version": 1}, after={"name": "train", "version": 2},
    )  # fmt: skip
    entries, _ = timelines.read(timelines.of_pool(world.admin, world.pool.pk), world.admin, limit=5)
    assert [(e.what, e.detail, e.by) for e in entries] == [(EDITS, "name old → train", str(world.admin))]


# ── for whom ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_timeline_is_for_whom_its_object_is(busy_world: World) -> None:
    stranger = UserFactory(roles=["viewer@env:production"])
    client, token = browser(stranger), TokenClient(stranger)
    for kind, path in pages_of(busy_world).items():
        expected = 200 if kind == "profile" else 404
        assert client.get(f"/{path}/timeline/").status_code == expected, kind
        assert token.get(f"/api/v1/{api_of(busy_world)[kind]}/timeline").status_code == expected, kind
    assert client.get(f"/{pages_of(busy_world)['node']}/timeline/lately/").status_code == 404
    assert client.get(f"/{pages_of(busy_world)['cluster']}/timeline/lately/").status_code == 404


def test_a_profile_is_everybodys_and_its_plans_are_of_those_who_see_the_cluster(busy_world: World) -> None:
    stranger = UserFactory(roles=["viewer@env:production"])
    about = timelines.of_profile(stranger, "gpu")
    assert sentences(about, stranger) == []
    assert len(sentences(about, busy_world.admin)) == 4


# ── pages ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_each_page_and_each_answer_is_whole_and_cheap(busy_world: World) -> None:
    client, token = browser(busy_world.admin), TokenClient(busy_world.admin)
    client.get("/account/")  # a session's first request is noted
    for kind, about in abouts(busy_world).items():
        page, api = f"/{pages_of(busy_world)[kind]}/timeline/", f"/api/v1/{api_of(busy_world)[kind]}/timeline"
        expected = sentences(about, busy_world.admin)
        for path, ask in ((page, client), (api, token)):
            with CaptureQueriesContext(connection) as seen:
                answer = ask.get(path)
            assert answer.status_code == 200
            assert len(seen) <= MOST_QUERIES, "\n".join(query["sql"][:300] for query in seen.captured_queries)
        results = token.get(api).json()["results"]
        assert [entry["text"] for entry in results] == expected
        assert {entry["what"] for entry in results} <= set(about.what)
        shown = re.sub(r"<[^>]+>", "", client.get(page).content.decode())
        assert expected[-1] in shown
        assert "End of timeline." in shown


def test_programs_follow_next_to_the_beginning(busy_world: World) -> None:
    token = TokenClient(busy_world.admin)
    url: str | None = f"/api/v1/{api_of(busy_world)['rollout']}/timeline?limit=2"
    got = []
    while url:
        answer = token.get(url).json()
        assert len(answer["results"]) <= 2
        got += [entry["text"] for entry in answer["results"]]
        url = answer["next"] and answer["next"].removeprefix("http://testserver")
    assert got == sentences(abouts(busy_world)["rollout"], busy_world.admin)


def test_a_wrong_place_or_kind_is_refused_to_programs_and_said_on_the_page(busy_world: World) -> None:
    client, token = browser(busy_world.admin), TokenClient(busy_world.admin)
    for wrong in ("before=x", "before=W10", "what=weather", "before=WyIyMDI2IiwiYSIsImIiXQ"):
        for kind, path in api_of(busy_world).items():
            assert token.get(f"/api/v1/{path}/timeline?{wrong}").status_code == 422, (kind, wrong)
        for path in pages_of(busy_world).values():
            answer = client.get(f"/{path}/timeline/?{wrong}")
            assert answer.status_code == 200
            assert b"These are the newest." in answer.content


def test_a_wrong_parameter_is_named(busy_world: World) -> None:
    for wrong in ("limit=0", "limit=x", "limit=201", "limit=99999999999", "whta=drift"):
        answer = TokenClient(busy_world.admin).get(f"/api/v1/{api_of(busy_world)['node']}/timeline?{wrong}")
        assert answer.status_code in (400, 422)
        assert wrong.partition("=")[0] in answer.content.decode()


def test_the_pages_of_nodes_and_clusters_ask_for_the_newest_and_lead_to_all(busy_world: World) -> None:
    for kind in ("node", "cluster"):
        path = f"/{pages_of(busy_world)[kind]}/"
        assert f'hx-get="{path}timeline/lately/"' in browser(busy_world.admin).get(path).content.decode()
        lately = browser(busy_world.admin).get(f"{path}timeline/lately/").content.decode()
        assert "vm.swappiness drifted to 60" in lately
        assert f'href="{path}timeline/"' in lately


def test_the_other_pages_lead_to_their_timeline(busy_world: World) -> None:
    client = browser(busy_world.admin)
    for kind in ("pool", "profile", "plan", "rollout"):
        path = f"/{pages_of(busy_world)[kind]}/"
        assert f'href="{path}timeline/"' in client.get(path).content.decode(), kind


# ── the laws of paging ────────────────────────────────────────────────────────────────────────────────────────────────
START = datetime(2026, 1, 1, tzinfo=UTC)
happening = st.tuples(st.sampled_from(["setting", "event", "audit"]), st.integers(0, 4))
"""(where, when): few instants, so that many happen at the same."""


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(events=st.lists(happening, max_size=24), limit=st.integers(1, 7), only=st.sampled_from(["", *WHAT]))
def test_no_entry_is_missing_or_twice_however_long_the_pages(
    started: World, events: list[tuple[str, int]], limit: int, only: str
) -> None:
    with transaction.atomic():
        _pages_hold(started, events, limit, only)
        transaction.set_rollback(True)  # PostgreSQL refuses to delete audit records, so each example is undone


def _pages_hold(world: World, events: list[tuple[str, int]], limit: int, only: str) -> None:
    node, rollout = world.node("n1"), Rollout.objects.get()
    step = rollout.steps.get(node=node)
    SettingChange.objects.all().delete()
    StepEvent.objects.all().delete()
    for number, (source, second) in enumerate(events):
        at = START + timedelta(seconds=second)
        if source == "setting":
            SettingChange.objects.create(node=node, key=f"k{number}", at=at, state="drifted", effective="1")
        elif source == "event":
            StepEvent.objects.create(rollout=rollout, step=step, at=at, text=f"e{number}")
        else:
            Record.objects.create(at=at, actor="a", action="node.mark", target=f"node:{node.pk}", message=f"m{number}")
    about = timelines.of_node(world.admin, node.pk)
    if only and only not in about.what:
        with pytest.raises(Invalid):
            timelines.read(about, world.admin, limit=limit, only=only)
        return

    got: list[Entry] = []
    before = ""
    for _ in range(len(events) + 2):
        entries, before = timelines.read(about, world.admin, limit=limit, before=before, only=only)
        assert len(entries) == limit or not before
        got += entries
        if not before:
            break
    kept = {"": ("setting", "event", "audit"), DRIFT: ("setting",), ROLLOUTS: ("event",), EDITS: ("audit",)}[only]
    its_step = only in ("", ROLLOUTS)
    assert len(got) == sum(source in kept for source, _ in events) + its_step
    assert len({entry.place for entry in got}) == len(got)
    assert [entry.place for entry in got] == sorted((entry.place for entry in got), reverse=True)


@pytest.fixture
def started(world: World) -> World:
    world.run(world.started())
    return world


@given(st.text(max_size=60))
def test_any_text_for_a_cursor_is_refused_or_read(text: str) -> None:
    try:
        cursor = past.read_cursor(text)
    except Invalid:
        return
    assert cursor is None or past.read_cursor(past.cursor(cursor)) == cursor


@given(st.datetimes(timezones=st.just(UTC)), st.sampled_from(["audit", "event"]), st.integers(0, 10**18) | st.uuids())
def test_a_cursor_reads_back_as_its_place(at: datetime, source: str, key: Any) -> None:
    where = place(at, source, key)
    assert past.read_cursor(past.cursor(where)) == where


entry = st.builds(
    lambda hour, on, alike: Entry(
        place(START + timedelta(hours=hour), "event", hour), ROLLOUTS, "one", "point", on=on, alike=alike
    ),
    st.integers(0, 60), st.sampled_from(["n1", "n2", "n3"]), st.sampled_from(["", "{} drained", "{{x}} on {} nodes"]),
)  # fmt: skip


@given(st.lists(entry, max_size=20))
def test_folding_loses_no_entry_and_keeps_their_order(entries: list[Entry]) -> None:
    lines = past.lines(entries)
    assert [each for line in lines for each in (line.entry, *line.others)] == entries
    for line in lines:
        if line.others:
            assert len({each.on for each in (line.entry, *line.others)}) == len(line.others) + 1
            assert len({each.alike for each in (line.entry, *line.others)}) == 1
            assert str(len(line.others) + 1) in line.text
