"""Rules over a board's own counters and states: judged by what is reported, never by what is not."""

from __future__ import annotations

import pytest

from gpus.alerts import hardware, heat, links, rules
from gpus.metrics.samples import Metric
from gpus.models import HostLoad
from notices.alerts import evaluation
from notices.models import Evaluation
from tests.factories import TokenClient, UserFactory

pytestmark = pytest.mark.django_db
M = Metric
A, B, C, D = (f"GPU-n0-{number}" for number in range(4))


def default(name: str) -> float:
    rule = next(rule for rule in rules.rules() if rule.name == name)
    return rule.threshold.default if rule.threshold else 0.0


STATES = {
    # rule: (what makes it wrong, what is fine though close)
    hardware.REMAP: ({M.ROW_REMAP_FAILED: 1}, {M.ROW_REMAP_FAILED: 0}),
    hardware.PENDING: ({M.ROW_REMAP_PENDING: 1}, {M.ROW_REMAP_PENDING: 0}),
    hardware.HEALTH: ({M.DCGM_HEALTH: 20}, {M.DCGM_HEALTH: 10}),
    heat.MEMORY: (
        {M.MEMORY_TEMPERATURE: 90, M.MEMORY_TEMPERATURE_LIMIT: 90},
        {M.MEMORY_TEMPERATURE: 99, M.MEMORY_TEMPERATURE_LIMIT: 105},
    ),
    f"{heat.MEMORY} ": ({M.MEMORY_TEMPERATURE: 95}, {M.MEMORY_TEMPERATURE: 94}),
    heat.HOT: (
        {M.TEMPERATURE: 83, M.SLOWDOWN_TEMPERATURE: 87},
        {M.TEMPERATURE: 86, M.SLOWDOWN_TEMPERATURE: 95},
    ),
    f"{heat.HOT} ": ({M.TEMPERATURE: 60, M.THERMAL_MARGIN: -1}, {M.TEMPERATURE: 99, M.THERMAL_MARGIN: 6}),
    f"{heat.HOT}  ": ({M.TEMPERATURE: 85}, {M.TEMPERATURE: 84}),
    hardware.LINK: (
        {M.PCIE_LINK_WIDTH: 8, M.PCIE_LINK_WIDTH_LIMIT: 16},
        {M.PCIE_LINK_WIDTH: 16, M.PCIE_LINK_WIDTH_LIMIT: 16},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", STATES)
def test_a_state_is_reported_of_the_board_that_has_it_and_of_no_other(boards, case):
    wrong, fine = STATES[case]
    boards.values[A] |= wrong
    boards.values[B] |= fine
    boards.read()
    name = case.strip()
    look = next(rule.look for rule in rules.rules() if rule.name == name)
    result = look(boards.cluster.pk, default(name))
    assert {condition.subject for condition in result.conditions} == {A}
    if name != heat.HOT:  # of which the others report what it needs
        assert result.not_judged.endswith("is not exported of 6 of 8 GPUs.")
        assert result.unknown == boards.values.keys() - {A, B}


def test_a_lower_generation_of_an_idle_board_saves_power_and_proves_nothing(boards):
    lower = {M.PCIE_LINK_WIDTH: 16, M.PCIE_LINK_WIDTH_LIMIT: 16, M.PCIE_LINK_GENERATION: 1}
    for uuid, busy in ((A, 0.9), (B, 0.0)):
        boards.values[uuid] |= {**lower, M.PCIE_LINK_GENERATION_LIMIT: 5, M.BUSY: busy}
    boards.read()
    result = hardware.pcie_link(boards.cluster.pk, 0)
    assert [condition.subject for condition in result.conditions] == [A]
    assert "generation 1, not 5" in result.conditions[0].sentence
    assert B in result.unknown  # an open alert of it stays


@pytest.mark.parametrize(
    ("events", "is_wrong"),
    [
        ({"hw_power_brake": 2}, True),
        ({"hw_slowdown": 2}, True),
        ({"hw_slowdown": 2, "hw_thermal": 2}, False),  # the rule of heat reports it
        ({"hw_power_brake": 1, "hw_thermal": 2}, True),
        ({"power_cap": 9, "gpu_idle": 3}, False),
        ({}, False),
    ],
)
def test_the_hardware_slows_a_board_for_power_and_not_for_heat_alone(boards, events, is_wrong):
    boards.events[A] = events
    boards.read()
    result = heat.slowed_by_hardware(boards.cluster.pk, 0)
    assert ({condition.subject for condition in result.conditions} == {A}) is is_wrong
    assert result.not_judged == "Not judged: DCGM_EXP_CLOCK_EVENTS_COUNT is not exported of 7 of 8 GPUs."


# ── Counters ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_errors_are_judged_by_their_rise_and_a_high_count_that_rests_is_none(boards):
    for uuid in (A, B, C, D):
        boards.values[uuid] |= {M.ECC_UNCORRECTED_VOLATILE: 9}
    boards.read()
    boards.rose(M.ECC_UNCORRECTED_VOLATILE, {A: 1.0, B: 0.0, C: 0.0})
    result = hardware.ecc_uncorrected(boards.cluster.pk, 0)
    assert {condition.subject for condition in result.conditions} == {A}
    assert {D, "GPU-n1-0"} <= result.unknown  # no five minutes of it; it does not count them
    assert not {A, B, C} & result.unknown


def test_a_rise_that_two_steps_share_is_one_and_one_of_long_ago_is_over(boards):
    boards.values[A] |= {M.NVLINK_REPLAYS: 3, M.NVLINK_CRC_ERRORS: 0}
    boards.values[B] |= {M.NVLINK_REPLAYS: 3, M.NVLINK_CRC_ERRORS: 0}
    boards.read()
    boards.rose(M.NVLINK_REPLAYS, {A: 0.0, B: 1.0}, ago=2)
    boards.rose(M.NVLINK_REPLAYS, {A: 0.4, B: 0.0}, ago=1)
    boards.rose(M.NVLINK_REPLAYS, {A: 0.6, B: 0.0}, ago=0)
    assert boards.wrong(hardware.nvlink_errors, 100) == {A}


@pytest.mark.parametrize(
    ("look", "metric", "limit", "rise"),
    [
        (hardware.nvlink_errors, M.NVLINK_CRC_ERRORS, 100, 100 * 300 * 0.5),
        (hardware.pcie_replays, M.PCIE_REPLAYS, 8, 8 * 5 * 0.5),
    ],
)
def test_a_rate_is_of_the_time_that_readings_cover(boards, look, metric, limit, rise):
    for uuid in (A, B):
        boards.values[uuid] |= {metric: 1e6}
    boards.read()
    boards.rose(metric, {A: 1.1 * rise, B: 0.9 * rise}, covered=0.5)
    assert boards.wrong(look, limit) == {A}


# ── What is not exported ──────────────────────────────────────────────────────────────────────────────────────────────
ASKING = {
    hardware.ECC: "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    hardware.PENDING: "DCGM_FI_DEV_ROW_REMAP_PENDING",
    hardware.NVLINK: "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL or DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    links.TRAFFIC: "DCGM_FI_PROF_NVLINK_TX_BYTES or DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    hardware.LINK: "DCGM_FI_DEV_PCIE_LINK_WIDTH",
    heat.HELD_BACK: "DCGM_FI_DEV_THERMAL_VIOLATION",
    heat.SLOWDOWN: "DCGM_EXP_CLOCK_EVENTS_COUNT",
    hardware.HEALTH: "DCGM_EXP_GPU_HEALTH_STATUS",
}


def test_what_is_not_exported_is_said_and_neither_opens_nor_closes_anything(boards, client):
    HostLoad.objects.create(cluster=boards.cluster, sentence="There is no Prometheus.")
    boards.values[A] |= {M.DCGM_HEALTH: 20}
    boards.read()
    evaluation.reconcile()
    assert evaluation.evaluate(boards.cluster.pk)
    assert set(boards.cluster.alerts.values_list("rule", "status")) == {(hardware.HEALTH, "open")}
    del boards.values[A][M.DCGM_HEALTH]
    boards.read()
    Evaluation.objects.update(due_at=boards.cluster.observed_at)
    assert evaluation.evaluate(boards.cluster.pk)
    (alert,) = boards.cluster.alerts.all()
    assert (alert.status, alert.is_unknown, alert.well_since) == ("open", True, None)

    user = UserFactory(roles=["viewer"])
    rows = TokenClient(user).get(f"/api/v1/clusters/{boards.cluster.pk}/alert-rules").json()["results"]
    not_judged = {row["name"]: row["not_judged"] for row in rows if row["not_judged"]}
    for rule, metric in ASKING.items():
        assert not_judged.pop(rule) == f"Not judged: {metric} is not exported of any of 8 GPUs."
    assert "thermal" not in not_judged
    assert not Evaluation.objects.get().blind
    everywhere = TokenClient(user).get("/api/v1/alert-rules").json()["results"]
    assert {row["not_judged"] for row in everywhere} == {""}
    client.force_login(user)
    page = client.get("/alerts/rules/?cluster=atlas").content.decode()
    assert page.count("Not judged</span>") == len(ASKING) + len(not_judged)
    assert "Some conditions cannot be evaluated" not in client.get("/alerts/").content.decode()


def test_each_rule_names_the_source_of_its_limit():
    from gpus.alerts import nodes

    sources = hardware.SOURCES | heat.SOURCES | links.SOURCES | nodes.SOURCES
    named = {rule.name for module in (hardware, heat, links, nodes) for rule in module.rules()}
    assert named - {heat.HELD_BACK} == sources.keys()
