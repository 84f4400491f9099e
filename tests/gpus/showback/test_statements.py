"""Statements of teams: recomputed from the rows of roll-ups by other code, they are the pages' GPU-hours and cost."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.models import Node
from common.errors import Invalid
from gpus.models import GpuBand, GpuPrice, GpuUse, Team, TeamRules
from gpus.reports import ranges, state_bands
from gpus.showback import files, periods, statement, teams
from gpus.storage import retention
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory
from tests.gpus.recording import PRODUCT, Recording

pytestmark = pytest.mark.django_db
H100, A100 = PRODUCT.replace("-", " "), "NVIDIA A100 SXM4 80GB"


def price(amount: str, day: date, model: str = H100, **more) -> GpuPrice:
    kind = "gpu" if model else "energy"
    return GpuPrice.objects.create(
        kind=kind, model=model, amount=Decimal(amount), valid_from=day, created_by="x", **more
    )


@pytest.fixture
def world(clock):
    """Two clusters with two models, workloads that come and go, over midnight, with a change of price at it."""
    clock.at = clock.at.replace(hour=0, minute=20, second=0, microsecond=0)
    begin = clock.at - timedelta(minutes=45)
    first = Recording(begin, cluster=ClusterFactory(name="atlas"))
    second = Recording(begin, nodes=1, cluster=ClusterFactory(name="fjord"))
    Node.objects.filter(name="n1", cluster=first.cluster).update(gpu_product="NVIDIA-A100-SXM4-80GB")
    first.held = {("n0", 0): ("team/a", 0.9), ("n0", 1): ("team/a", 0.2), ("n1", 0): ("lab/b", 0.0)}
    second.held = {("n0", 0): ("lab-eu/c", 0.7), ("n0", 3): ("stray/d", 0.0)}
    for recording in (first, second):
        recording.pods()
        recording.store()
        recording.go_on(1200)
    first.held = {("n0", 0): ("team/a", 0.0), ("n1", 0): ("lab/b", 0.6), ("n1", 3): ("lab/b", 0.6)}
    first.pods()
    first.lose(480)
    for recording in (first, second):
        recording.go_on((clock.at - recording.at).total_seconds())
    today = clock.at.date()
    price("2.5", date(2026, 1, 1))
    price("3.125", today)
    price("1.75", date(2026, 1, 1), cluster=second.cluster)
    price("0.9", date(2026, 1, 1), model=A100)
    price("0.2", date(2026, 1, 1), model="", pue=Decimal("1.4"))
    price("0.31", today, model="", cluster=second.cluster)
    rows = [{"by": "namespace", "pattern": "team", "team": "Research"}]
    rows += [{"by": "namespace", "pattern": "lab*", "team": "Lab"}]
    admin = UserFactory(roles=["admin"])
    teams.add(by=admin, name="Research", budget=Decimal(100))
    teams.add(by=admin, name="Lab")
    teams.save(rows, by=admin, version=0)
    first.person, first.admin, first.other = UserFactory(roles=["viewer"]), admin, second
    return first


def cents(amount) -> Decimal:
    return Decimal(amount).quantize(Decimal("0.01"), ROUND_HALF_UP)


def raw(cluster_prices, start: datetime, end: datetime):
    """GPU-hours and cost by cluster row alone: (hours, cost, idle cost, kWh) from the five-minute bands of models."""
    hours = cost = idle = kwh = 0.0
    for band in GpuBand.objects.filter(scope="model", seconds=300, start__gte=start, start__lt=end).select_related(
        "cluster"
    ):
        of_hour = cluster_prices(band.cluster.name, band.name, band.start.astimezone(UTC).date())
        seconds = sum(getattr(band, state) for state in GpuBand.STATES)
        hours += seconds / 3600
        cost += seconds / 3600 * of_hour
        idle += band.held / 3600 * of_hour
    for band in GpuBand.objects.filter(scope="cluster", seconds=300, start__gte=start, start__lt=end):
        kwh += band.joules / 3.6e6
    return hours, cost, idle, kwh


def test_teams_and_the_rest_sum_to_what_the_pages_of_gpus_show(world, clock):
    today = clock.at.date()

    def listed(cluster, model, day):
        if model == A100:
            return 0.9
        if cluster == "fjord":
            return 1.75
        return 3.125 if day >= today else 2.5

    period = periods.parse("", str(today - timedelta(days=1)), str(today))
    shown = statement.of(world.person, period)
    hours, cost, idle, kwh = raw(listed, clock.at - timedelta(days=1), clock.at + timedelta(days=1))
    assert hours > 8
    assert [line.name for line in shown.lines] == ["Research", "Lab", "Unassigned", "Unheld capacity"]
    assert cents(shown.total.gpu_hours) == cents(hours) == cents(sum(line.gpu_hours for line in shown.lines))
    assert cents(shown.total.gpu_cost) == cents(cost) == cents(sum(line.gpu_cost for line in shown.lines))
    assert cents(shown.total.idle_cost) == cents(idle) == cents(sum(line.idle_cost for line in shown.lines))
    assert cents(shown.total.kwh) == cents(kwh) == cents(sum(line.kwh for line in shown.lines))
    over = state_bands.over(world.person, ranges.BANDS.preset("24h"), "namespace")
    assert cents(over.whole.total) == cents(shown.total.gpu_hours)
    assert cents(over.whole.cost) == cents(shown.total.idle_cost)
    assert cents(over.whole.kwh) == cents(shown.total.kwh)
    assert cents(over.whole.allocated) == cents(sum(line.held for line in shown.lines))
    by_name = defaultdict(float)
    for part in over.parts:
        by_name[{"team": "Research", "stray": "Unassigned"}.get(part.name, "Lab")] += part.allocated
    assert {line.name: cents(line.held) for line in shown.lines[:3]} == {n: cents(h) for n, h in by_name.items()}


def test_energy_costs_what_it_cost_on_its_day_with_what_the_site_adds(world, clock):
    today = clock.at.date()
    for day, amount in ((today - timedelta(days=1), 0.28), (today, 0.28)):
        shown = statement.of(world.person, periods.parse("", str(day), str(day)))
        start = datetime.combine(day, datetime.min.time(), UTC)
        bands = GpuBand.objects.filter(
            scope="cluster", seconds=300, start__gte=start, start__lt=start + timedelta(days=1)
        )
        cost = 0.0
        for band in bands.select_related("cluster"):
            own = band.cluster.name == "fjord" and day == today
            cost += band.joules / 3.6e6 * (0.31 if own else amount)
        assert cents(shown.total.energy_cost) == cents(cost) > 0


def test_a_change_of_price_never_changes_what_is_over(world, clock):
    today = clock.at.date()
    yesterday = periods.parse("", str(today - timedelta(days=1)), str(today - timedelta(days=1)))
    before = [files.record(line, "") for line in statement.of(world.person, yesterday).lines]
    price("99", today + timedelta(days=1))
    GpuPrice.objects.filter(valid_from=today, model=H100).update(amount=77)
    assert [files.record(line, "") for line in statement.of(world.person, yesterday).lines] == before


def test_the_focus_file_sums_to_the_statement_and_keeps_the_rules_of_focus(world, clock):
    today = clock.at.date()
    period = periods.parse("", str(today - timedelta(days=1)), str(today))
    shown = statement.of(world.person, period)
    text = files.as_focus(world.person, period)
    rows = list(csv.DictReader(io.StringIO(text)))
    mandatory = {
        "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd",
        "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargePeriodEnd",
        "ChargePeriodStart", "ContractedCost", "EffectiveCost", "HostProviderName", "InvoiceIssuerName", "ListCost",
        "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "ServiceCategory", "ServiceName",
        "ServiceProviderName",
    }  # fmt: skip
    header = text.splitlines()[0].split(",")
    assert mandatory <= set(header)
    focus = [name for name in header if not name.startswith("x_")]
    assert header == sorted(focus) + sorted(set(header) - set(focus))
    nullable = {"ChargeClass", "SubAccountId", "SubAccountName", "SkuPriceDetails"}
    for row in rows:
        assert {name for name in focus if not row[name]} <= nullable
        begin, end = (datetime.strptime(row[f"ChargePeriod{edge}"], "%Y-%m-%dT%H:%M:%SZ") for edge in ("Start", "End"))
        assert end - begin == timedelta(days=1)
        assert row["BillingPeriodStart"] <= row["ChargePeriodStart"] < row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]
        cost = Decimal(row["ListUnitPrice"]) * Decimal(row["PricingQuantity"])
        assert cost == Decimal(row["ListCost"]) == Decimal(row["ContractedCost"]) == Decimal(row["EffectiveCost"])
        assert "E" not in row["EffectiveCost"]
        assert Decimal(row["BilledCost"]) == 0
    assert cents(sum(Decimal(row["EffectiveCost"]) for row in rows)) == cents(shown.total.cost)
    for line in shown.lines:
        own = [row for row in rows if (row["SubAccountName"] or row["x_Line"]) in (line.name, line.kind)]
        assert cents(sum(Decimal(row["EffectiveCost"]) for row in own)) == cents(line.cost)


def test_a_currency_that_is_no_code_is_refused_in_focus(world, settings, clock):
    settings.SETPOINT_GPU_CURRENCY = "credits"
    with pytest.raises(Invalid) as refused:
        files.as_focus(world.person, periods.parse("", "", ""))
    assert "SETPOINT_GPU_CURRENCY" in str(refused.value.fields)


def test_what_was_held_before_workloads_were_recorded_is_a_line_of_its_own(world, clock):
    today = clock.at.date()
    period = periods.parse("", str(today - timedelta(days=1)), str(today))
    whole = statement.of(world.person, period)
    held = sum(line.held for line in whole.lines)
    GpuUse.objects.filter(day__lt=today).delete()
    shown = statement.of(world.person, period)
    by_kind = {line.kind: line for line in shown.lines}
    assert by_kind["not_attributed"].held > 0.5
    assert cents(sum(line.held for line in shown.lines)) == cents(held)
    assert cents(shown.total.cost) == cents(whole.total.cost) == cents(sum(line.cost for line in shown.lines))


def test_without_a_price_hours_are_counted_and_cost_nothing(world, clock):
    GpuPrice.objects.filter(model=A100).delete()
    shown = statement.of(world.person, periods.parse("", "", ""))
    assert list(shown.unpriced_models) == [A100]
    lab = next(line for line in shown.lines if line.name == "Lab")
    assert 0 < lab.unpriced < lab.gpu_hours
    assert shown.total.gpu_cost < sum(Decimal(str(line.gpu_hours)) for line in shown.lines) * 4
    GpuPrice.objects.all().delete()
    assert statement.of(world.person, periods.parse("", "", "")).total.cost is None


def test_who_sees_one_cluster_has_its_part_and_no_budget(world, clock):
    other = UserFactory(roles=[f"viewer@cluster:{world.other.cluster.pk}"])
    shown = statement.of(other, periods.parse("", "", ""))
    assert {line.name for line in shown.lines} == {"Lab", "Unassigned", "Unheld capacity"}
    assert not shown.sees_all
    assert not shown.has_budgets
    assert statement.of(UserFactory(roles=[]), periods.parse("", "", "")).is_empty


def test_a_budget_is_held_against_gpus_and_energy_of_its_month(world, clock):
    shown = statement.of(world.person, periods.parse("", "", ""))
    research = next(line for line in shown.lines if line.name == "Research")
    assert research.rest == 100 - research.cost
    assert research.severity == ""
    Team.objects.filter(name="Research").update(budget=cents(research.cost * Decimal("1.05")))
    assert _of(world, "Research").severity == "warn"
    Team.objects.filter(name="Research").update(budget=cents(research.cost / 2))
    assert _of(world, "Research").severity == "bad"
    assert _of(world, "Research").rest < 0
    Team.objects.filter(name="Lab").update(budget=5)
    GpuUse.objects.filter(namespace__startswith="lab").delete()
    assert _of(world, "Lab").held == 0
    assert _of(world, "Lab").rest == 5


def _of(world, name):
    shown = statement.of(world.person, periods.parse("", "", ""))
    return next(line for line in shown.lines if line.name == name)


def test_a_month_of_many_workloads_takes_the_same_queries(world, clock):
    def count() -> int:
        with CaptureQueriesContext(
            connection,
        ) as caught:
            statement.of(world.person, periods.parse("", "", ""))
        assert not [query for query in caught.captured_queries if "gpus_gpupacked" in query["sql"]]
        return len(caught)

    count()  # what its person may see is asked once
    few, day = count(), clock.at.date()
    GpuUse.objects.bulk_create(
        GpuUse(cluster=world.cluster, day=day, model=H100, namespace=f"space-{n % 90}", owner=f"Job/j-{n}", held=n)
        for n in range(3000)
    )
    assert count() == few <= 12


def test_an_owner_rule_divides_a_namespace(world, clock):
    GpuUse.objects.filter(namespace="team").update(owner="Job/nightly-1")
    extra = [{"by": "owner", "pattern": "Job/nightly-*", "team": "Lab"}]
    row = teams.current()
    names = teams.names()
    rows = extra + [{**rule, "team": names[rule["team"]]} for rule in row.rules]
    teams.save(rows, by=world.admin, version=row.version)
    shown = statement.of(world.person, periods.parse("", "", ""))
    assert "Research" in {line.name for line in shown.lines}  # its budget, with nothing held
    assert next(line for line in shown.lines if line.name == "Research").held == 0


def test_rows_of_days_go_when_the_bands_of_their_hours_go(world, clock, settings):
    assert GpuUse.objects.exists()
    assert TeamRules.objects.count() == 1
    clock.at += timedelta(days=settings.SETPOINT_GPU_BAND_DAYS + 1)
    retention.forget_old()
    assert not GpuUse.objects.exists()
