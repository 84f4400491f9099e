"""Filters and sort orders of plans, rollouts and a rollout's nodes: the same on pages and REST."""

from __future__ import annotations

import re
from typing import Any

import django_filters
from django.db.models import Case, DateTimeField, F, FloatField, IntegerField, Q, QuerySet, Value, When
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce

from common import look
from common.filtering import ClusterReferenceFilter, InstantFilter, PersonFilter
from common.keyset import Orders
from jobs.diffs.changes import Disruption
from jobs.models import Plan, Rollout, Step
from jobs.reports import selectors

_NUMBER = re.compile(r"(?:([PR])-?)?([0-9]{1,9})", re.IGNORECASE)
FAR = "2999-01-01T00:00:00+00:00"
_BY_ID = {"min_value": 1, "max_value": 2**31 - 1}


def _ranked(field: str, values: Any) -> Case:
    """The place of each value in this order, for sorting by what it means and not by how it is spelt."""
    whens = [When(**{field: str(value)}, then=Value(place)) for place, value in enumerate(values)]
    return Case(*whens, default=Value(len(whens)), output_field=IntegerField())


_CLASSES = sorted(Disruption, key=lambda c: c.rank)


# ── Plans ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
PLAN_ORDERS = Orders(
    {
        "number": ["number"],
        "created_at": ["created_at"],
        "asked": ["asked_at"],
        "expires_at": ["expires_at"],
        "status": ["status_rank"],
        "worst_class": ["class_rank"],
        "nodes": ["node_count"],
        "cluster": ["cluster__name"],
    },
    default="-number",
    descending=frozenset({"number", "created_at", "asked", "worst_class", "nodes"}),
)
REVIEW_ORDERS = Orders(PLAN_ORDERS.columns, default="asked", descending=PLAN_ORDERS.descending)
"""The plan that has waited longest is first."""
REVIEW_CHOICES = (
    ("asked", "longest waiting"),
    ("expires_at", "expiring first"),
    ("-worst_class", "most disruptive"),
    ("-nodes", "most nodes"),
)
MINE_ORDERS = Orders(
    {"answer": ["answer_rank", "minus_number"], **PLAN_ORDERS.columns},
    default="answer",
    descending=PLAN_ORDERS.descending,
)
"""What the requester must answer is first, then what can be started, then the newest."""
STATUS_RANK = ("review", "changes", "approved", "draft", "started", "rejected", "expired", "withdrawn")
"""What needs attention is first."""


def sortable_plans(rows: QuerySet[Plan]) -> QuerySet[Plan]:
    """Annotate the columns that PLAN_ORDERS names."""
    return rows.annotate(
        asked_at=Coalesce("requested_at", "created_at"),
        status_rank=_ranked("status", STATUS_RANK),
        class_rank=_ranked("worst_class", _CLASSES),
        answer_rank=_ranked("status", [Plan.Status.CHANGES, Plan.Status.APPROVED]),
        minus_number=0 - F("number"),
        drafted=KeyTextTransform("drafted", "summary"),
        **_numbers("summary"),
    ).defer("summary", "superseded_by__summary", "superseded_by__findings")


def _numbers(summary: str) -> dict[str, Any]:
    """Return what a row tells of a plan's size; its whole summary has a line for each of up to thousands of batches."""
    names = {"node_count": "nodes", "pool_nodes": "pool_nodes", "seconds": "seconds"}
    return {
        name: Coalesce(Cast(Cast(KeyTextTransform(key, summary), FloatField()), IntegerField()), Value(0))
        for name, key in names.items()
    }


class PlanFilter(django_filters.FilterSet):  # type: ignore[misc]
    q = django_filters.CharFilter(
        method="search", max_length=253, help_text="P-218, or part of a profile's, pool's or cluster's name or message."
    )
    cluster = ClusterReferenceFilter()
    pool = django_filters.NumberFilter(field_name="pool_id", **_BY_ID)
    status = django_filters.MultipleChoiceFilter(choices=Plan.Status.choices, distinct=False)
    by = PersonFilter("created_by", "requested_by")
    since = InstantFilter(field_name="created_at", lookup_expr="gte")
    until = InstantFilter(field_name="created_at", lookup_expr="lt")
    to_review = django_filters.BooleanFilter(
        method="only_to_review", help_text="Those that wait for the caller's verdict, or those that do not."
    )

    class Meta:
        model = Plan
        fields: list[str] = []

    def search(self, rows: QuerySet[Plan], _name: str, value: str) -> QuerySet[Plan]:
        return rows.filter(_plan_says(value, ""))

    def only_to_review(self, rows: QuerySet[Plan], _name: str, value: bool) -> QuerySet[Plan]:
        waiting = selectors.to_review(self.request.user).order_by().values("pk")
        return rows.filter(pk__in=waiting) if value else rows.exclude(pk__in=waiting)


