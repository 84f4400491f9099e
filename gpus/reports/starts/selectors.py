"""Starts one by one: as a list with filters, and those of one job."""

from __future__ import annotations

import django_filters
from django.db.models import QuerySet

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import GpuJob, PodStart
from common.filtering import ClusterReferenceFilter, InstantFilter

MOST_OF_JOB = 100


class StartFilter(django_filters.FilterSet):  # type: ignore[misc]
    cluster = ClusterReferenceFilter()
    namespace = django_filters.CharFilter(max_length=63, help_text="The whole name.")
    node = django_filters.CharFilter(field_name="node_name", max_length=253, help_text="The whole name.")
    image = django_filters.CharFilter(max_length=512, help_text="The whole name, as the pod has it.")
    model = django_filters.CharFilter(max_length=63, help_text="The whole label.")
    job = django_filters.NumberFilter(
        method="of_the_job", min_value=1, max_value=2**63 - 1, help_text="Its id, as /gpus/jobs has it."
    )
    outcome = django_filters.ChoiceFilter(choices=PodStart.Outcome.choices)
    has_probe = django_filters.BooleanFilter()
    since = InstantFilter(field_name="ended_at", lookup_expr="gte")
    until = InstantFilter(field_name="ended_at", lookup_expr="lt")

    class Meta:
        model = PodStart
        fields: list[str] = []

    def of_the_job(self, rows: QuerySet[PodStart], name: str, value: int) -> QuerySet[PodStart]:
        job = GpuJob.objects.filter(pk=value)
        return rows.filter(cluster__in=job.values("cluster"), job_key__in=job.values("key")).exclude(job_key="")


def visible_to(user: User) -> QuerySet[PodStart]:
    return restrict(PodStart.objects.select_related("cluster"), user)


def of_job(job: GpuJob) -> list[PodStart]:
    """Return the latest starts of a job's pods."""
    rows = PodStart.objects.filter(cluster=job.cluster_id, job_key=job.key).exclude(job_key="")
    return list(rows.order_by("-ended_at", "-pk")[:MOST_OF_JOB])
