"""Pools that target a revision or a component, for lower layers: answers to questions of `common.hooks`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from django.urls import reverse

from accounts.permissions import restrict
from common.hooks import RevisionUse
from compliance.models import Assignment

SHOWN = 100


def of_revisions(user: Any, revisions: Sequence[int]) -> Iterator[RevisionUse]:
    rows = Assignment.objects.filter(revision__in=revisions).select_related("pool__cluster").order_by("-set_at")
    for row in restrict(rows, user, "pool__cluster__")[:SHOWN]:
        yield RevisionUse(
            revision_id=row.revision_id,
            kind="assignment",
            id=str(row.pool_id),
            name=str(row.pool),
            href=reverse("clusters:pool", args=[row.pool_id]),
            status=row.get_mode_display(),
            at=row.set_at,
        )


def targets(pools: Collection[int]) -> Iterator[tuple[int, int]]:
    yield from Assignment.objects.filter(pool__in=pools).order_by("pool").values_list("pool_id", "revision_id")


def of_component(name: str) -> Iterator[str]:
    """Yield each pool whose target has this component in its profile, also one that removes it."""
    revisions: dict[int, bool] = {}
    for row in Assignment.objects.select_related("pool__cluster", "revision").order_by("pool"):
        if row.revision_id not in revisions:
            revisions[row.revision_id] = any(wanted.name == name for wanted in row.revision.flat.components)
        if revisions[row.revision_id]:
            yield f"the target of {row.pool} has it"
