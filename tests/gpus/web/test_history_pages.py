"""Pages and REST of what GPUs did over time: their figures are those of readings made by hand."""

from __future__ import annotations

import csv
import io
import re
from datetime import timedelta

import pytest
from django.test import Client

from clusters.models import Node, Pool
from gpus.models import GpuBand, TelemetrySource
from gpus.reports import ranges, selectors, state_bands
from jobs.models import Rollout
from profiles.models import Profile, Revision
from tests import crowd
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory
from tests.gpus.recording import PRODUCT, Recording

pytestmark = pytest.mark.django_db
API = "/api/v1/gpus"


@pytest.fixture
def world(clock, settings):
    settings.SETPOINT_GPU_PRICES = {PRODUCT: 2.5}
    world = Recording(clock.at - timedelta(minutes=50), cluster=ClusterFactory(name="atlas"))
    world.held = {("n0", 0): ("team/a", 0.9), ("n0", 1): ("team/a", 0.2), ("n1", 0): ("lab/b", 0.0)}
    world.pods()
    world.store()
    world.go_on(3000)
    assert world.at == clock.at
    world.person = UserFactory(is_superuser=True)
    world.client = Client()
    world.client.force_login(world.person)
    return world


def text(world, path):
    answer = world.client.get(path)
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


@pytest.mark.parametrize("is_old", [False, True])
def test_the_funnel_of_groups_is_that_of_nodes_added_one_by_one(world, is_old):
    Node.objects.filter(name="n1").update(is_cordoned=True, gpu_allocated=3)
    Node.objects.filter(name="n0").update(gpu_count=1)
    if is_old:
        TelemetrySource.objects.update(read_at=world.at - timedelta(minutes=10))
    (group,) = selectors.groups(world.person, selectors.sources(world.person))
    tally = group.tally
    if is_old:
        assert (tally.total, tally.held_unknown, tally.out) == (6, 5, 1)
    else:
        assert (tally.effective, tally.low, tally.held_idle, tally.held_unknown) == (1, 1, 1, 2)
        assert (tally.free, tally.out, tally.total) == (2, 1, 8)


def test_the_hours_of_the_funnel_are_the_readings(world):
    usage = world.client.get(f"{API}/usage?window=24h&by=namespace").json()
    hours = 50 / 60
    assert usage["whole"]["total"] == pytest.approx(8 * hours)
    assert usage["whole"]["effective"] == pytest.approx(hours)
    assert usage["whole"]["held_idle"] == pytest.approx(hours)
    assert usage["whole"]["held_idle_cost"] == pytest.approx(2.5 * hours)
    assert usage["whole"]["kwh"] == pytest.approx((8 * 100 + 600 * 1.1) * hours / 1000)
    parts = {part["name"]: part for part in usage["parts"]}
    assert parts["team"]["allocated"] == pytest.approx(2 * hours)
    assert parts["lab"]["active"] == 0
    assert usage["since"] == "2026-11-21T11:10:00Z"


def test_the_bands_on_the_page_and_over_rest_sum_to_the_capacity(world):
    rows = world.client.get(f"{API}/bands?cluster=atlas&seconds=300").json()
    assert len(rows) == 10
    for row in rows:
        assert sum(row[name] for name in GpuBand.STATES) == pytest.approx(8 * row["recorded"])
    page = world.client.get("/gpus/")
    points = page.context["over"].points
    assert [round(point.total, 6) for point in points] == [8] * 10
    assert [count for _, count in page.context["over"].last] == [1, 1, 1, 5, 0, 0]
    drawn = page.content.decode()
    assert drawn.count('<path class="f-') == 4
    assert "1 effective, 1 low, 1 held idle, 5 free, of 8" in drawn
    assert "style=" not in page.context["over_chart"]


def test_every_window_and_part_is_a_page(world):
    parts = [*state_bands.PARTS]
    for number, (name, preset) in enumerate(ranges.BANDS.presets.items()):
        page = text(world, f"/gpus/?window={name}&by={parts[number % len(parts)]}")
        assert f"{preset.words}: 1 effective of 7 GPU-hours, 1 held idle (about 2 USD), 1 kWh." in page