def _plan_says(text: str, prefix: str) -> Q:
    """Match a plan, where `prefix` leads to it, by this number or these words."""
    text = text.strip()
    condition = Q()
    for field in ("revision__profile__name", "pool__name", "cluster__name", "message"):
        condition |= Q(**{f"{prefix}{field}__icontains": text})
    number = _NUMBER.fullmatch(text)
    if number and (number[1] or "P").upper() == "P":
        condition |= Q(**{f"{prefix}number": int(number[2])})
    return condition


# ── Rollouts ──────────────────────────────────────────────────────────────────────────────────────────────────────────
ROLLOUT_ORDERS = Orders(
    {
        "number": ["number"],
        "created_at": ["created_at"],
        "ended": ["ended_at"],
        "status": ["status_rank"],
        "nodes": ["node_count"],
        "cluster": ["cluster__name"],
    },
    default="-number",
    descending=frozenset({"number", "created_at", "ended", "nodes"}),
)


def sortable_rollouts(rows: QuerySet[Rollout]) -> QuerySet[Rollout]:
    """Annotate the columns that ROLLOUT_ORDERS names; what has not ended sorts last by its end."""
    return rows.annotate(
        ended_at=Coalesce("finished_at", Value(FAR, output_field=DateTimeField())),
        status_rank=_ranked("status", look.OPERATION),
        **_numbers("plan__summary"),
    ).defer("plan__summary", "plan__findings")


class RolloutFilter(django_filters.FilterSet):  # type: ignore[misc]
    q = django_filters.CharFilter(
        method="search", max_length=253, help_text="R-131, P-218, or part of a profile's, pool's or cluster's name."
    )
    cluster = ClusterReferenceFilter()
    pool = django_filters.NumberFilter(field_name="plan__pool_id", **_BY_ID)
    status = django_filters.MultipleChoiceFilter(choices=Rollout.Status.choices, distinct=False)
    live = django_filters.BooleanFilter(method="only_live")
    by = PersonFilter("started_by")
    since = InstantFilter(field_name="created_at", lookup_expr="gte")
    until = InstantFilter(field_name="created_at", lookup_expr="lt")

    class Meta:
        model = Rollout
        fields: list[str] = []

    def search(self, rows: QuerySet[Rollout], _name: str, value: str) -> QuerySet[Rollout]:
        condition = _plan_says(value, "plan__")
        number = _NUMBER.fullmatch(value.strip())
        if number and (number[1] or "R").upper() == "R":
            condition |= Q(number=int(number[2]))
        return rows.filter(condition)

    def only_live(self, rows: QuerySet[Rollout], _name: str, value: bool) -> QuerySet[Rollout]:
        return rows.filter(status__in=Rollout.LIVE) if value else rows.exclude(status__in=Rollout.LIVE)


# ── The nodes of a rollout ────────────────────────────────────────────────────────────────────────────────────────────
STEP_STATES = {
    "failed": (Step.Status.FAILED,),
    "held": (Step.Status.HELD,),
    "running": Step.ACTIVE,
    "queued": (Step.Status.QUEUED,),
    "succeeded": (Step.Status.SUCCEEDED,),
    "reverted": (Step.Status.REVERTED,),
    "skipped": (Step.Status.SKIPPED,),
}
"""As people ask for them, the worst first: the eight stages under way are one."""
STEP_ORDERS = Orders(
    {
        "worst": ["state_rank", "batch", "position"],
        "position": ["batch", "position"],
        "node_name": ["node_name"],
        "batch": ["batch", "position"],
        "entered_at": ["entered_at"],
        "attempt": ["attempt"],
    },
    default="worst",
    descending=frozenset({"entered_at", "attempt"}),
)


def sortable_steps(rows: QuerySet[Step]) -> QuerySet[Step]:
    """Annotate `state`, one of STEP_STATES, and the columns that STEP_ORDERS names."""
    whens = [(place, name, statuses) for place, (name, statuses) in enumerate(STEP_STATES.items())]
    return rows.annotate(
        state=Case(*(When(status__in=statuses, then=Value(name)) for _, name, statuses in whens)),
        state_rank=Case(
            *(When(status__in=statuses, then=Value(place)) for place, _, statuses in whens),
            default=Value(len(whens)),
            output_field=IntegerField(),
        ),
    )


class StepFilter(django_filters.FilterSet):  # type: ignore[misc]
    q = django_filters.CharFilter(field_name="node_name", lookup_expr="icontains", max_length=253)
    kind = django_filters.ChoiceFilter(choices=Step.Kind.choices)
    status = django_filters.MultipleChoiceFilter(choices=Step.Status.choices, distinct=False)
    state = django_filters.MultipleChoiceFilter(
        choices=[(name, name) for name in STEP_STATES],
        distinct=False,
        help_text="`running` covers all in-progress stages.",
    )
    batch = django_filters.NumberFilter(**_BY_ID)

    class Meta:
        model = Step
        fields: list[str] = []
