"""Lists of jobs: those that a person may see, with their GPU-hours, filtered and in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import django_filters
from django.db.models import Case, F, FloatField, OuterRef, QuerySet, Subquery, Sum, Value, When
from django.db.models.functions import Coalesce

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import Cluster, GpuJob
from common.filtering import ClusterReferenceFilter
from common.keyset import Orders
from gpus.models import GpuUse, JobUse

if TYPE_CHECKING:
    from typing import TypedDict

    from django_stubs_ext import WithAnnotations

    class Sums(TypedDict):
        """Annotations of the queries."""

        gpu_seconds: float
        active_share: float

    SummedJob = WithAnnotations[GpuJob, Sums]
else:
    SummedJob = GpuJob

UNKNOWN_SHARE = 2.0
"""Where no telemetry told: behind every share in ascending order."""


def jobs(user: User) -> QuerySet[SummedJob]:
    """Jobs of clusters that the person sees, with `gpu_seconds` held and, of those with telemetry, the active share."""
    active, measured = F("effective") + F("low"), F("effective") + F("low") + F("held")
    rows = GpuJob.objects.select_related("cluster").annotate(
        gpu_seconds=_sum(sum((F(name) for name in GpuUse.STATES[1:]), F(GpuUse.STATES[0]))),
        active_seconds=_sum(active),
        measured_seconds=_sum(measured),
    )
    share = Case(
        When(measured_seconds__gt=0, then=F("active_seconds") / F("measured_seconds")),
        default=Value(UNKNOWN_SHARE),
        output_field=FloatField(),
    )
    return restrict(rows.annotate(active_share=share), user)


def _sum(amount: object) -> Coalesce:
    of_job = JobUse.objects.filter(job=OuterRef("pk")).order_by().values("job")
    return Coalesce(Subquery(of_job.annotate(total=Sum(amount)).values("total")), 0.0, output_field=FloatField())


def gpu_hours(job: SummedJob) -> float:
    return job.gpu_seconds / 3600


def active_percent(job: SummedJob) -> float | None:
    """Return the active share of its GPU-hours with telemetry; None where there are none."""
    return None if job.active_share > 1 else 100 * job.active_share


class JobFilter(django_filters.FilterSet):  # type: ignore[misc]
    """`state` may be given several times."""

    cluster = ClusterReferenceFilter()
    environment = django_filters.ChoiceFilter(field_name="cluster__environment", choices=Cluster.Environment.choices)
    namespace = django_filters.CharFilter(max_length=63, help_text="The whole name.")
    name = django_filters.CharFilter(lookup_expr="icontains", max_length=253, help_text="A part of the job's name.")
    kind = django_filters.CharFilter(max_length=63, help_text="Such as Job, JobSet or RayCluster.")
    queue = django_filters.CharFilter(max_length=253, help_text="The whole name.")
    state = django_filters.MultipleChoiceFilter(choices=GpuJob.State.choices, distinct=False)
    outcome = django_filters.ChoiceFilter(choices=GpuJob.Outcome.choices, help_text="Of jobs that ended.")

    class Meta:
        model = GpuJob
        fields: list[str] = []


ORDERS = Orders(
    {
        "queued": ("queued_at",),
        "name": ("namespace", "name"),
        "gpus": ("gpus",),
        "hours": ("gpu_seconds",),
        "active": ("active_share",),
    },
    default="-queued",
    descending=frozenset({"queued", "gpus", "hours"}),
)
