"""A real Prometheus over a training job's restart: figures are what the trainer did, computed from its own lives."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from clusters.models import GpuJob, JobPod
from common.clock import now
from gpus.models import TelemetrySource
from gpus.peers.lives import training
from gpus.peers.lives.training import State
from tests.clusters.factories import ClusterFactory
from tests.factories import TokenClient, UserFactory
from tests.full.harness.client import eventually
from tests.full.harness.prometheus import Job, Prometheus

pytestmark = [pytest.mark.full, pytest.mark.django_db]

EVERY, LASTS, STEP = 15, 2 * 3600, 4.0
FAILS, AWAY, LOADS = 4000.0, 90.0, 200.0
"""Seconds from the start: the job fails, nothing is scraped for a while, and a process loads until its first step."""
CHECKPOINT = 700
HIGHEST = (FAILS - LOADS) // STEP
LAST = CHECKPOINT + (LASTS - FAILS - AWAY - LOADS) // STEP


def step(passed: float, behind: float = 0.0) -> float | None:
    """Return the gauge of a rank that is so many seconds behind; None while nothing listens."""
    if passed < FAILS:
        return float(max(0.0, (passed - LOADS - behind) // STEP))
    if passed < FAILS + AWAY:
        return None
    done = (passed - FAILS - AWAY - LOADS - behind) // STEP
    return float(CHECKPOINT + done) if done > 0 else 0.0


def history(end: float, *, ranks: int, name: str, namespace: str = "team") -> str:
    """Return the text of ranks that are scraped at different times, and of `up`, also while they do not listen."""
    lines = []
    for rank in range(ranks):
        target = f'namespace="{namespace}",pod="train-{rank}",instance="10.1.0.{rank}:8000",job="podmonitor/team"'
        times = [end - LASTS + 5 * rank + EVERY * number for number in range(LASTS // EVERY)]
        values = [(at, step(at - (end - LASTS), behind=7.0 * rank)) for at in times]
        lines += [
            f"{name}{{{target}}} {'NaN' if value is None else value} {at:.3f}"
            for at, value in values
            if value is not None or rank == 0
        ]
        lines += [f"up{{{target}}} {int(value is not None)} {at:.3f}" for at, value in values]
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture
def source(settings):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    return TelemetrySource.objects.create(cluster=ClusterFactory(), kind=TelemetrySource.Kind.PROMETHEUS)


def make_job(source: TelemetrySource, start: float, end: float, *, name: str = "train", pods: int = 2) -> GpuJob:
    names = [f"{name}-{n}" for n in range(pods)]
    lives = [JobPod(each, each, "n1", 8, int(start), int(start), int(end), "succeeded", 0) for each in names]
    began, ended = (datetime.fromtimestamp(at, UTC) for at in (start, end))
    return GpuJob.objects.create(
        cluster=source.cluster, key=name, namespace="team", kind="Job", name=name, size=pods, gpus=8 * pods,
        pods_seen=pods, queued_at=began, started_at=began, all_running_at=began, ran_seconds=end - start,
        ended_at=ended, outcome="succeeded", state="ended", pods=GpuJob.stored(lives),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["trainer_step", "ray_skyrl_trainer_global_step", "corp:step"])
def test_a_restart_takes_back_what_lies_behind_its_checkpoint_and_ranks_count_once(source, settings, name):
    settings.SETPOINT_GPU_STEP_METRICS = ["corp:step"]
    end = now().timestamp() // 300 * 300 - 600
    job, user = make_job(source, end - LASTS, end), UserFactory(is_superuser=True)
    with Prometheus([], history(end, ranks=2, name=name)) as server:
        TelemetrySource.objects.update(url=server.url)
        eventually(lambda: training.of(user, job).state == State.EXPORTED)
        body = TokenClient(user).get(f"/api/v1/gpus/jobs/{job.pk}/training").json()
    assert (body["state"], body["metric"], body["ranks"], body["warnings"]) == ("exported", name, 2, [])
    near = 2 * EVERY / STEP
    assert HIGHEST - CHECKPOINT - 2 * near <= body["steps_lost"] <= HIGHEST - CHECKPOINT
    (restart,) = body["restarts"]
    assert restart["highest"] == pytest.approx(HIGHEST, abs=near)
    assert restart["resumed"] == pytest.approx(CHECKPOINT, abs=near)
    assert body["step"] == pytest.approx(LAST, abs=near)
    assert body["step_seconds"] == pytest.approx(STEP, rel=0.03)
    assert body["steps_kept"] == pytest.approx(LAST, abs=2 * near)
    assert body["running_seconds"] == pytest.approx(LASTS, abs=2 * EVERY)
    assert body["goodput"]["program"]["percent"] == pytest.approx(100 * LAST * STEP / LASTS, abs=2)


def test_a_real_scrape_of_another_pod_or_of_a_forged_label_is_not_read(source):
    text = "# TYPE trainer_step gauge\ntrainer_step 5\n"
    forged = '# TYPE trainer_step gauge\ntrainer_step{namespace="team",pod="train-0"} 5\n'
    jobs = [
        Job("10.0.0.1:8000", text, False, {"namespace": "team", "pod": "train-00"}),
        Job("10.0.0.2:8000", forged, True, {"namespace": "evil", "pod": "evil-0"}),
        Job("10.0.0.3:8000", forged, False, {"namespace": "evil", "pod": "evil-1"}),
        Job("10.0.0.4:8000", text, False, {"namespace": "team", "pod": "own-0"}),
    ]
    end = now().timestamp()
    victim, own = (make_job(source, end - 300, end + 600, name=name, pods=1) for name in ("train", "own"))
    user = UserFactory(is_superuser=True)
    with Prometheus(jobs) as server:
        TelemetrySource.objects.update(url=server.url)
        eventually(lambda: training.of(user, own).state == State.SHORT)
        assert training.of(user, victim).state == State.NOT_EXPORTED


def test_two_series_of_one_target_are_unread(source):
    """A pod that is scraped with honorLabels names another one's target; one label more makes it a second series."""
    end = now().timestamp() // 300 * 300 - 600
    job, user = make_job(source, end - LASTS, end), UserFactory(is_superuser=True)
    honest = history(end, ranks=1, name="trainer_step")
    forged = [
        line.replace("}", ',x="evil"}', 1).replace(line.split()[1], "999999", 1)
        for line in honest.splitlines()
        if line.startswith("trainer_step") and "NaN" not in line
    ]
    lines = honest.removesuffix("# EOF\n").splitlines()
    steps = [line for line in lines if line.startswith("trainer_step")]
    text = "\n".join([*steps, *forged, *(line for line in lines if line not in steps), "# EOF", ""])
    with Prometheus([], text) as server:
        TelemetrySource.objects.update(url=server.url)
        eventually(lambda: training.of(user, job).metric is None and "several series" in training.of(user, job).why)
        assert training.of(user, job).state == State.UNREAD
