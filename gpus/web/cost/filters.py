"""Filters of lists of prices."""

from __future__ import annotations

import django_filters

from common.filtering import ClusterReferenceFilter
from gpus.models import GpuPrice


class PriceFilter(django_filters.FilterSet):  # type: ignore[misc]
    kind = django_filters.ChoiceFilter(choices=GpuPrice.Kind.choices)
    model = django_filters.CharFilter(lookup_expr="icontains", max_length=120)
    cluster = ClusterReferenceFilter()
    is_withdrawn = django_filters.BooleanFilter(field_name="withdrawn_at", lookup_expr="isnull", exclude=True)

    class Meta:
        model = GpuPrice
        fields: list[str] = []
