"""Hosts of a study that were not answered: tried again while that can help, without loss of what is known."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpus.effects import measures
from gpus.models import StudyNode

MEASURED = {"control": 8, "order": "measured", "seed": 7}
IO, MEMORY = "node_pressure_io_waiting_seconds_total", "node_pressure_memory_waiting_seconds_total"
HOST_NAMES = {measure.name for measure in measures.HOST_MEASURES}


def test_a_prometheus_that_is_down_is_asked_again_for_two_hours(hosted, clock):
    scenario, truth = hosted(12, **MEASURED | {"control": 5})
    truth.is_down = True
    study = scenario.study()
    assert (study.state, study.counts["hosts_left_out"]) == ("measuring", {"not answered": 12})
    assert scenario.effects()["tensor"].verdict not in ("rose", "fell", "inconclusive"), "one verdict, at the end"
    truth.is_down = False
    clock.forward(2460)
    study = scenario.study()
    assert (study.state, study.counts["hosts"]) == ("done", 12)


def test_after_two_hours_a_study_ends_without_its_hosts(hosted, clock):
    scenario, truth = hosted(12, **MEASURED | {"control": 5})
    truth.refused = {IO}
    assert scenario.study().state == "measuring"
    clock.forward(7300)
    study, effects = scenario.study(), scenario.effects()
    assert study.state == "done"
    assert (effects["io_pressure"].verdict, effects["io_pressure"].why[:9]) == ("no data", "Not read:")
    assert effects["cpu_pressure"].verdict == "inconclusive"


@pytest.mark.parametrize(("hours_kept", "state"), [(13.6, "done"), (15, "measuring")])
def test_no_host_is_waited_for_beyond_the_buckets_of_its_gpus(hosted, settings, hours_kept, state):
    """The first window began 13.25 hours ago: a look in half an hour would find a part of it deleted."""
    scenario, truth = hosted(12, **MEASURED | {"control": 5})
    settings.SETPOINT_GPU_BUCKET_DAYS = hours_kept / 24
    truth.is_down = True
    study = scenario.study()
    assert (study.state, study.counts["hosts_left_out"]) == (state, {"not answered": 12})
    assert StudyNode.objects.filter(is_final=state == "done").count() == 12
    assert scenario.effects()["tensor"].devices == 14


def test_a_try_that_fails_takes_no_figure_of_whole_windows_away(hosted, clock):
    scenario, truth = hosted(12, **MEASURED | {"control": 5})
    truth.refused = {IO}
    assert scenario.study().state == "measuring"
    known = StudyNode.objects.get(node_name="n003").host
    assert set(known["figures"]) == HOST_NAMES - {"io_pressure"}
    clock.forward(2460)
    truth.is_down = True
    scenario.study()
    assert StudyNode.objects.get(node_name="n003").host == known
    clock.forward(2460)
    truth.is_down, truth.refused = False, {MEMORY}
    scenario.study()
    assert StudyNode.objects.get(node_name="n003").host == known, "pressure of memory would be lost"
    clock.forward(2460)
    truth.refused = set()
    assert scenario.study().state == "done"
    assert set(StudyNode.objects.get(node_name="n003").host["figures"]) == HOST_NAMES


def test_a_failed_try_leaves_no_figures_of_a_part_of_the_window(hosted, clock):
    scenario, truth = hosted(6, ago=timedelta(hours=2))
    scenario.study()
    assert StudyNode.objects.get(node_name="n003").host["figures"]
    truth.is_down = True
    clock.forward(2460)
    scenario.study()
    assert StudyNode.objects.get(node_name="n003").host["why"] == "not answered"
