"""Hosts as measures of a study: the same windows, one family, a direction, and nothing where nothing was read."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client

from clusters.fleet import Reply
from clusters.models import Node
from common.clock import now
from common.errors import Invalid
from gpus.effects import estimation, host_readings, measures, reports, studies
from gpus.effects.estimation import Pair
from gpus.metrics import boards
from gpus.models import Study, StudyEffect, StudyNode, TelemetrySource
from jobs.forecast import strategy
from jobs.web.forms import PlanForm
from tests.factories import TokenClient, UserFactory
from tests.gpus.hosts_answering import CALM

MEASURED = {"control": 8, "order": "measured", "seed": 7}
IO, MEMORY = "node_pressure_io_waiting_seconds_total", "node_pressure_memory_waiting_seconds_total"
SECONDS, READS = "node_disk_read_time_seconds_total", "node_disk_reads_completed_total"
RDMA = "node_infiniband_port_data_received_bytes_total"
HOST_NAMES = {measure.name for measure in measures.HOST_MEASURES}


# ── figures ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_gpus_that_wait_less_for_data_are_shown_by_their_hosts(hosted):
    scenario, truth = hosted(24, **MEASURED)
    truth.after = {IO: 0.25, SECONDS: 0.5}
    study, effects = scenario.study(), scenario.effects()
    assert (study.state, study.counts["hosts"], study.counts["hosts_left_out"]) == ("done", 24, {})
    assert (effects["io_pressure"].verdict, effects["read_latency"].verdict) == ("fell", "fell")
    assert effects["io_pressure"].points == pytest.approx(-0.15, abs=0.02)
    assert effects["read_latency"].ratio == pytest.approx(-0.5, abs=0.02)
    assert effects["read_latency"].before == pytest.approx(1.0, rel=0.001), "milliseconds of a read"
    assert effects["net_received"].before == pytest.approx(250, rel=0.15), "MB/s"
    assert effects["rdma_received"].verdict == "inconclusive"
    assert (effects["io_pressure"].devices, effects["io_pressure"].control_devices) == (16, 8)
    assert {name for name, row in effects.items() if row.is_primary} == {"ofu"}


@pytest.mark.parametrize(
    ("measure", "verdict", "look"),
    [
        ("io_pressure", "fell", "fell-good"),
        ("memory_pressure", "rose", "rose-bad"),
        ("read_latency", "rose", "rose-bad"),
        ("rdma_received", "rose", "rose-good"),
        ("net_received", "rose", "rose"),
    ],
)
def test_each_has_a_direction_that_is_better(measure, verdict, look):
    row = StudyEffect(measure=measure, verdict=verdict, points=0.1, points_low=0.05, points_high=0.2)
    assert reports.lines([row])[0].look == look


def test_figures_are_of_the_windows_of_the_gpus_and_of_held_times_alone(hosted):
    """Half an hour in each window is read; in the rest nothing is known, and it is not taken as zero."""
    scenario, truth = hosted(6)
    began = {row.name: scenario.truth.changed_at[row.name] for row in scenario.nodes}
    near = timedelta(minutes=50)
    truth.lost = lambda node, at: not began[node] - near <= at < began[node] + near
    scenario.study()
    host = StudyNode.objects.get(node_name="n003").host
    first, second = host["figures"]["io_pressure"]
    assert first == pytest.approx(CALM[IO] * 1.06, rel=0.03)
    assert second == pytest.approx(first, rel=0.03)
    assert host["day_before"] == {}
    truth.lost = lambda _node, _at: False
    Study.objects.update(due_at=now())
    StudyNode.objects.update(is_final=False, until=None)
    scenario.truth.free = {"n003"}
    scenario.study()
    assert StudyNode.objects.get(node_name="n003").host == {}, "no GPU of it was held"


def test_fifteen_minutes_in_each_window_are_the_least(hosted):
    scenario, truth = hosted(6)
    changed = scenario.truth.changed_at["n003"]
    truth.lost = lambda node, at: node == "n003" and at < changed - timedelta(minutes=15)
    study = scenario.study()
    assert StudyNode.objects.get(node_name="n003").host["why"] == "too few figures"
    assert study.counts["hosts_left_out"] == {"too few figures": 1}
    assert scenario.effects()["io_pressure"].devices == 5


def test_an_ordinary_rollout_has_the_day_before_and_the_rest_of_the_fleet_and_no_verdict(hosted):
    scenario, truth = hosted(12)
    truth.after = {IO: 0.5}
    scenario.study()
    row = scenario.effects()["io_pressure"]
    assert row.verdict == "lower"
    assert row.day_before == pytest.approx(row.before, rel=0.05)
    assert row.day_before_change == pytest.approx(row.points, abs=0.02)
    assert row.confidence == 0.95


def test_no_reads_have_no_latency_and_a_share_is_at_most_all_of_the_time(hosted):
    scenario, truth = hosted(6)
    truth.after = {READS: 0.0, SECONDS: 0.0, IO: 9.0}
    scenario.study()
    host = StudyNode.objects.get(node_name="n001").host
    assert "read_latency" not in host["figures"]
    assert host["figures"]["io_pressure"][1] == 1.0


# ── what is not read ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_no_exporter_prints_is_no_data_and_makes_nothing_stricter(hosted):
    scenario, truth = hosted(24, **MEASURED)
    truth.silent[""] = {RDMA, MEMORY}
    scenario.study()
    effects = scenario.effects()
    for name, metric in (("rdma_received", RDMA), ("memory_pressure", MEMORY)):
        row = effects[name]
        assert (row.verdict, row.why) == ("no data", f"Prometheus has no {metric} of these nodes.")
        assert (row.before, row.after, row.points, row.devices) == (None, None, None, 0)
    others = 5 + len(HOST_NAMES) - 2
    assert effects["tensor"].confidence == pytest.approx(1 - 0.05 / others)
    assert effects["io_pressure"].confidence == pytest.approx(1 - 0.05 / others)


def test_a_measure_of_one_arm_alone_is_not_judged_and_makes_nothing_stricter(hosted):
    scenario, truth = hosted(24, **MEASURED)
    truth.silent |= {name: {RDMA} for name in scenario.truth.changed_at}
    scenario.study()
    effects = scenario.effects()
    assert effects["rdma_received"].verdict == "no data"
    assert "nodes with readings" in effects["rdma_received"].why
    assert effects["tensor"].confidence == pytest.approx(1 - 0.05 / (5 + len(HOST_NAMES) - 1))


@pytest.mark.parametrize(("control", "others"), [(4, 10), (5, 11)])
def test_a_measure_of_too_few_nodes_in_an_arm_makes_nothing_stricter(hosted, control, others):
    scenario, truth = hosted(24, **MEASURED)
    held_back = [row.name for row in scenario.nodes if row.name not in scenario.truth.changed_at]
    truth.silent |= {name: {RDMA} for name in held_back[control:]}
    scenario.study()
    effects = scenario.effects()
    assert (effects["rdma_received"].verdict == "no interval") is (control == 4)
    assert effects["tensor"].confidence == pytest.approx(1 - 0.05 / others)


@pytest.mark.parametrize("kind", ["none", "disabled", "exporters"])
def test_without_a_prometheus_the_study_is_of_gpus_alone_and_says_so(worked, kind):
    scenario = worked(24, **MEASURED)
    if kind != "none":
        changes = {"is_enabled": False} if kind == "disabled" else {"kind": "exporters"}
        TelemetrySource.objects.create(cluster=scenario.cluster, **changes)
    study, effects = scenario.study(), scenario.effects()
    assert (study.state, set(effects) & HOST_NAMES) == ("done", set())
    assert effects["tensor"].confidence == pytest.approx(0.99)
    assert study.counts["hosts_left_out"] == {"no Prometheus": 24}
    assert any("has no Prometheus" in text for text in reports.left_out(study))


def test_hosts_that_no_target_is_named_after_are_counted(hosted):
    scenario, truth = hosted(12)
    truth.nameless = {"n001", "n002"}
    study = scenario.study()
    assert (study.counts["hosts"], study.counts["hosts_left_out"]) == (10, {"no target": 2})
    assert "No target of the node exporter is n001" in StudyNode.objects.get(node_name="n001").host["detail"]
    assert scenario.effects()["io_pressure"].devices == 10
    assert scenario.effects()["tensor"].clusters == 12


def test_one_target_of_two_nodes_is_of_neither(hosted):
    scenario, truth = hosted(6)
    Node.objects.filter(name="n001").update(labels={"kubernetes.io/hostname": "n000"})
    truth.nameless = {"n001"}
    assert scenario.study().counts["hosts_left_out"] == {"no target": 2}
    details = set(StudyNode.objects.filter(node_name__in=["n000", "n001"]).values_list("host__detail", flat=True))
    assert details == {"One target of the node exporter has the names of several nodes."}


def test_an_exporter_that_restarts_at_the_end_is_still_found(hosted, monkeypatch):
    scenario, truth = hosted(6)
    answer = truth.ask

    def ask(path, parameters, limit, seconds):
        gone = "node_uname_info" in parameters["query"] and float(parameters["time"]) > now().timestamp() - 3600
        truth.nameless = {"n001"} if gone else set()
        return answer(path, parameters, limit, seconds)

    monkeypatch.setattr(truth, "ask", ask)
    assert scenario.study().counts["hosts_left_out"] == {}


def test_secrets_of_an_answer_are_not_stored(hosted, settings):
    scenario, truth = hosted(6)
    source = TelemetrySource.objects.get()
    source.set_secret("s3cret-token")
    source.save()
    truth.ask = lambda *_args: host_answer(500, '{"error":"try s3cret-token <b>later</b>"}')
    scenario.study()
    detail = StudyNode.objects.first().host["detail"]
    assert detail
    assert "s3cret" not in detail
    assert "<b>" not in detail


def host_answer(status: int, body: str):
    return Reply(status, body.encode())


@pytest.mark.parametrize("body", ["<h1>log in</h1>", '{"data":{"result":[{"metric":3,"value":[1,"2"]}]}}', "[]", ""])
def test_rubbish_is_no_figure(hosted, body):
    scenario, truth = hosted(6)
    truth.ask = lambda *_args: host_answer(200, body)
    study = scenario.study()
    assert study.counts["hosts"] == 0
    assert set(scenario.effects()) & HOST_NAMES == set()
    assert scenario.effects()["tensor"].devices == 12


# ── one family ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_names_the_primary_measure_and_all_others_are_corrected(hosted):
    scenario, truth = hosted(24, **MEASURED, primary_measure="io_pressure")
    truth.after = {IO: 0.5}
    study, effects = scenario.study(), scenario.effects()
    assert study.primary_measure == "io_pressure"
    assert [name for name, row in effects.items() if row.is_primary] == ["io_pressure"]
    assert effects["io_pressure"].confidence == 0.95
    assert {row.confidence for name, row in effects.items() if name != "io_pressure"} == {1 - 0.05 / 11}
    shown = reports.of_rollout(UserFactory(is_superuser=True), scenario.rollout)
    assert shown["primary"] == "I/O pressure"


def test_a_named_measure_without_figures_stays_the_primary_one(hosted):
    """Another one in its place would be chosen by what was seen."""
    scenario, truth = hosted(24, **MEASURED, primary_measure="rdma_received")
    truth.silent[""] = {RDMA}
    lost, row = scenario.study().counts["attrition"], scenario.effects()["rdma_received"]
    assert (row.is_primary, row.verdict) == (True, "no data")
    assert (lost["treated"]["lost"], lost["control"]["lost"]) == (16, 8)
    assert {other.confidence for other in StudyEffect.objects.exclude(measure="rdma_received")} == {1 - 0.05 / 11}


def test_a_named_measure_of_gpus_that_none_reports_is_said_to_have_no_data(hosted, monkeypatch):
    scenario, _truth = hosted(24, **MEASURED, primary_measure="ofu")
    monkeypatch.setattr(boards, "ofu", lambda *_args: None)
    scenario.study()
    (row,) = [row for row in scenario.effects().values() if row.is_primary]
    assert (row.measure, row.verdict, row.why[:26]) == ("ofu", "no data", "No GPU has it in both wind")


def test_exporters_lost_in_one_arm_are_attrition_where_hosts_are_what_it_is_about(hosted):
    scenario, truth = hosted(24, **MEASURED, primary_measure="io_pressure")
    names = sorted(scenario.truth.changed_at)[:9]
    truth.lost = lambda node, at: node in names and at >= scenario.truth.changed_at[node]
    lost = scenario.study().counts["attrition"]
    assert (lost["treated"]["lost"], lost["control"]["lost"], lost["is_uneven"]) == (9, 0, True)
    assert lost["treated"]["why"] == {"too few figures": 9}


def test_a_study_of_before_keeps_its_family(hosted):
    scenario, truth = hosted(24, **MEASURED)
    studies.adopt()
    Study.objects.update(has_hosts=False)
    effects = (scenario.study(), scenario.effects())[1]
    assert set(effects) & HOST_NAMES == set()
    assert effects["tensor"].confidence == pytest.approx(0.99)
    assert truth.asked == []


def test_of_two_workers_one_asks_prometheus(hosted):
    scenario, truth = hosted(6)
    studies.adopt()
    first, second = (studies.find(scenario.rollout.pk) for _ in range(2))
    assert studies.advance(first)
    queries = len(truth.asked)
    assert (studies.advance(second), len(truth.asked)) == (False, queries)


def test_queries_of_a_slice_are_few_and_short(hosted):
    scenario, truth = hosted(64, ago=timedelta(hours=10))
    scenario.study()
    ranges = [query for query in truth.asked if "start" in query]
    assert len(ranges) == 2 * len(host_readings.QUERIES), "two groups of hosts, all windows at once"
    assert max(len(query["query"]) for query in truth.asked) < 2500
    steps = max((float(query["end"]) - float(query["start"])) / float(query["step"]) for query in ranges)
    assert steps < 600
    for query in ranges:
        assert float(query["end"]) <= now().timestamp()


def test_a_job_over_several_nodes_is_one_proof_of_its_hosts_too(hosted):
    scenario, _truth = hosted(12)
    scenario.truth.holder = {f"n{i:03}": f"team/pretrain-{i}" for i in range(12)}
    scenario.study()
    row = scenario.effects()["io_pressure"]
    assert (row.devices, row.clusters, row.points_low) == (12, 1, None)


# ── plan, page and REST ───────────────────────────────────────────────────────────────────────────────────────────────


def test_plans_take_every_measure_and_refuse_others():
    titles = {name: title for name, title in strategy.PRIMARY_MEASURES.items() if name}
    assert list(titles) == [measure.name for measure in measures.MEASURES]
    for measure in measures.MEASURES:
        assert titles[measure.name].startswith(measure.title)
        assert strategy.parse({"primary_measure": measure.name}).primary_measure == measure.name
    assert strategy.parse({}).primary_measure == ""
    for wrong in ("latency", "OFU", 3, None, ["ofu"], {}):
        with pytest.raises(Invalid) as refused:
            strategy.parse({"primary_measure": wrong})
        assert list(refused.value.fields) == ["strategy.primary_measure"]


@pytest.mark.django_db
def test_the_form_of_a_plan_offers_them():
    field = PlanForm(user=UserFactory(is_superuser=True)).fields["primary_measure"]
    assert [name for name, _ in field.choices] == list(strategy.PRIMARY_MEASURES)


def test_page_and_rest_show_hosts_with_their_units(hosted):
    scenario, truth = hosted(24, **MEASURED)
    truth.after, truth.silent[""] = {IO: 0.25}, {RDMA}
    scenario.study()
    user = UserFactory(is_superuser=True)
    client = Client()
    client.force_login(user)
    text = client.get(f"/rollouts/R-{scenario.rollout.number}/").content.decode()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))
    assert "16 hosts, 16 nodes or jobs; control 8, 8 nodes or jobs" in text
    assert f"Prometheus has no {RDMA} of these nodes." in text
    assert "1.00 ms" in text
    assert "Hosts are read from Prometheus" in text
    api = TokenClient(user)
    body = api.get(f"/api/v1/gpus/effects/{scenario.rollout.pk}").json()
    assert (body["primary_measure"], body["hosts"], body["hosts_left_out"]) == ("", 24, {})
    rows = {row["measure"]: row for row in body["effects"]}
    assert {name: (rows[name]["subject"], rows[name]["unit"], rows[name]["better"]) for name in HOST_NAMES} == {
        "io_pressure": ("host", "share", "lower"), "memory_pressure": ("host", "share", "lower"),
        "cpu_pressure": ("host", "share", "lower"), "read_latency": ("host", "ms", "lower"),
        "net_received": ("host", "MB/s", "neither"), "rdma_received": ("host", "MB/s", "higher"),
    }  # fmt: skip
    nodes = api.get(f"/api/v1/gpus/effects/{scenario.rollout.pk}/nodes?limit=100").json()["results"]
    again = estimation.difference_in_differences(
        [
            Pair(before, after, node["node_name"], node["stratum"], node["is_treated"])
            for node in nodes
            for before, after in [node["host"]["figures"]["io_pressure"]]
        ],
        by_points=True,
        confidence=rows["io_pressure"]["confidence"],
    )
    assert rows["io_pressure"]["points_high"] == pytest.approx(again.points_interval.high)


def test_a_study_of_before_is_shown_over_rest(worked):
    scenario = worked(6)
    scenario.study()
    StudyNode.objects.update(host={})
    Study.objects.update(counts={"nodes": 6})
    api = TokenClient(UserFactory(is_superuser=True))
    body = api.get(f"/api/v1/gpus/effects/{scenario.rollout.pk}").json()
    assert (body["hosts"], body["hosts_left_out"]) == (0, {})
    (first, *_) = api.get(f"/api/v1/gpus/effects/{scenario.rollout.pk}/nodes").json()["results"]
    assert first["host"] == {"why": "", "detail": "", "figures": {}, "day_before": {}, "lacks": {}}
