"""Authors of what a plan brings. None of them approves it, with any role: a second pair of eyes must be another's.

Authors are those of the revision and of all that it extends, of this cluster's values of the components that it
brings, of the pool's selector since its last approved plan, of the site's own catalog entries by which it was made, and
of its charts: an uploader of the archive, or the people that set up the repository that sent it. They are found when
the plan is made, stored with it, and covered by its digest: what is cleaned up afterwards removes no author.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from django.db.models import prefetch_related_objects

from clusters.models import Pool
from components.charts.store import UPLOADED
from components.models import Archive, ClusterValues, SiteEntry
from jobs.models import Plan, PlanComponent
from profiles.models import Revision
from profiles.services.editing import ancestry

APPROVED = (Plan.Status.APPROVED, Plan.Status.STARTED)


def authors_of_plan(plan: Plan) -> Mapping[int, str]:
    """Return, by person's key, what they wrote, as it follows “they”.
    Plans older than the field: authors of their revisions.
    """
    if plan.authorship is None:
        return _of_revisions(plan.revision)
    prefetch_related_objects([plan.revision], "authors")  # once, however many people are judged
    now = dict.fromkeys((author.pk for author in plan.revision.authors.all()), f"you wrote {plan.revision}")
    return now | {int(pk): what for pk, what in plan.authorship.items()}


def find_authors(pool: Pool, revision: Revision, rows: Iterable[PlanComponent]) -> dict[str, str]:
    """Return the authors as `Plan.authorship` stores them. `rows` are the components that the plan brings."""
    rows = [row for row in rows if row.kind == PlanComponent.Kind.RELEASE]
    contributions = _of_selector(pool) | _of_archives(rows) | _of_entries(rows)
    contributions |= _of_values(pool, [row.component for row in rows])
    contributions |= _of_revisions(revision)
    return {str(pk): what for pk, what in sorted(contributions.items())}


def _of_revisions(revision: Revision) -> dict[int, str]:
    contributions: dict[int, str] = {}
    for row in ancestry(revision):
        what = f"you wrote {row}" if row.pk == revision.pk else f"you wrote {row}, which {revision} extends"
        for pk in row.authors.values_list("pk", flat=True):
            contributions.setdefault(pk, what)
    return contributions


def _of_values(pool: Pool, names: list[str]) -> dict[int, str]:
    contributions: dict[int, str] = {}
    if names:
        for row in ClusterValues.objects.filter(cluster=pool.cluster_id, component__in=names):
            contributions |= dict.fromkeys(row.authors, f"you wrote values of {row.component} in {pool.cluster}")
    return contributions


def _of_archives(rows: Iterable[PlanComponent]) -> dict[int, str]:
    contributions: dict[int, str] = {}
    if archive_ids := {row.archive for row in rows if row.archive}:
        for archive in Archive.objects.filter(pk__in=archive_ids).only("name", "version", "origin", "authors"):
            did = "uploaded" if archive.origin == UPLOADED else "set up the repository of"
            contributions |= dict.fromkeys(archive.authors, f"you {did} the chart {archive}")
    return contributions


def _of_entries(rows: Iterable[PlanComponent]) -> dict[int, str]:
    contributions: dict[int, str] = {}
    if names := [row.component for row in rows if (row.prepared or {}).get("entry")]:
        for entry in SiteEntry.objects.filter(pk__in=names).only("name", "authors"):
            contributions |= dict.fromkeys(entry.authors, f"you wrote the catalog entry {entry}")
    return contributions


def _of_selector(pool: Pool) -> dict[int, str]:
    last = Plan.objects.filter(pool=pool, status__in=APPROVED).order_by("-created_at").first()
    since = [
        author["by"]
        for author in pool.selector_authors
        if last is None or datetime.fromisoformat(author["at"]) > last.created_at
    ]
    return dict.fromkeys(since, f"you chose the nodes of {pool}: its selector is yours since the last approved plan")