def test_a_rollout_is_a_mark_where_it_began(world):
    profile = Profile.objects.create(name="tuning")
    revision = Revision.objects.create(profile=profile, number=7, digest="sha256:7", source="", content={})
    pool = Pool.objects.create(cluster=world.cluster, name="all", selector={"matchLabels": {"half": "1"}})
    early, rollout = (crowd.ended_rollout(number, pool, revision, []) for number in (1, 2))
    for begun, hours in ((early, 30), (rollout, 6)):
        Rollout.objects.filter(pk=begun.pk).update(started_at=world.at - timedelta(hours=hours))
    rollout.refresh_from_db()
    page = world.client.get("/gpus/")
    (mark,) = page.context["over"].marks
    assert (mark.rollout, mark.name) == (rollout, "tuning r7")
    x = 100 * ((rollout.started_at - page.context["over"].window.start) / timedelta(days=1))
    assert f'<line class="rev" x1="{x:.2f}%"' in page.content.decode()
    assert world.client.get(f"{API}/usage").json()["rollouts"][0]["rollout"] == str(rollout.pk)


def test_who_holds_gpus_idle_since_when_and_at_what_cost(world):
    body = world.client.get(f"{API}/held-idle").json()
    (row,) = body["pods"]
    assert (row["pod"], row["idle_seconds"], row["is_young"], row["gpus"]) == ("b", 3000, False, 1)
    assert (row["gpu_hours"], row["cost"], row["currency"]) == (pytest.approx(50 / 60, abs=1e-4), 2.08, "USD")
    assert body["cost"] == pytest.approx(2.5 * 50 / 60)
    page = text(world, "/gpus/")
    assert "1 GPU of 1 pod, 1 GPU-hours, about 2 USD so far" in page
    assert "lab/b none n1 atlas 1 100 W 50 min 0.8 2 USD" in page


def test_without_a_price_there_is_no_cost(world, settings):
    settings.SETPOINT_GPU_PRICES = {}
    assert world.client.get(f"{API}/held-idle").json()["cost"] is None
    assert "USD" not in text(world, "/gpus/")


def test_a_young_idler_is_listed_and_not_counted(world, settings):
    settings.SETPOINT_GPU_IDLE_MINUTES = 60
    page = text(world, "/gpus/")
    assert "0 GPUs of 0 pods, 0 GPU-hours so far" in page
    assert "may be loading" in page


def test_the_export_has_every_idler_and_runs_in_no_spreadsheet(world):
    world.held["n1", 1] = ("=lab/c", 0.0)
    world.go_on(60)
    answer = world.client.get(f"{API}/held-idle/export?as=csv&cluster=atlas")
    assert answer["Content-Disposition"].startswith('attachment; filename="setpoint-held-idle-')
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert [(row["namespace"], row["pod"]) for row in rows] == [("lab", "b"), ("'=lab", "c")]
    assert world.client.get(f"{API}/held-idle/export?as=json").json()[1]["namespace"] == "=lab"


def test_the_history_of_devices_is_that_of_their_readings(world):
    (device, *others) = world.client.get(f"{API}/history?cluster=atlas&node=n0&seconds=300&start=1h").json()
    assert len(others) == 3
    assert (device["uuid"], len(device["steps"])) == ("GPU-n0-0", 10)
    assert device["steps"][0]["values"] == {"busy": 0.9, "power": 640}
    assert (device["steps"][0]["covered"], device["steps"][0]["holder"]) == (1, "team/a")


WRONG = (
    ("bands?scope=rack", "scope"),
    ("bands?seconds=60", "seconds"),
    ("bands?start=tomorrow", "start"),
    ("bands?start=9d&seconds=300", "start"),
    ("bands?cluster=nowhere", "cluster"),
    ("bands?rack=1", "rack"),
    ("usage?window=1y", "window"),
    ("usage?window=7d&from=2026-11-21T08:00Z", "window"),
    ("usage?compare=after", "compare"),
    ("usage?from=2026-11-21T08:00Z&zone=Mars/Olympus", "zone"),
    ("usage?to=2026-11-21T08:00Z", "from"),
    ("bands?from=2026-11-21T08:00Z&to=2026-11-21T07:00Z", "to"),
    ("bands?from=2026-11-21T08:00Z&start=24h", "start"),
    ("history?cluster=atlas&node=n0&from=2025-01-01", "from"),
    ("usage?by=rack", "by"),
    ("history?node=n0", "cluster"),
    ("history?cluster=atlas", "node"),
    ("history?cluster=atlas&node=n0&end=30d", "start"),
    ("held-idle?pod=a", "pod"),
    ("held-idle/export?as=xlsx", "as"),
)


def test_what_cannot_be_answered_names_the_parameter(world):
    for path, name in WRONG:
        answer = world.client.get(f"{API}/{path}")
        assert answer.status_code == 400
        assert [error["field"] for error in answer.json()["errors"]] == [name]


def test_nobody_sees_another_clusters_hours(world):
    client = Client()
    client.force_login(UserFactory(roles=["viewer@env:production"]))
    assert client.get(f"{API}/bands").json() == []
    assert client.get(f"{API}/usage").json()["whole"]["total"] == 0
    assert client.get(f"{API}/held-idle").json()["count"] == 0


