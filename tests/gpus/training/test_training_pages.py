"""Steps of a training job on its page and in REST: exported, too short, not exported, and Prometheus away."""

from __future__ import annotations

import html
import json
import re
from datetime import timedelta

import pytest
from django.test import Client

from clusters.connection import registry
from clusters.models import GpuJob
from gpus.models import TelemetrySource
from gpus.peers.lives import training
from gpus.telemetry import hosts
from simfleet.controllers.monitoring import Scraped
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.clusters.factories import ClusterFactory
from tests.factories import TokenClient, UserFactory
from tests.gpus.inference.printed import target
from tests.gpus.peers.lives.watched import Watched

pytestmark = pytest.mark.django_db
STEP = 5.0
"""Seconds of a step."""
LOADS, FAILS, AGAIN = 300.0, 2400.0, 200.0
"""Seconds from the job's start: its first step begins, it fails, and from then to the first step after it."""
RESUMED = 300
"""Step of its checkpoint."""


class Training(Watched):
    """A job of two pods that trains for an hour, fails once, and continues from a checkpoint."""

    def __init__(self, clock, seconds=3600):
        super().__init__(clock.at - timedelta(seconds=seconds), nodes=2, cluster=ClusterFactory(name="atlas"))
        self.began = self.at.timestamp()
        for name, node in (("train-0", "n0"), ("train-1", "n1")):
            self.hears(name, node=node, job="train", job_uid="u-1")
            self.held |= {(node, index): (f"team/{name}", 0.9) for index in range(4)}
        self.store()
        self.go_on(seconds)
        self.sim = SimCluster(seed=1)
        for name in self.names:
            self.sim.add_node(name)
        self.sim.monitoring.install()
        hosts.forget(self.cluster.pk)
        self.source.refresh_from_db()
        self.user = UserFactory(is_superuser=True)
        self.job = GpuJob.objects.get()

    def gauge(self, at):
        passed = at - self.began
        if passed < FAILS:
            return float(max(0, (passed - LOADS) // STEP))
        done = (passed - FAILS - AGAIN) // STEP
        return float(RESUMED + done) if done > 0 else 0.0

    def export(self, pod, *, name="trainer_step", namespace="team", gauge=None, labels=None):
        gauge = gauge or self.gauge

        def samples(at):
            if at >= self.began:
                yield name, labels or {}, gauge(at)

        there = [Scraped(target(namespace, pod), samples)]
        self.sim.monitoring.scraped.append(lambda: there)

    def rest(self, status=200):
        answer = TokenClient(self.user).get(f"/api/v1/gpus/jobs/{self.job.pk}/training")
        assert answer.status_code == status, answer.content
        return answer.json()

    def page(self, path="training/live/"):
        client = Client()
        client.force_login(self.user)
        answer = client.get(f"/gpus/jobs/{self.job.pk}/{path}")
        assert answer.status_code == 200
        return answer.content.decode()

    def words(self):
        return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", self.page())))


@pytest.fixture
def world(clock, request):
    made = Training(clock, getattr(request, "param", 3600))
    with registry.override(made.cluster.pk, SimFleet(made.sim)):
        yield made


HIGHEST = (FAILS - LOADS) / STEP
LAST = RESUMED + (3600 - FAILS - AGAIN) / STEP


def test_steps_kept_lost_and_goodput_are_those_of_the_trainer(world):
    world.export("train-0")
    body = world.rest()
    assert (body["state"], body["why"], body["metric"], body["trainer"]) == ("exported", "", "trainer_step", "prime-rl")
    near = 2 * body["resolution_seconds"] / STEP
    assert body["step"] == pytest.approx(LAST, abs=near)
    assert HIGHEST - RESUMED - 2 * near <= body["steps_lost"] <= HIGHEST - RESUMED
    (restart,) = body["restarts"]
    assert restart["lost"] == body["steps_lost"] == restart["highest"] - restart["resumed"]
    assert body["step_seconds"] == pytest.approx(STEP, rel=0.02)
    assert body["running_seconds"] == pytest.approx(3600, abs=30)
    assert body["steps_kept"] == pytest.approx(LAST, abs=2 * near)
    assert body["steps_kept_per_hour"] == pytest.approx(LAST, abs=2 * near)
    goodput = body["goodput"]
    assert goodput["known_parts"] == ["scheduling", "runtime", "program"]
    assert goodput["program"]["percent"] == pytest.approx(100 * LAST * STEP / 3600, abs=2)
    parts = [goodput[name]["percent"] / 100 for name in ("scheduling", "runtime", "program")]
    assert goodput["whole"]["percent"] == pytest.approx(100 * parts[0] * parts[1] * parts[2])
    words = world.words()
    for text in (f" {goodput['program']['percent']:.0f} %", f" {goodput['whole']['percent']:.0f} %",
                 f"{body['steps_lost']:,.0f} steps at least, by 1 restart", "5.0 s", "of 1 rank."):  # fmt: skip
        assert text in words, text


def test_ranks_count_once_and_the_foremost_one(world):
    world.export("train-0")
    alone = world.rest()
    world.export("train-1", gauge=lambda at: world.gauge(at - 7))
    both = world.rest()
    assert both["ranks"] == 2
    for name in ("steps_made", "steps_kept", "step"):
        assert both[name] == pytest.approx(alone[name], abs=3), name
    assert len(both["restarts"]) == 1


def test_the_sites_own_name_is_read(world, settings):
    world.export("train-0", name="corp_step")
    assert world.rest()["state"] == "not_exported"
    settings.SETPOINT_GPU_STEP_METRICS = ["corp_step"]
    body = world.rest()
    assert (body["state"], body["metric"], body["trainer"]) == ("exported", "corp_step", "the site's own")


def check_nothing_is_claimed(world, state, why):
    body = world.rest()
    assert (body["state"], body["restarts"]) == (state, [])
    assert why in body["why"]
    for name in ("step", "steps_made", "steps_kept", "steps_lost", "steps_kept_per_hour", "step_seconds",
                 "running_seconds"):  # fmt: skip
        assert body[name] is None, name
    goodput = body["goodput"]
    assert goodput["program"] == {"percent": None, "lack": body["why"]}
    assert goodput["whole"]["percent"] is None
    assert "program" not in goodput["known_parts"]
    words = world.words()
    assert f"No data: {body['why']}" in words
    assert "known:" in words
    return body


def test_a_job_that_exports_nothing_has_no_program_part_and_the_names_are_given(world):
    body = check_nothing_is_claimed(world, "not_exported", "SETPOINT_GPU_STEP_METRICS")
    assert body["goodput"]["known_parts"] == ["scheduling", "runtime"]
    assert "trainer_step (prime-rl), ray_skyrl_trainer_global_step (SkyRL)" in body["why"]
    assert world.page("").count("/training/live/") == 1


def test_without_a_prometheus_the_reason_is_given(world):
    world.export("train-0")
    answers = world.sim.proxies.answerers["services"]
    real = answers[-1]
    answers[-1] = lambda service, port, path, query: (
        (503, "{}") if path.endswith("range") else real(service, port, path, query)
    )
    check_nothing_is_claimed(world, "unread", "503")
    answers[-1] = real
    assert world.rest()["state"] == "exported"
    TelemetrySource.objects.update(is_enabled=False)
    check_nothing_is_claimed(world, "unread", "switched off")


@pytest.mark.parametrize(
    ("gauge", "why"),
    [(lambda _: 0.0, "not finished a step yet"), (lambda _: 7.0, "Too few steps"), (lambda at: 3.0, "Too few steps")],
)
def test_too_few_steps_are_no_figure(world, gauge, why):
    world.export("train-0", gauge=gauge)
    check_nothing_is_claimed(world, "short", why)


@pytest.mark.parametrize("world", [45], indirect=True)
def test_a_young_job_is_no_figure(world):
    world.export("train-0")
    check_nothing_is_claimed(world, "short", "shorter than a minute")


def test_pods_that_are_hardly_scraped_are_no_figure(world):
    late = world.began + 2400

    def there():
        return [Scraped(target("team", "train-0"), lambda at: [("trainer_step", {}, world.gauge(at))])]

    world.sim.monitoring.scraped.append(there)
    answers = world.sim.proxies.answerers["services"]
    real = answers[-1]

    def since(service, port, path, query):
        if path.endswith("range"):
            query = {**query, "start": str(max(late, float(query["start"])))}
        return real(service, port, path, query)

    answers[-1] = since
    check_nothing_is_claimed(world, "short", "less than half of its running time")


def check_no_share(world, why):
    body = world.rest()
    assert (body["state"], body["goodput"]["program"]["percent"], body["goodput"]["whole"]["percent"]) == (
        "exported", None, None,
    )  # fmt: skip
    assert why in body["goodput"]["program"]["lack"]
    assert body["steps_kept_per_hour"] is None
    assert why in world.words()
    return body


def test_an_elastic_job_has_no_share_where_its_row_does_not_show_when_all_of_its_pods_ran(world):
    GpuJob.objects.update(running_since=None, ran_seconds=600)
    world.export("train-0")
    body = check_no_share(world, "When all of its pods ran at once")
    assert body["running_seconds"] is None


def test_steps_outside_the_running_time_are_no_part_of_the_share(world):
    """One of two pods comes after half of the time, as that of an elastic job; the steps continue from the start."""
    job = GpuJob.objects.get()
    late = world.began + 1800
    pods = [pod._replace(running=int(late)) if pod.name == "train-1" else pod for pod in job.all_pods()]
    since = world.at - timedelta(seconds=1800)
    GpuJob.objects.update(pods=GpuJob.stored(pods), running_since=since, ran_seconds=0)
    world.export("train-0", gauge=lambda at: (at - world.began) // STEP)
    body = world.rest()
    assert body["running_seconds"] == pytest.approx(1800, abs=30)
    assert body["steps_kept"] == pytest.approx(360, abs=8)
    assert body["steps_kept_per_hour"] == pytest.approx(720, rel=0.03)


def test_a_gap_of_prometheus_is_out_of_share_and_rate(world):
    def gauge(at):
        rounds, passed = divmod(at - world.began, 600)
        return float(60 * rounds + min(passed, 300) // STEP)

    world.export("train-0", gauge=gauge)
    whole = world.rest()
    answers = world.sim.proxies.answerers["services"]
    real = answers[-1]

    def holes(service, port, path, query):
        answer = real(service, port, path, query)
        if not path.endswith("range") or answer[0] != 200:
            return answer
        body = json.loads(answer[1])
        for row in body["data"]["result"]:
            row["values"] = [v for v in row["values"] if not 600 < float(v[0]) - world.began < 1800]
        return 200, json.dumps(body)

    answers[-1] = holes
    body = world.rest()
    assert body["steps_kept"] == pytest.approx(whole["steps_kept"], abs=2)
    assert body["running_seconds"] == pytest.approx(2400, abs=45)
    assert body["goodput"]["program"]["percent"] == pytest.approx(whole["goodput"]["program"]["percent"], abs=3)
    assert body["steps_kept_per_hour"] == pytest.approx(whole["steps_kept_per_hour"], rel=0.05)


def test_a_run_that_begins_again_has_no_share_and_takes_nothing_back(world):
    world.export("train-0", gauge=lambda at: (at - world.began) % 1800 // STEP)
    body = check_no_share(world, "began again")
    assert (body["steps_lost"], body["restarts"]) == (0, [])


def test_trials_beside_each_other_are_no_figure(world):
    world.export("train-0")
    world.export("train-1", gauge=lambda at: 0.5 * (at - world.began) // STEP)
    check_nothing_is_claimed(world, "short", "differ by far more")


def test_two_series_of_one_target_are_unread(world):
    world.export("train-0")
    world.export("train-0", labels={"x": "evil"}, gauge=lambda _: 999_999.0)
    check_nothing_is_claimed(world, "unread", "in several series")


def test_of_a_life_longer_than_the_window_the_running_time_is_that_within(world, monkeypatch):
    monkeypatch.setattr(training, "LONGEST", timedelta(minutes=30))
    world.export("train-0", gauge=lambda at: (at - world.began) // STEP)
    body = world.rest()
    assert body["running_seconds"] == pytest.approx(1800, abs=30)
    job = GpuJob.objects.get()
    failed = int(world.began + 2520)  # 12 minutes within the window
    pods = [pod._replace(ended=failed) for pod in job.all_pods()]
    GpuJob.objects.update(pods=GpuJob.stored(pods), running_since=None, ran_seconds=2520)
    body = world.rest()
    assert (body["state"], body["why"]) == ("exported", "")
    assert body["running_seconds"] == pytest.approx(720, abs=30)


def test_a_pod_of_another_job_or_a_forged_label_is_not_read(world):
    world.export("train-00", gauge=lambda at: at - world.began)
    world.export("evil-0", namespace="other", labels={"namespace": "team", "pod": "train-0"})
    labels = target("team", "train-0")
    forged = Scraped({}, lambda _: [("trainer_step", labels, 5.0)])
    world.sim.monitoring.scraped.append(lambda: [forged])
    check_nothing_is_claimed(world, "not_exported", "No target")


def test_a_stranger_sees_nothing_and_unknown_parameters_are_refused(world, django_assert_max_num_queries):
    world.export("train-0")
    assert TokenClient(UserFactory(roles=[])).get(f"/api/v1/gpus/jobs/{world.job.pk}/training").status_code == 403
    assert TokenClient(world.user).get(f"/api/v1/gpus/jobs/{world.job.pk}/training?x=1").status_code == 400
    with django_assert_max_num_queries(30):
        training.of(world.user, GpuJob.objects.select_related("cluster").get())


def test_a_long_life_is_read_in_bounded_points(world):
    at = world.at
    GpuJob.objects.update(started_at=at - timedelta(days=30), queued_at=at - timedelta(days=30))
    world.job.refresh_from_db()
    span = training.span_of(world.job, at)
    assert span.steps <= training.MOST_POINTS + 1
    assert span.step * span.steps == pytest.approx(training.LONGEST.total_seconds(), rel=0.01)
    assert span.end >= at
