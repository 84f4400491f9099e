"""/metrics for Prometheus: how much is in which state, counted in the database when asked.

Numbers about the fleet are confidential: with SETPOINT_METRICS_TOKEN the scraper must present it; without, only
direct connections from this machine are answered (a proxy on this machine adds X-Forwarded-For, and is refused).
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_address

from django.conf import settings
from django.db.models import Count, Max, Min
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from audit.models import Chain, Record, Refusal
from audit.sealing import SKEW
from clusters.connection import expiry
from clusters.models import Cluster, Node, RowCheck, unavailable_now
from clusters.watch import sharing
from common.clock import now
from common.errors import NotAllowed
from compliance.models import ComponentStanding, SettingState
from gpus.models import TelemetrySource
from jobs.engine import sweeping
from jobs.models import BreakGlass, Plan, PlanRequest, Rollout, Slot, Step
from notices.forwarding import shipping
from notices.models import Alert, Channel, Delivery, Evaluation


class States(Collector):
    """A dozen grouped counts, each over an index; none reads a row's content."""

    def collect(self) -> Iterator[Metric]:
        yield from self._fleet()
        yield from self._watchers()
        yield from self._rows()
        yield from self._work()
        yield from self._broker()
        yield from self._telemetry()
        yield from self._notices()
        yield from self._audit()

    def _credentials(self) -> Iterator[Metric]:
        refused = GaugeMetricFamily(
            "setpoint_cluster_credential_refused",
            "Whether the API server refuses the stored credential, or shows a certificate that is not trusted.",
            labels=["cluster"],
        )
        ends = GaugeMetricFamily(
            "setpoint_cluster_credential_expires_timestamp_seconds",
            "When a token or certificate of a cluster ends, in Unix time.",
            labels=["cluster", "credential"],
        )
        for cluster, endings in expiry.of_clusters(Cluster.objects.defer("credential")).items():
            refused.add_metric([cluster.name], cluster.refused_since is not None)
            for ending in endings:
                ends.add_metric([cluster.name, ending.what], ending.at.timestamp())
        yield refused
        yield ends

    def _fleet(self) -> Iterator[Metric]:
        clusters = GaugeMetricFamily("setpoint_clusters", "Clusters by reachability.", labels=["reach"])
        for reach, n in Cluster.objects.values_list("reach").annotate(n=Count("pk")).order_by():
            clusters.add_metric([reach], n)
        yield clusters
        yield from self._credentials()
        nodes = GaugeMetricFamily("setpoint_nodes", "Nodes by cluster and state.", labels=["cluster", "state"])
        unavailable = Count("pk", filter=unavailable_now())
        present = Node.objects.present().values_list("cluster__name")
        for cluster, n, out in present.annotate(n=Count("pk"), out=unavailable).order_by():
            nodes.add_metric([cluster, "available"], n - out)
            nodes.add_metric([cluster, "unavailable"], out)
        yield nodes
        settings_ = GaugeMetricFamily("setpoint_settings", "Assigned settings by state.", labels=["state"])
        for state, n in SettingState.objects.values_list("state").annotate(n=Count("pk")).order_by():
            settings_.add_metric([state], n)
        yield settings_
        components = GaugeMetricFamily(
            "setpoint_components", "Assigned components by cluster and state.", labels=["cluster", "state"]
        )
        standings = ComponentStanding.objects.values_list("cluster__name", "state")
        for cluster, state, n in standings.annotate(n=Count("pk")).order_by():
            components.add_metric([cluster, state], n)
        yield components
        observed = GaugeMetricFamily(
            "setpoint_observed_age_seconds",
            "Since a cluster's rows were last known to be true.",
            labels=["cluster"],
        )
        for name, at in Cluster.objects.values_list("name", "observed_at"):
            if at is not None:
                observed.add_metric([name], (now() - at).total_seconds())
        yield observed

    def _watchers(self) -> Iterator[Metric]:
        """Clusters by watching process, and their number of nodes (clusters.watch.sharing)."""
        held = GaugeMetricFamily("setpoint_watch_clusters", "Clusters that a process watches.", labels=["watcher"])
        weight = GaugeMetricFamily(
            "setpoint_watch_weight",
            "Nodes of the clusters that a process watches, and one a cluster.",
            labels=["watcher"],
        )
        for owner, of in sorted(sharing.loads().items()):
            held.add_metric([owner], len(of))
            weight.add_metric([owner], sum(of.values()))
        yield from (held, weight)

    def _rows(self) -> Iterator[Metric]:
        """Comparisons of names and versions in each cluster with the rows (clusters.watch.anti_entropy)."""
        labels = ["cluster", "kind"]
        checks = CounterMetricFamily("setpoint_rows_checks", "Comparisons of rows with their objects.", labels=labels)
        age = GaugeMetricFamily("setpoint_rows_check_age_seconds", "Since rows were last compared.", labels=labels)
        differed = CounterMetricFamily(
            "setpoint_rows_differed",
            "Rows that were missing, behind, orphaned, misread or altered, and that were read again.",
            labels=[*labels, "difference"],
        )
        values = CounterMetricFamily(
            "setpoint_rows_values_compared", "Rows whose values were held against their objects.", labels=labels
        )
        unmended = CounterMetricFamily("setpoint_rows_unmended", "Rows that differed even after that.", labels=labels)
        for row in RowCheck.objects.exclude(checked_at=None).select_related("cluster"):
            of = [row.cluster.name, row.kind]
            checks.add_metric(of, row.checks)
            age.add_metric(of, (now() - row.checked_at).total_seconds() if row.checked_at else 0.0)
            unmended.add_metric(of, row.unmended)
            values.add_metric(of, row.values_compared)
            for difference in RowCheck.COUNTED:
                differed.add_metric([*of, difference], getattr(row, difference))
        yield from (checks, age, differed, values, unmended)

    def _work(self) -> Iterator[Metric]:
        for name, model in (("plans", Plan), ("rollouts", Rollout), ("steps", Step)):
            states = GaugeMetricFamily(f"setpoint_{name}", f"{name.capitalize()} by status.", labels=["status"])
            rows = model._default_manager.values_list("status").annotate(n=Count("pk")).order_by()
            for status, n in rows:
                states.add_metric([status], n)
            yield states
        yield from _plan_requests()
        yield from self._glass()
        slots = GaugeMetricFamily("setpoint_slots_held", "Nodes that steps may disturb now.", labels=["cluster"])
        for cluster, n in Slot.objects.values_list("cluster__name").annotate(n=Count("pk")).order_by():
            slots.add_metric([cluster], n)
        yield slots

    def _broker(self) -> Iterator[Metric]:
        since = sweeping.slower_since()
        away = (now() - since).total_seconds() if since else 0.0
        yield GaugeMetricFamily(
            "setpoint_broker_away_seconds",
            "Since a worker finds what is due in the database, because no message arrives; 0: messages arrive.",
            value=away,
        )

    def _glass(self) -> Iterator[Metric]:
        states = Counter(row.state for row in BreakGlass.objects.lacking_reviews())
        family = GaugeMetricFamily(
            "setpoint_break_glass_reviews", "Starts by break-glass that lack reviews.", labels=["state"]
        )
        for state in ("open", "overdue"):
            family.add_metric([state], states[state])
        yield family
        yield GaugeMetricFamily(
            "setpoint_break_glass_starts_24h",
            "Starts by break-glass of the last 24 hours, of SETPOINT_BREAK_GLASS_PER_DAY.",
            value=len(BreakGlass.objects.recent()),
        )

    def _telemetry(self) -> Iterator[Metric]:
        """Measures of Setpoint's own reading, per cluster; metrics of the GPUs are their exporters' to publish."""
        gauges = (
            ("devices", "GPUs and MIG instances in the last reading."),
            ("series", "Series of the last reading."),
            ("ticks_total", "Readings that ended."),
            ("failures_total", "Readings that read nothing."),
            ("dropped_total", "Series that were left out."),
        )
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {
            name: (CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily)(
                f"setpoint_gpu_telemetry_{name.removesuffix('_total')}", help_, labels=["cluster"]
            )
            for name, help_ in gauges
        }
        seconds = GaugeMetricFamily(
            "setpoint_gpu_telemetry_seconds", "What the last reading took, storing included.", labels=["cluster"]
        )
        age = GaugeMetricFamily("setpoint_gpu_telemetry_age_seconds", "Since GPUs were last read.", labels=["cluster"])
        lag = GaugeMetricFamily(
            "setpoint_gpu_telemetry_lag_seconds", "How long a reading has been due, not begun.", labels=["cluster"]
        )
        for source in TelemetrySource.objects.exclude(tried_at=None).select_related("cluster"):
            name = source.cluster.name
            for column, family in families.items():
                family.add_metric([name], getattr(source, column.removesuffix("_total")))
            seconds.add_metric([name], source.milliseconds / 1000)
            is_due = source.is_enabled and source.claimed_until is None
            lag.add_metric([name], max(0.0, (now() - source.due_at).total_seconds()) if is_due else 0.0)
            if source.read_at is not None:
                age.add_metric([name], (now() - source.read_at).total_seconds())
        yield from (*families.values(), seconds, age, lag)

    def _notices(self) -> Iterator[Metric]:
        labels = ["cluster", "rule", "severity", "status"]
        alerts = GaugeMetricFamily(
            "setpoint_alerts", "Alerts that are open, or not yet for long enough.", labels=labels
        )
        live = Alert.objects.filter(status__in=Alert.LIVE).values_list("cluster__name", *labels[1:])
        for *values, n in live.annotate(n=Count("pk")).order_by():
            alerts.add_metric(values, n)
        yield alerts
        age = GaugeMetricFamily(
            "setpoint_alerts_age_seconds", "Since a cluster was last held against the rules.", labels=["cluster"]
        )
        looks = CounterMetricFamily("setpoint_alerts_looks", "Looks at a cluster that ended.", labels=["cluster"])
        failures = CounterMetricFamily("setpoint_alerts_failures", "Rules that failed in a look.", labels=["cluster"])
        for row in Evaluation.objects.exclude(looked_at=None).select_related("cluster"):
            name = row.cluster.name
            age.add_metric([name], (now() - row.looked_at).total_seconds() if row.looked_at else 0.0)
            looks.add_metric([name], row.looks)
            failures.add_metric([name], row.failures)
        yield from (age, looks, failures)
        deliveries = GaugeMetricFamily(
            "setpoint_deliveries", "Notices that are kept, by channel and status.", labels=["channel", "status"]
        )
        kept = Delivery.objects.values_list("channel__name", "status").annotate(n=Count("pk"))
        for channel, status, n in kept.order_by():
            deliveries.add_metric([channel, status], n)
        yield deliveries
        failing = GaugeMetricFamily(
            "setpoint_channel_failing_seconds", "For how long a receiver takes nothing; 0: it does.", labels=["channel"]
        )
        for name, since in Channel.objects.filter(is_enabled=True).values_list("name", "failing_since"):
            failing.add_metric([name], (now() - since).total_seconds() if since else 0.0)
        yield failing

    def _audit(self) -> Iterator[Metric]:
        head = Chain.objects.aggregate(
            seq=Max("seq"), checked=Max("checked_at"), newest=Max("newest_at"), broken=Max("broken")
        )
        yield GaugeMetricFamily(
            "setpoint_audit_broken", "1: kept heads contradict the chain.", value=int(bool(head["broken"]))
        )
        refused = Refusal.objects.count()
        yield GaugeMetricFamily("setpoint_audit_refused", "Audit records that were refused.", value=refused)
        yield GaugeMetricFamily("setpoint_audit_sealed", "Sealed audit records.", value=head["seq"] or 0)
        waiting = (
            Record.objects.unsealed(since=head["newest"] and head["newest"] - 2 * SKEW)
            .order_by()
            .aggregate(n=Count("pk"), oldest=Min("at"))
        )
        yield GaugeMetricFamily("setpoint_audit_unsealed", "Audit records not yet sealed.", value=waiting["n"])
        age = (now() - head["checked"]).total_seconds() if head["checked"] else float("nan")
        yield GaugeMetricFamily("setpoint_sealer_age_seconds", "Since the sealer last looked.", value=age)
        yield from _forwarding()