# ── Time ranges ───────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_custom_range_compares_with_the_period_before_on_the_page_and_over_rest(
    world, clock, django_assert_num_queries
):
    """Readings are alike from 11:10 to 12:00, when one more pod begins to work."""
    world.held["n1", 1] = ("lab/c", 0.9)
    world.go_on(1200)
    clock.forward(seconds=1200)
    query = "from=2026-11-21T12:00Z&to=2026-11-21T12:20Z&compare=before"
    page = world.client.get(f"/gpus/?{query}")
    over = page.context["over"]
    assert (over.window.start.isoformat(), over.window.end.isoformat()) == (
        "2026-11-21T12:00:00+00:00", "2026-11-21T12:20:00+00:00",
    )  # fmt: skip
    rest = world.client.get(f"{API}/usage?{query}").json()
    assert rest["before"]["start"] == "2026-11-21T11:40:00Z"
    assert rest["before"]["recorded_seconds"] == [1200, 1200]
    states = {row.pop("state"): row for row in rest["before"]["states"]}
    assert states["effective"] == {"gpus": 2.0, "gpus_before": 1.0, "difference": 1.0}
    assert states["free"] == {"gpus": 4.0, "gpus_before": 5.0, "difference": -1.0}
    assert rest["whole"]["effective"] == pytest.approx(2 * 20 / 60)
    rows = world.client.get(f"{API}/bands?seconds=300&from=2026-11-21T12:00Z&to=2026-11-21T12:20Z").json()
    assert sum(row["effective"] for row in rows) / 3600 == pytest.approx(rest["whole"]["effective"])
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.content.decode()))
    assert "Effective 2.0 1.0 1.0 higher than before (+100 %)" in words
    assert "Free 4.0 5.0 1.0 lower than before (−20 %)" in words
    assert "Held idle 1.0 1.0 the same as before" in words
    assert 'class="ln before"' in page.content.decode()
    assert world.client.get(f"{API}/usage?window=1h").json()["before"] is None
    for compared in (True, False):
        with django_assert_num_queries(4):
            state_bands.over(world.person, ranges.BANDS.preset("24h", compares=compared), "cluster")


def test_the_figures_in_the_page_are_those_of_the_chart_and_light(world):
    page = world.client.get("/gpus/?window=1h")
    (series,) = re.findall(r'data-series="([^"]*)"', page.content.decode())
    shown = {part.split("|")[0]: part.split("|")[3].split(",") for part in series.split(";")}
    over = page.context["over"]
    first = round((over.points[0].start - over.window.start) / over.window.step)
    assert [shown["Effective"][first + number] for number in range(10)] == ["1"] * 10
    assert shown["Free"][first:] == ["5"] * 10 + [""] * (12 - 10 - first)
    assert len(shown) == 4, "a state that never occurs takes no room"


REFUSED = (
    ("from=2026-11-21T10:00Z&to=2026-11-21T09:00Z", "To"),
    ("from=2026-11-22T10:00Z", "From"),
    ("from=2026-11-21T10:00Z&to=2026-11-23T09:00Z", "To"),
    ("from=rubbish", "From"),
    ("from=2026-11-21T10:00&zone=Atlantis", "Zone"),
    ("window=1y", "Window"),
)


def test_a_range_that_cannot_be_shown_is_refused_by_name_and_nothing_is_lost(world):
    for query, name in REFUSED:
        page = world.client.get(f"/gpus/?by=model&{query}")
        assert page.status_code == 422
        words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.content.decode()))
        assert f"{name}: " in words
        assert "Shown is the last 24 hours." in words
        assert "Where the GPU-hours went" in words
    page = world.client.get(
        f"/gpus/clusters/{world.cluster.pk}/?metric=power&from=2026-11-21T10:00Z&to=2026-11-21T09:00Z"
    )
    assert page.status_code == 422
    html = page.content.decode()
    assert 'name="from" value="2026-11-21T10:00"' in html
    assert 'name="to" value="2026-11-21T09:00"' in html
    assert '<input type="hidden" name="metric" value="power">' in html


def test_links_of_other_parts_keep_the_range(world):
    query = "from=2026-11-21T10:00Z&to=2026-11-21T11:30Z"
    html = world.client.get(f"/gpus/clusters/{world.cluster.pk}/?{query}").content.decode()
    kept = query.replace("&", "&amp;")
    assert f'href="?metric=power&amp;{kept}#heat"' in html
    assert f'href="?{kept}&amp;by=model#usage"' in html
    assert '<input type="hidden" name="from" value="2026-11-21T10:00Z">' in html
