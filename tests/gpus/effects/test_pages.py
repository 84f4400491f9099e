"""Effects of a rollout on its page, on the profile's, and over REST; n with every figure."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client

from gpus.effects import estimation, reports
from gpus.effects.estimation import Pair
from gpus.effects.measures import BY_NAME
from gpus.models import Study, StudyEffect
from gpus.storage import history
from tests.factories import TokenClient, UserFactory
from tests.gpus.studying import Worked

pytestmark = pytest.mark.django_db


@pytest.fixture
def worked(clock, monkeypatch):
    def make(*args, **kwargs):
        scenario = Worked(*args, **kwargs)
        scenario.truth.effect, scenario.truth.noise = 0.08, 0.02
        monkeypatch.setattr(history, "buckets", scenario.truth.buckets)
        return scenario

    return make


@pytest.fixture
def page():
    client = Client()
    client.force_login(UserFactory(is_superuser=True))

    def text(path):
        answer = client.get(path)
        assert answer.status_code == 200
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))

    return text


def test_an_ordinary_rollout_says_what_it_cannot_say(worked, page):
    scenario = worked(12)
    scenario.study()
    text = page(f"/rollouts/R-{scenario.rollout.number}/")
    assert "before and after only, not causal" in text
    tensor = scenario.effects()["tensor"]
    assert f"+{tensor.ratio * 100:.1f} %" in text
    assert f"+{tensor.ratio_low * 100:.1f} % to +{tensor.ratio_high * 100:.1f} %" in text
    assert "24 GPUs, 12 nodes or jobs" in text
    assert "they are a comparison, no verdict" in text
    assert "Inconclusive" not in text
    assert "Rose" not in text
    assert text.count(" Higher ") == 2, "tensor and OFU; all others are as before"


def test_a_measured_one_shows_the_control_and_what_would_have_been(worked, page):
    scenario = worked(24, control=8, order="measured", seed=7)
    scenario.study()
    text = page(f"/rollouts/R-{scenario.rollout.number}/")
    assert "difference in differences" in text
    assert "Without it" in text
    assert "32 GPUs, 16 nodes or jobs; control 16, 8 nodes or jobs" in text
    assert "Without figures: 0 of 16 changed nodes and 0 of 8 control nodes (p = 1.00," in text
    assert "more nodes than chance explains" not in text


def test_the_profile_lists_what_its_rollouts_did(worked, page):
    scenario = worked(12)
    scenario.study()
    text = page(f"/profiles/{scenario.revision.profile.name}/")
    assert f"R-{scenario.rollout.number} r1" in text
    assert "n = 24 GPUs, 12 nodes or jobs" in text


def test_too_few_nodes_are_shown_without_an_interval(worked, page):
    scenario = worked(3)
    scenario.study()
    text = page(f"/rollouts/R-{scenario.rollout.number}/")
    assert "3 nodes or jobs in all; an interval needs 5" in text
    assert " none " in text


def test_before_there_is_anything_to_say_the_page_says_when(worked, page):
    scenario = worked(6, ago=timedelta(minutes=2))
    scenario.study()
    assert "the first figures come 30 minutes after a change has settled" in page(
        f"/rollouts/R-{scenario.rollout.number}/"
    )


def test_rollouts_that_nothing_is_known_of_have_no_panel(worked, page):
    scenario = worked(3)
    assert "Effect on GPUs" not in page(f"/rollouts/R-{scenario.rollout.number}/")


def test_every_figure_can_be_computed_again_from_the_exported_pairs(worked):
    scenario = worked(24, control=8, order="measured", seed=7)
    scenario.study()
    api = TokenClient(UserFactory(is_superuser=True))
    body = api.get(f"/api/v1/gpus/effects/{scenario.rollout.pk}").json()
    assert (body["design"], body["nodes"], body["control_nodes"]) == ("difference in differences", 16, 8)
    assert [body["attrition"][arm]["nodes"] for arm in ("treated", "control")] == [16, 8]
    nodes = api.get(f"/api/v1/gpus/effects/{scenario.rollout.pk}/nodes?limit=100").json()["results"]
    for effect in body["effects"]:
        again = estimation.difference_in_differences(
            [
                Pair(
                    *device["figures"][effect["measure"]],
                    cluster=node["node_name"],
                    stratum=node["stratum"],
                    is_treated=node["is_treated"],
                )
                for node in nodes
                for device in node["devices"]
            ],
            by_points=BY_NAME[effect["measure"]].by_points,
            confidence=effect["confidence"],
        )
        assert effect["points"] == pytest.approx(again.points)
        assert effect["verdict"] == again.verdict
        assert (effect["devices"], effect["clusters"]) == (again.devices, again.clusters)
        if again.ratio_interval:
            assert effect["ratio_low"] == pytest.approx(again.ratio_interval.low)


def test_lists_are_filtered_and_refuse_what_they_do_not_know(worked):
    scenario = worked(6)
    scenario.study()
    api = TokenClient(UserFactory(is_superuser=True))
    assert api.get(f"/api/v1/gpus/effects?cluster={scenario.cluster.pk}&is_causal=false").json()["count"] == 1
    assert api.get("/api/v1/gpus/effects?is_causal=true").json()["count"] == 0
    assert api.get("/api/v1/gpus/effects?profile=other").json()["count"] == 0
    assert api.get("/api/v1/gpus/effects?color=red").status_code == 400


def test_people_see_only_their_clusters(worked):
    scenario = worked(6)
    scenario.study()
    api = TokenClient(UserFactory(roles=["viewer@env:production"]), scopes=["read"])
    assert api.get("/api/v1/gpus/effects").json()["count"] == 0
    assert api.get(f"/api/v1/gpus/effects/{scenario.rollout.pk}").status_code == 404
    assert api.get(f"/api/v1/gpus/effects/{scenario.rollout.pk}/nodes").status_code == 404


@pytest.mark.parametrize("status", ["stopped", "failed"])
def test_a_rollout_that_failed_somewhere_costs_at_most_sixteen_queries(worked, django_assert_max_num_queries, status):
    scenario = worked(6)
    scenario.study()
    step = scenario.rollout.steps.order_by("pk").first()
    scenario.rollout.steps.filter(pk=step.pk).update(status="failed", is_live=False, error="The kernel answers 60.")
    type(scenario.rollout).objects.filter(pk=scenario.rollout.pk).update(status=status)
    person = UserFactory(roles=["admin@*"])
    client = Client()
    client.force_login(person)
    path = f"/rollouts/R-{scenario.rollout.number}/"
    client.get(path)
    with django_assert_max_num_queries(16):
        answer = client.get(path)
    assert "The kernel answers 60." in answer.content.decode()


def test_a_profile_costs_the_same_queries_with_one_study_and_with_ten(worked, django_assert_max_num_queries):
    scenario = worked(6)
    scenario.study()
    for number in range(9):
        other = scenario.another(ago=timedelta(days=9))
        study = Study.objects.create(rollout=other, hours=6, settle_minutes=15, state="done", due_at=None)
        StudyEffect.objects.create(study=study, measure="busy", position=0, verdict="no data", points=number)
    with django_assert_max_num_queries(4):
        assert len(reports.of_profile(UserFactory(is_superuser=True), scenario.revision.profile)) == 10


@pytest.mark.parametrize(
    ("measure", "verdict", "look"),
    [
        ("tensor", "rose", "rose-good"),
        ("tensor", "fell", "fell-bad"),
        ("throttled", "rose", "rose-bad"),
        ("throttled", "fell", "fell-good"),
        ("watts", "rose", "rose"),
        ("tensor", "inconclusive", "inconclusive"),
    ],
)
def test_whether_a_rise_is_good_is_the_measures_to_say(measure, verdict, look):
    row = StudyEffect(measure=measure, verdict=verdict, points=0.1, points_low=0.05, points_high=0.2)
    assert reports.lines([row])[0].look == look


def test_shares_are_said_in_percent_and_their_difference_in_points():
    row = StudyEffect(
        measure="throttled", verdict="fell", before=0.054, after=0.02, points=-0.034, points_low=-0.05, points_high=0
    )
    line = reports.lines([row])[0]
    assert (line.before, line.change, line.interval) == ("5.4 %", "−3.4 pp", "−5.0 pp to 0.0 pp")


@pytest.mark.parametrize(
    ("state", "is_causal", "reason"),
    [
        ("waiting", True, "Measured once the last changed node is done and has settled for 20 min."),
        ("waiting", False, "Measured from 20 min after each node's change."),
        ("measuring", True, "No GPU has readings in both windows yet"),
        ("done", True, "No GPU had readings, and work, in both windows: no result."),
    ],
)
def test_a_study_without_figures_says_why(state, is_causal, reason):
    assert reports.why_no_lines(Study(state=state, is_causal=is_causal, settle_minutes=20)).startswith(reason)


def test_uneven_losses_and_nodes_that_stay_in_their_arm_are_on_the_page_and_in_rest(worked, page):
    scenario = worked(24, control=8, order="measured", seed=7)
    names = sorted(scenario.truth.changed_at)
    scenario.truth.silent = set(names[:9])
    scenario.rollout.steps.filter(node_name=names[-1]).update(status="failed")
    scenario.study()
    text = page(f"/rollouts/R-{scenario.rollout.number}/")
    body = TokenClient(UserFactory(is_superuser=True)).get(f"/api/v1/gpus/effects/{scenario.rollout.pk}").json()
    lost = body["attrition"]
    assert (lost["treated"]["lost"], lost["treated"]["deviations"], lost["is_uneven"]) == (
        9, {"did not succeed": 1}, True,
    )  # fmt: skip
    assert f"9 of 16 changed nodes and 0 of 8 control nodes (p = {lost['p']:.2f}" in text
    assert "1 changed node did not take the change and stays in its arm." in text
    assert "One arm lost more nodes than chance explains" in text
