"""Studies: windows, the devices counted or left out, and effects from buckets whose truth is known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib import import_module

import pytest
from django.apps import apps
from hypothesis import given
from hypothesis import strategies as st

from clusters.models import Node
from common.clock import now
from gpus import tasks
from gpus.effects import arms, reports, studies, windows
from gpus.effects.windows import Window
from gpus.metrics import boards
from gpus.metrics.buckets import Bucket
from gpus.metrics.samples import Metric
from gpus.models import Study, StudyEffect, StudyNode
from jobs.models import Rollout, Step
from tests.factories import UserFactory

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
FIVE = timedelta(minutes=5)


def bucket(n: int = 0, *, held: float = 1.0, covered: float = 1.0, holder: str = "team/a-0", **means: float) -> Bucket:
    return Bucket(AT + n * FIVE, covered, held, {Metric(k): v for k, v in means.items()}, holder)


# ── windows and figures, without a database ───────────────────────────────────────────────────────────────────────────


@given(
    st.integers(0, 86_400), st.integers(0, 7200), st.integers(0, 3600), st.integers(300, 40_000),
    st.integers(0, 200_000),
)  # fmt: skip
def test_the_two_windows_are_as_long_and_never_touch_the_change(began, took, settle, length, passed):
    start = AT + timedelta(seconds=began)
    ended = start + timedelta(seconds=took)
    pair = windows.matched(
        start, ended, settle=timedelta(seconds=settle), length=timedelta(seconds=length),
        until=ended + timedelta(seconds=passed),
    )  # fmt: skip
    if pair is None:
        assert passed < settle + 600
        return
    before, after = pair
    assert before.end - before.start == after.end - after.start <= timedelta(seconds=max(length, 300))
    assert before.end <= start
    assert after.start >= ended + timedelta(seconds=settle)
    assert after.end <= ended + timedelta(seconds=passed)


def test_a_device_is_compared_while_it_is_held():
    buckets = [bucket(n, tensor=0.4) for n in range(6)] + [bucket(n, tensor=0.5) for n in range(6, 12)]
    buckets += [bucket(n, tensor=0.0, held=0.0) for n in range(6, 9)]  # a pause between two jobs
    comparison = windows.compare(buckets, Window(AT, AT + 6 * FIVE), Window(AT + 6 * FIVE, AT + 12 * FIVE), "")
    assert comparison["left_out"] == ""
    assert comparison["figures"]["tensor"] == [0.4, 0.5]


@pytest.mark.parametrize(
    ("second", "why"),
    [
        ([], windows.NO_READINGS),
        ([bucket(n, held=0.2, busy=0.1) for n in range(6, 12)], windows.NOT_HELD),
        ([bucket(n, holder="other/b-0", busy=0.9) for n in range(6, 12)], windows.OTHER_WORK),
    ],
)
def test_what_cannot_be_compared_is_left_out_with_the_reason(second, why):
    buckets = [bucket(n, busy=0.9) for n in range(6)] + second
    comparison = windows.compare(buckets, Window(AT, AT + 6 * FIVE), Window(AT + 6 * FIVE, AT + 12 * FIVE), "")
    assert (comparison["left_out"], comparison["figures"]) == (why, {})


def test_what_was_not_reported_is_no_figure():
    buckets = [bucket(n, busy=0.9) for n in range(12)]
    comparison = windows.compare(buckets, Window(AT, AT + 6 * FIVE), Window(AT + 6 * FIVE, AT + 12 * FIVE), "")
    assert set(comparison["figures"]) == {"busy"}


def test_throttled_time_is_a_share_and_power_counts_while_busy():
    calm = [bucket(n, busy=0.9, power=500.0, power_throttled=30.0, thermal_throttled=0.0) for n in range(5)]
    idle = [bucket(5, busy=0.0, power=90.0, power_throttled=0.0)]
    hot = [bucket(n, busy=0.9, power=700.0, power_throttled=200.0, thermal_throttled=200.0) for n in range(6, 12)]
    figures = windows.compare(calm + idle + hot, Window(AT, AT + 6 * FIVE), Window(AT + 6 * FIVE, AT + 12 * FIVE), "")[
        "figures"
    ]
    assert figures["watts"] == [500.0, 700.0]
    assert figures["throttled"] == [pytest.approx(5 * 0.1 / 6, rel=1e-5), 1.0]


@pytest.mark.parametrize(
    ("model", "values", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", {}, 0.5 * 1.5e9 / 1.98e9),
        ("NVIDIA-A100-SXM4-80GB", {}, 0.5 * 1.5e9 / 1.41e9),
        ("Something New", {}, None),
        ("Something New", {Metric.MAX_SM_CLOCK: 3e9}, 0.25),
    ],
)
def test_ofu_is_tensor_activity_at_the_boards_best_clock(model, values, expected):
    assert boards.ofu({Metric.TENSOR: 0.5, Metric.SM_CLOCK: 1.5e9, **values}, model) == (
        None if expected is None else pytest.approx(expected)
    )
    assert boards.ofu({Metric.TENSOR: 0.5}, model) is None


@pytest.mark.parametrize(
    ("pod", "job"),
    [
        ("team/llm-pretrain-worker-12", "team/llm-pretrain-worker"),
        ("team/llm-0", "team/llm"),
        ("chat/vllm-7d9c5b6f4c-x2x9k", "chat/vllm"),
        ("chat/notebook", "chat/notebook"),
        ("team/train-model", "team/train-model"),
        ("", ""),
    ],
)
def test_a_pods_job_by_its_name(pod, job):
    assert windows.job(pod) == job


def test_devices_vary_with_their_job_where_it_is_on_several_nodes():
    rows = [{"job": "t/a", "node": "n1"}, {"job": "t/a", "node": "n2"}, {"job": "t/b", "node": "n2"}]
    assert windows.clusters([*rows, {"job": "", "node": "n3"}]) == ["job t/a", "job t/a", "node n2", "node n3"]


# ── studies ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_ordinary_rollout_is_told_before_and_after_only(worked):
    scenario = worked(12)
    scenario.truth.effect = 0.08
    study, effects = scenario.study(), scenario.effects()
    assert not study.is_causal
    assert effects["tensor"].verdict == "higher"
    assert effects["tensor"].ratio_low <= 0.08 <= effects["tensor"].ratio_high
    assert (effects["tensor"].devices, effects["tensor"].clusters, effects["tensor"].control_devices) == (24, 12, 0)
    assert effects["busy"].verdict == "no change"
    assert [name for name, row in effects.items() if row.is_primary] == ["ofu"]
    assert effects["ofu"].ratio == pytest.approx(effects["tensor"].ratio, rel=1e-4)
    assert (study.state, study.due_at, study.counts["nodes"]) == ("done", None, 12)


def test_the_same_hours_of_the_day_before_stand_beside_them(worked):
    scenario = worked(6)
    scenario.truth.effect = 0.08
    scenario.study()
    tensor = scenario.effects()["tensor"]
    assert tensor.day_before == pytest.approx(tensor.before)
    assert tensor.day_before_change == pytest.approx(tensor.ratio, abs=1e-4)
    shown = reports.of_rollout(UserFactory(is_superuser=True), scenario.rollout)
    (line,) = [line for line in shown["lines"] if line.measure.name == "tensor"]
    assert (line.day_before, line.since_day_before) == (line.before, line.change)


def test_a_look_before_the_window_is_over_is_interim(worked, clock):
    scenario = worked(24, control=8, order="measured", seed=7, ago=timedelta(hours=2))
    scenario.truth.effect, scenario.truth.noise = 0.3, 0.02
    assert scenario.study().state == "measuring"
    tensor = scenario.effects()["tensor"]
    assert (tensor.verdict, tensor.ratio_low > 0) == ("higher", True)
    assert reports.of_rollout(UserFactory(is_superuser=True), scenario.rollout)["is_interim"]
    clock.forward(7 * 3600)
    assert scenario.study().state == "done"
    effects = scenario.effects()
    assert {name: row.verdict for name, row in effects.items() if name in ("tensor", "ofu")} == {
        "tensor": "rose", "ofu": "rose",
    }  # fmt: skip
    assert (effects["ofu"].is_primary, effects["ofu"].confidence) == (True, 0.95)
    assert effects["tensor"].confidence == pytest.approx(0.99)


def test_a_measured_one_tells_the_change_from_what_happened_to_all(worked):
    scenario = worked(24, control=8, order="measured", seed=7)
    scenario.truth.effect, scenario.truth.others, scenario.truth.noise = 0.08, 0.3, 0.02
    study, tensor = scenario.study(), scenario.effects()["tensor"]
    assert study.is_causal
    assert (study.counts["nodes"], study.counts["control_nodes"]) == (16, 8)
    assert tensor.verdict == "rose"
    assert tensor.ratio_low <= 0.08 <= tensor.ratio_high < 0.2
    assert tensor.expected == pytest.approx(tensor.before * 1.3, rel=0.05)
    assert study.state == "done"  # though the rollout waits to carry out the control


def test_its_arms_share_their_windows(worked):
    scenario = worked(6, control=2, order="measured", seed=7)
    scenario.study()
    rows = StudyNode.objects.all()
    assert len({(row.began_at, row.ended_at) for row in rows}) == 1
    assert rows[0].began_at == scenario.rollout.started_at


def test_a_control_that_was_carried_out_early_ends_the_window(worked, clock):
    scenario = worked(6, control=2, order="measured", seed=7, ago=timedelta(hours=3))
    early = now() - timedelta(hours=1)
    control = Step.objects.filter(rollout=scenario.rollout, plan_node__is_control=True)
    control.update(status="succeeded", entered_at=early)
    study = scenario.study()
    assert study.state == "done"
    assert study.ends_at == windows.down(early)


def test_while_the_window_runs_it_is_measured_again_and_kept_when_it_is_over(worked, clock):
    scenario = worked(6, ago=timedelta(hours=1))
    study = scenario.study()
    assert study.state == "measuring"
    first = scenario.effects()["tensor"].devices, StudyNode.objects.filter(is_final=True).count()
    assert first == (12, 0)
    clock.forward(7 * 3600)
    assert scenario.study().state == "done"
    reads = len(scenario.truth.asked)
    scenario.truth.effect = 9.0  # the buckets are gone by then, or say something else
    clock.forward(86_400 * 4)
    tasks.study()
    assert len(scenario.truth.asked) == reads
    assert scenario.effects()["tensor"].ratio < 1


def test_before_there_is_a_window_nothing_is_said(worked):
    scenario = worked(6, ago=timedelta(minutes=5))
    study = scenario.study()
    assert (study.state, scenario.effects()) == ("measuring", {})


def test_a_node_is_first_read_when_its_window_has_something_to_say(worked, clock):
    """Read sooner, it would have nothing to say, and not be asked again before half an hour more had passed."""
    scenario = worked(6, ago=timedelta(minutes=25))
    studies.adopt()
    for _ in range(4):
        study = studies.find(scenario.rollout.pk)
        assert studies.advance(study)
        clock.forward(600)
    assert scenario.effects()["tensor"].devices == 12


def test_nodes_that_something_else_changed_are_left_out_and_counted(worked):
    scenario = worked(12)
    other = scenario.another(ago=timedelta(hours=4), nodes=3)
    study = scenario.study()
    assert study.counts["nodes_left_out"] == {f"changed by R-{other.number} as well": 3}
    assert scenario.effects()["tensor"].clusters == 9


def test_so_are_nodes_put_back_and_nodes_that_went(worked):
    scenario = worked(12)
    studies.adopt()
    study = Study.objects.select_related("rollout__plan").get()
    arms.find_nodes(study)
    Step.objects.filter(rollout=scenario.rollout, node_name="n001").update(status="reverted", direction="revert")
    Node.objects.filter(name="n002").update(gone_at=now() - timedelta(hours=2))
    study = scenario.study()
    assert study.counts["nodes_left_out"] == {"put back": 1, "no longer there": 1}


def test_a_node_whose_row_is_gone_keeps_no_later_one_out(worked):
    scenario = worked(6)
    later = Step.objects.filter(rollout=scenario.rollout, node_name__gt="n002")
    later.update(status="applying")
    studies.adopt()
    arms.find_nodes(Study.objects.select_related("rollout__plan").get())
    StudyNode.objects.filter(node_name="n000").update(node=None)
    later.update(status="succeeded")
    assert set(scenario.study().nodes.values_list("node_name", flat=True)) == {f"n00{i}" for i in range(6)}


def test_gpus_that_nobody_held_and_other_peoples_work_are_counted(worked):
    scenario = worked(12)
    scenario.truth.free = {"n000", "n001"}
    study = scenario.study()
    assert study.counts["devices_left_out"] == {"not held": 4}
    assert scenario.effects()["tensor"].devices == 20


def test_one_job_over_all_nodes_is_one_proof(worked):
    scenario = worked(12)
    scenario.truth.holder = {f"n{i:03}": f"team/pretrain-{i}" for i in range(12)}
    tensor = (scenario.study(), scenario.effects()["tensor"])[1]
    assert (tensor.devices, tensor.clusters, tensor.verdict) == (24, 1, "lower")
    assert tensor.ratio_low is None
    assert "1 nodes or jobs" not in tensor.why


def test_jobs_on_both_arms_are_counted(worked):
    scenario = worked(12, control=5, order="measured", seed=1)
    scenario.truth.holder = {"n000": "team/both-0", "n011": "team/both-1"}
    assert scenario.study().counts["on_both"] == 4


def test_of_two_workers_one_looks(worked):
    scenario = worked(6)
    studies.adopt()
    first = Study.objects.select_related("rollout__plan", "rollout__cluster").get()
    second = Study.objects.select_related("rollout__plan", "rollout__cluster").get()
    assert (studies.advance(first), studies.advance(second)) == (True, False)
    assert scenario.effects()


def test_rollouts_without_gpus_or_without_nodes_have_no_study(worked):
    scenario = worked(3)
    Step.objects.filter(rollout=scenario.rollout).delete()
    assert studies.adopt() == 0
    assert Rollout.objects.count() == 1


def test_a_large_rollout_is_read_in_slices(worked, monkeypatch):
    monkeypatch.setattr(studies, "NODES_A_SLICE", 4)
    scenario = worked(10)
    study = scenario.study()
    # Both windows, and by itself the second one's hours of the day before: a day at once would be too much memory.
    assert [len(nodes) for nodes in scenario.truth.asked] == [4, 4, 4, 4, 2, 2]
    assert max(scenario.truth.spans[::2]) < timedelta(hours=13)
    assert max(scenario.truth.spans[1::2]) < timedelta(hours=6.5)
    assert (study.counts["nodes"], study.state) == (10, "done")


def test_a_measured_rollout_is_read_once(worked):
    scenario = worked(6, control=2, order="measured", seed=7)
    scenario.study()
    assert len(scenario.truth.asked) == 1
    assert {row.day_before for row in scenario.effects().values()} == {None}


def test_the_cost_of_a_look_does_not_grow_with_nodes(worked, django_assert_max_num_queries):
    scenario = worked(40)
    studies.adopt()
    study = Study.objects.select_related("rollout__plan", "rollout__cluster").get()
    with django_assert_max_num_queries(26):
        studies.advance(study)
    assert scenario.effects()["tensor"].clusters == 40


def test_verdicts_that_were_given_without_a_control_become_comparisons(worked):
    scenario = worked(6)
    study = scenario.study()
    StudyEffect.objects.all().delete()
    given = {
        "tensor": ("rose", 0.1),
        "busy": ("fell", -0.1),
        "ofu": ("inconclusive", 0.02),
        "watts": ("inconclusive", 0),
    }
    for position, (measure, (verdict, ratio)) in enumerate(given.items()):
        StudyEffect.objects.create(
            study=study, measure=measure, position=position, verdict=verdict, ratio=ratio, points=ratio, why="x"
        )
    StudyEffect.objects.create(study=study, measure="sm_clock", position=9, verdict="no data", why="No GPU.")
    migration = import_module("gpus.migrations.0008_comparisons_and_verdicts")
    migration.compare_only(apps, None)
    assert {row.measure: (row.verdict, row.why) for row in StudyEffect.objects.all()} == {
        "tensor": ("higher", ""), "busy": ("lower", ""), "ofu": ("higher", ""), "watts": ("no change", ""),
        "sm_clock": ("no data", "No GPU."),
    }  # fmt: skip
    Study.objects.update(is_causal=True)
    StudyEffect.objects.filter(measure="tensor").update(verdict="rose")
    migration.compare_only(apps, None)
    assert StudyEffect.objects.get(measure="tensor").verdict == "rose"
