"""Filters of compliance lists: the same words in the pages' URLs, the exports and the API."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import django_filters
from django.db.models import Q, QuerySet
from django.http import QueryDict

from clusters.models import Cluster, Node
from common.errors import Invalid
from compliance.models import Assignment, Cause, ComplianceState, NodeStanding, Outlier, SettingChange, SettingState
from compliance.reports import security, selectors


def by_cluster(prefix: str) -> Any:
    """Return a filter by the cluster's id, or by its name, as users write it in a URL."""

    def narrow(rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        try:
            return rows.filter(**{f"{prefix}cluster": UUID(value)})
        except ValueError:
            return rows.filter(**{f"{prefix}cluster__name": value})

    return narrow


def _drifted(rows: QuerySet[Node]) -> QuerySet[Node]:
    """Restrict nodes with `shown` to those that are current and drifted."""
    return rows.filter(Q(shown=ComplianceState.DRIFTED))


BY_CLUSTER = "A cluster's id or name."
BY_SECURITY = "With a value that weakens security: one that is `wanted`, or `observed`. May be given twice: either."
_BY_ID = {"min_value": 1, "max_value": 2**31 - 1}


class NodeFilter(django_filters.FilterSet):  # type: ignore[misc]
    """`state` may be given several times."""

    state = django_filters.MultipleChoiceFilter(field_name="shown", choices=NodeStanding.STATES)
    cluster = django_filters.CharFilter(method=by_cluster(""), max_length=63, help_text=BY_CLUSTER)
    environment = django_filters.ChoiceFilter(field_name="cluster__environment", choices=Cluster.Environment.choices)
    pool = django_filters.NumberFilter(field_name="standing__pool", help_text="An assigned pool's id.", **_BY_ID)
    name = django_filters.CharFilter(lookup_expr="icontains", max_length=253)
    joining = django_filters.BooleanFilter(field_name="standing__is_joining")
    since = django_filters.IsoDateTimeFilter(field_name="standing__since", lookup_expr="gte")
    cause = django_filters.ChoiceFilter(method="by_cause", choices=[c for c in Cause.choices if c[0]])
    file = django_filters.CharFilter(method="by_file", max_length=300, help_text="The file that won, without its line.")
    outlier = django_filters.NumberFilter(method="in_outlier", **_BY_ID)
    weakens_security = django_filters.MultipleChoiceFilter(
        method="by_security", choices=security.CHOICES, help_text=BY_SECURITY
    )

    class Meta:
        model = Node
        fields: list[str] = []

    def by_cause(self, rows: QuerySet[Node], name: str, value: str) -> QuerySet[Node]:
        drifted = SettingState.objects.filter(state=ComplianceState.DRIFTED, cause=value).order_by()
        return _drifted(rows).filter(pk__in=drifted.values("node"))

    def by_file(self, rows: QuerySet[Node], name: str, value: str) -> QuerySet[Node]:
        drifted = SettingState.objects.filter(state=ComplianceState.DRIFTED, won_by__startswith=f"{value}:").order_by()
        return _drifted(rows).filter(pk__in=drifted.values("node"))

    def by_security(self, rows: QuerySet[Node], name: str, sides: list[str]) -> QuerySet[Node]:
        return rows.filter(security.nodes_with(sides)) if sides else rows

    def in_outlier(self, rows: QuerySet[Node], name: str, value: Any) -> QuerySet[Node]:
        return selectors.in_outlier(rows, int(value))


class _OfNode(django_filters.FilterSet):  # type: ignore[misc]
    """Filters by the node of a row."""

    cluster = django_filters.CharFilter(method=by_cluster("node__"), max_length=63, help_text=BY_CLUSTER)
    environment = django_filters.ChoiceFilter(
        field_name="node__cluster__environment", choices=Cluster.Environment.choices
    )
    pool = django_filters.NumberFilter(field_name="node__standing__pool", **_BY_ID)
    node = django_filters.NumberFilter(field_name="node_id", **_BY_ID)
    name = django_filters.CharFilter(field_name="node__name", lookup_expr="icontains", max_length=253)


class StandingFilter(_OfNode):
    """Filters of settings that can be answered from standings, without reading settings."""

    pool = django_filters.NumberFilter(field_name="pool", **_BY_ID)

    class Meta:
        model = NodeStanding
        fields: list[str] = []


class SettingFilter(_OfNode):
    state = django_filters.MultipleChoiceFilter(method="in_state", choices=ComplianceState.choices)
    key = django_filters.CharFilter(max_length=128)
    cause = django_filters.ChoiceFilter(choices=[c for c in Cause.choices if c[0]])
    rollout = django_filters.UUIDFilter(field_name="rollout_id")
    since = django_filters.IsoDateTimeFilter(lookup_expr="gte")
    weakens_security = django_filters.MultipleChoiceFilter(
        method="by_security", choices=security.CHOICES, help_text=BY_SECURITY
    )

    class Meta:
        model = SettingState
        fields: list[str] = []

    def by_security(self, rows: QuerySet[SettingState], name: str, sides: list[str]) -> QuerySet[SettingState]:
        return rows.filter(security.chosen(sides)) if sides else rows

    def in_state(self, rows: QuerySet[SettingState], name: str, values: list[str]) -> QuerySet[SettingState]:
        if not values:
            return rows
        if not {ComplianceState.COMPLIANT, ComplianceState.UNKNOWN}.intersection(values):
            # The words of the index settings_amiss
            rows = rows.filter(state__in=values).exclude(state=ComplianceState.COMPLIANT)
        return rows.filter(Q(shown__in=values))


class ChangeFilter(django_filters.FilterSet):  # type: ignore[misc]
    state = django_filters.MultipleChoiceFilter(choices=SettingChange.STATES)
    cluster = django_filters.CharFilter(method=by_cluster("node__"), max_length=63, help_text=BY_CLUSTER)
    pool = django_filters.NumberFilter(field_name="node__standing__pool", **_BY_ID)
    node = django_filters.NumberFilter(field_name="node_id", **_BY_ID)
    name = django_filters.CharFilter(field_name="node__name", lookup_expr="icontains", max_length=253)
    key = django_filters.CharFilter(max_length=128)
    cause = django_filters.ChoiceFilter(choices=[c for c in Cause.choices if c[0]])
    rollout = django_filters.UUIDFilter(field_name="rollout_id")
    after = django_filters.IsoDateTimeFilter(field_name="at", lookup_expr="gte")
    before = django_filters.IsoDateTimeFilter(field_name="at", lookup_expr="lt")

    class Meta:
        model = SettingChange
        fields: list[str] = []


class OutlierFilter(django_filters.FilterSet):  # type: ignore[misc]
    cluster = django_filters.CharFilter(method=by_cluster(""), max_length=63, help_text=BY_CLUSTER)
    pool = django_filters.NumberFilter(field_name="pool_id", **_BY_ID)
    key = django_filters.CharFilter(max_length=128)
    node = django_filters.NumberFilter(field_name="nodes__node", **_BY_ID)

    class Meta:
        model = Outlier
        fields: list[str] = []


class AssignmentFilter(django_filters.FilterSet):  # type: ignore[misc]
    cluster = django_filters.CharFilter(method=by_cluster("pool__"), max_length=63, help_text=BY_CLUSTER)
    environment = django_filters.ChoiceFilter(
        field_name="pool__cluster__environment", choices=Cluster.Environment.choices
    )
    pool = django_filters.NumberFilter(field_name="pool_id", **_BY_ID)
    mode = django_filters.ChoiceFilter(choices=Assignment.Mode.choices)
    revision = django_filters.CharFilter(method="by_revision", max_length=80, help_text="Digest, or profile's name.")

    class Meta:
        model = Assignment
        fields: list[str] = []

    def by_revision(self, rows: QuerySet[Assignment], name: str, value: str) -> QuerySet[Assignment]:
        return rows.filter(Q(revision__digest=value) | Q(revision__profile__name=value))


def strictly(filterset: Any, params: QueryDict, rows: QuerySet[Any]) -> QuerySet[Any]:
    """Those that the filters choose. Raises Invalid, naming each that is unknown or wrong."""
    bound = filterset(params, queryset=rows)
    wrong = {name: ["There is no such filter."] for name in params if name not in bound.filters and name != "page"}
    wrong |= {name: [str(text) for text in texts] for name, texts in bound.form.errors.items()}
    if wrong:
        raise Invalid("The list cannot be narrowed like this.", fields=wrong)
    chosen: QuerySet[Any] = bound.qs
    return chosen
