"""Filters and sort orders of the list of clusters: the same on its page and over REST."""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import Case, DateTimeField, F, IntegerField, QuerySet, Value, When
from django.db.models.functions import Coalesce

from clusters.models import Cluster
from common.keyset import Orders

LONG_AGO = "1970-01-01T00:00:00+00:00"
CLUSTER_ORDERS = Orders(
    {
        "name": ["name"],
        "environment": ["environment", "name"],
        "reach": ["reach_rank", "name"],
        "nodes": ["node_count"],
        "not_ready": ["not_ready"],
        "gpus": ["gpu_count"],
        "budget": ["budget"],
        "created_at": ["created_at"],
        "observed_at": ["seen_at"],
    },
    default="name",
    descending=frozenset({"nodes", "not_ready", "gpus", "budget"}),
)


def sortable_clusters(rows: QuerySet[Cluster]) -> QuerySet[Cluster]:
    """Clusters that carry their counts, with the other columns that CLUSTER_ORDERS names; the unreachable first."""
    ranks: Any = Case(
        When(reach=Cluster.Reach.UNREACHABLE, then=Value(0)),
        When(reach=Cluster.Reach.NEVER, then=Value(1)),
        default=Value(2),
        output_field=IntegerField(),
    )
    seen = Coalesce(F("observed_at"), Value(LONG_AGO, output_field=DateTimeField()))
    return rows.annotate(reach_rank=ranks, seen_at=seen)


class ClusterFilter(django_filters.FilterSet):  # type: ignore[misc]
    q = django_filters.CharFilter(field_name="name", lookup_expr="icontains", max_length=63)
    name = django_filters.CharFilter(lookup_expr="icontains", max_length=63)
    environment = django_filters.MultipleChoiceFilter(choices=Cluster.Environment.choices, distinct=False)
    reach = django_filters.MultipleChoiceFilter(choices=Cluster.Reach.choices, distinct=False)
    ownership = django_filters.MultipleChoiceFilter(choices=Cluster.Ownership.choices, distinct=False)

    class Meta:
        model = Cluster
        fields: list[str] = []
