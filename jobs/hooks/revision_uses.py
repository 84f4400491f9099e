"""Plans for a revision, for the pages of profiles: an answer to `common.hooks.revision_uses`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.urls import reverse

from accounts.permissions import restrict
from common.hooks import RevisionUse
from jobs.models import Plan

SHOWN = 100


def of_revisions(user: Any, revisions: Sequence[int]) -> Iterator[RevisionUse]:
    rows = Plan.objects.filter(revision__in=revisions).select_related("pool__cluster").order_by("-number")
    for row in restrict(rows, user)[:SHOWN]:
        yield RevisionUse(
            revision_id=row.revision_id,
            kind="plan",
            id=str(row.pk),
            name=f"{row} for {row.pool}",
            href=reverse("jobs:plan", args=[row.number]),
            status=row.status,
            at=row.created_at,
        )
