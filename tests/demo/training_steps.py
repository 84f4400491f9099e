"""Steps of the demo's training job over its history: read from the cluster's Prometheus, restarts and all."""

from __future__ import annotations

import pytest
from django.test import Client

from accounts.models import User
from clusters.models import GpuJob
from gpus.peers.lives import training
from gpus.peers.lives.training import State
from gpus.services import polling
from simfleet.machines.training_counters import TrainingLoad


@pytest.mark.usefixtures("world")
class TestTrainingSteps:
    def test_the_pretraining_jobs_page_has_its_steps_and_what_restarts_took_back(self) -> None:
        polling.reconcile()  # as the background does: each cluster has a source
        user = User.objects.get(email="admin@example.com")
        job = GpuJob.objects.select_related("cluster").get(cluster__name="atlas-training", name="llm-pretrain")
        steps = training.of(user, job)
        assert steps.state == State.EXPORTED, steps.why
        load = TrainingLoad()
        assert steps.progress.step_seconds == pytest.approx(load.step, rel=0.1)
        assert steps.progress.falls
        assert max(fall.lost for fall in steps.progress.falls) <= (load.fails - load.loads - load.kept) / load.step
        assert steps.program.value == pytest.approx(load.kept / load.fails, abs=0.15)
        client = Client()
        client.force_login(user)
        page = client.get(f"/gpus/jobs/{job.pk}/training/live/").content.decode()
        assert 'data-state="exported"' in page
        assert "trainer_step (prime-rl)" in page
