"""Waits one by one: as a list with filters, as a file, and those of one job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import django_filters
from django.db.models import QuerySet

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import Cluster, GpuJob
from common.filtering import ClusterReferenceFilter, InstantFilter
from compliance.reports.exports import ExportKind
from gpus.models import WorkloadWait

COLUMNS = (
    "cluster", "system", "queue", "local_queue", "namespace", "kind", "name", "uid", "number", "owner_kind",
    "owner_name", "gpus", "priority", "created_at", "queued_at", "admitted_at", "running_at", "ended_at", "outcome",
    "reason", "evictions", "waited_seconds", "is_measured",
)  # fmt: skip


class WaitFilter(django_filters.FilterSet):  # type: ignore[misc]
    cluster = ClusterReferenceFilter()
    system = django_filters.ChoiceFilter(choices=WorkloadWait.System.choices)
    queue = django_filters.CharFilter(max_length=253, help_text="The whole name.")
    namespace = django_filters.CharFilter(max_length=63, help_text="The whole name.")
    uid = django_filters.CharFilter(max_length=64, help_text="Of the workload: all of its waits.")
    outcome = django_filters.ChoiceFilter(choices=WorkloadWait.Outcome.choices, help_text="Of waits that ended.")
    reason = django_filters.CharFilter(max_length=80, help_text="Of evictions, such as Preempted.")
    since = InstantFilter(field_name="queued_at", lookup_expr="gte")
    until = InstantFilter(field_name="queued_at", lookup_expr="lt")

    class Meta:
        model = WorkloadWait
        fields: list[str] = []


def visible_to(user: User) -> QuerySet[WorkloadWait]:
    return restrict(WorkloadWait.objects.with_reading().select_related("cluster"), user)


def of_job(job: GpuJob) -> list[WorkloadWait]:
    """Return the waits of a job in a queue, the first one first; of a job without one, none: its life has it."""
    rows = WorkloadWait.objects.with_reading().filter(cluster=job.cluster_id, job_key=job.key).exclude(job_key="")
    return list(rows.exclude(system=WorkloadWait.System.PODS).order_by("queued_at", "pk")[:100])


def _records(rows: Sequence[WorkloadWait]) -> Iterator[Mapping[str, Any]]:
    for row in rows:
        cluster: Cluster = row.cluster
        values: dict[str, Any] = {name: getattr(row, name) for name in COLUMNS if hasattr(row, name)}
        for name, value in values.items():
            values[name] = value.isoformat() if name.endswith("_at") and value else value
        yield values | {
            "cluster": cluster.name,
            "waited_seconds": round(row.waited) if row.is_measured else None,
        }


FILE = ExportKind(COLUMNS, _records)
