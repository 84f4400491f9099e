"""Queries, filters and orders of alerts, the same for pages and REST."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import django_filters
from django.db.models import Case, IntegerField, Q, QuerySet, Value, When

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import Cluster
from common.alerting import Severity, SubjectKind
from common.clock import now
from common.filtering import ClusterReferenceFilter, InstantFilter
from common.keyset import Orders
from notices.models import SEVERITIES, Alert, Delivery, Evaluation

ALERT_ORDERS = Orders(
    {
        "urgent": ["is_open", "severity_rank", "opened_at"],
        "opened_at": ["opened_at"],
        "began_at": ["began_at"],
        "severity": ["severity_rank", "opened_at"],
        "rule": ["rule", "opened_at"],
        "cluster": ["cluster__name", "opened_at"],
        "subject": ["subject_name", "opened_at"],
    },
    default="-urgent",
    descending=frozenset({"urgent", "opened_at", "began_at", "severity"}),
)
"""Open alerts first, of those the critical, of those the newest."""
STATUSES = [(value, word) for value, word in Alert.Status.choices if value != Alert.Status.PENDING]


def alerts(user: User) -> QuerySet[Alert]:
    """Return alerts with the columns that ALERT_ORDERS names."""
    open_ = Case(When(status=Alert.Status.OPEN, then=Value(1)), default=Value(0), output_field=IntegerField())
    rank = Case(When(severity=Severity.CRITICAL, then=Value(1)), default=Value(0), output_field=IntegerField())
    rows = Alert.objects.shown().select_related("cluster").annotate(is_open=open_, severity_rank=rank)
    return restrict(rows, user)


def waiting(user: User) -> QuerySet[Alert]:
    """Return open alerts neither acknowledged nor silenced, which the navigation counts."""
    return restrict(Alert.objects.waiting(now()), user)


class AlertFilter(django_filters.FilterSet):  # type: ignore[misc]
    q = django_filters.CharFilter(
        method="search", max_length=253, help_text="Part of what it is about, of its sentence, or of its rule's name."
    )
    status = django_filters.MultipleChoiceFilter(choices=STATUSES, distinct=False)
    severity = django_filters.ChoiceFilter(choices=SEVERITIES)
    rule = django_filters.CharFilter(max_length=40, help_text="A rule's name.")
    kind = django_filters.ChoiceFilter(
        field_name="subject_kind", choices=[(kind.value, kind.value) for kind in SubjectKind]
    )
    cluster = ClusterReferenceFilter()
    environment = django_filters.ChoiceFilter(field_name="cluster__environment", choices=Cluster.Environment.choices)
    namespace = django_filters.CharFilter(max_length=63)
    node = django_filters.NumberFilter(field_name="node_id", min_value=1, max_value=2**31 - 1)
    waiting = django_filters.BooleanFilter(
        method="only_waiting", help_text="Open, neither acknowledged nor silenced; or all others."
    )
    since = InstantFilter(field_name="opened_at", lookup_expr="gte")
    until = InstantFilter(field_name="opened_at", lookup_expr="lt")

    class Meta:
        model = Alert
        fields: list[str] = []

    def search(self, rows: QuerySet[Alert], _name: str, value: str) -> QuerySet[Alert]:
        text = value.strip()
        return rows.filter(Q(subject_name__icontains=text) | Q(sentence__icontains=text) | Q(rule__icontains=text))

    def only_waiting(self, rows: QuerySet[Alert], _name: str, value: bool) -> QuerySet[Alert]:
        there = Alert.objects.waiting(now()).order_by().values("pk")
        return rows.filter(pk__in=there) if value else rows.exclude(pk__in=there)


def counts(rows: QuerySet[Alert]) -> dict[str, Any]:
    """Count open alerts, and the critical, acknowledged and silenced among them. One query."""
    at = now()
    out: dict[str, int] = {"open": 0, "critical": 0, "acknowledged": 0, "silenced": 0}
    columns = ("severity", "acknowledged_at", "silenced_until")
    for severity, acknowledged, silenced in rows.filter(status=Alert.Status.OPEN).order_by().values_list(*columns):
        out["open"] += 1
        out["critical"] += severity == Severity.CRITICAL
        out["acknowledged"] += acknowledged is not None
        out["silenced"] += silenced is not None and silenced > at
    return out


def not_judged(cluster_id: UUID | None) -> dict[str, tuple[str, bool]]:
    """Return by rule why it does not judge all of a cluster, and whether it judges nothing of it. One query.

    Empty for all clusters together.
    """
    rows = Evaluation.objects.filter(cluster=cluster_id) if cluster_id else Evaluation.objects.none()
    stored = rows.values_list("not_judged", flat=True).first() or {}
    return {rule: (why, is_all) for rule, (why, is_all) in stored.items()}


# ── Deliveries ────────────────────────────────────────────────────────────────────────────────────────────────────────
DELIVERY_ORDERS = Orders(
    {
        "created_at": ["created_at"],
        "channel": ["channel__name", "created_at"],
        "status": ["status", "created_at"],
        "tries": ["tries", "created_at"],
    },
    default="-created_at",
    descending=frozenset({"created_at", "tries"}),
)


def deliveries() -> QuerySet[Delivery]:
    """Return all deliveries; the services admit administrators only."""
    return Delivery.objects.select_related("channel").defer("channel__secret")


class DeliveryFilter(django_filters.FilterSet):  # type: ignore[misc]
    q = django_filters.CharFilter(field_name="title", lookup_expr="icontains", max_length=200)
    channel = django_filters.UUIDFilter(field_name="channel_id")
    event = django_filters.CharFilter(max_length=20)
    status = django_filters.MultipleChoiceFilter(choices=Delivery.Status.choices, distinct=False)
    since = InstantFilter(field_name="created_at", lookup_expr="gte")
    until = InstantFilter(field_name="created_at", lookup_expr="lt")

    class Meta:
        model = Delivery
        fields: list[str] = []