def _plan_requests() -> Iterator[Metric]:
    live = PlanRequest.objects.live().aggregate(n=Count("pk"), oldest=Min("requested_at"))
    yield GaugeMetricFamily(
        "setpoint_plan_requests", "Plans that were asked for and are not made yet, by a worker.", value=live["n"]
    )
    age = (now() - live["oldest"]).total_seconds() if live["oldest"] else 0.0
    yield GaugeMetricFamily("setpoint_plan_requests_age_seconds", "Since the oldest of them was asked for.", value=age)


def _forwarding() -> Iterator[Metric]:
    labels = ["destination"]
    lag = GaugeMetricFamily(
        "setpoint_audit_forward_lag", "Sealed audit records that a destination has not acknowledged.", labels=labels
    )
    failing = GaugeMetricFamily(
        "setpoint_audit_forward_failing_seconds", "Since when a destination takes nothing; 0: it does.", labels=labels
    )
    rejected = CounterMetricFamily(
        "setpoint_audit_forward_rejected", "Audit records that a destination refused for good.", labels=labels
    )
    for standing in shipping.standings():
        of, since = [standing.destination.name], standing.row.failing_since
        lag.add_metric(of, standing.lag)
        failing.add_metric(of, (now() - since).total_seconds() if since else 0.0)
        rejected.add_metric(of, standing.row.rejected)
    yield from (lag, failing, rejected)


registry = CollectorRegistry()
registry.register(States())
ProcessCollector(registry=registry)


@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    if not _is_allowed(request):
        raise NotAllowed("Present SETPOINT_METRICS_TOKEN as a bearer token, or ask from this machine.")
    return HttpResponse(generate_latest(registry), content_type="text/plain; version=0.0.4; charset=utf-8")


def _is_allowed(request: HttpRequest) -> bool:
    if token := settings.SETPOINT_METRICS_TOKEN:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(given.encode(), token.encode())
    if "X-Forwarded-For" in request.headers or "Forwarded" in request.headers:
        return False
    try:
        return ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False
