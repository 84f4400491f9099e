"""Chart archives that people bring: uploaded where no repository can be reached, listed, and deleted when unused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO

from django.db import transaction
from django.db.models import QuerySet

from accounts.models import User
from accounts.permissions import GLOBAL, Role, require
from audit import services as audit
from common import hooks
from common.errors import WrongState
from common.hooks import WorkRef
from components.catalog import catalog
from components.catalog.entry import Component
from components.charts import archives
from components.charts.archives import BadArchive
from components.charts.store import UPLOADED
from components.models import Archive


def may_upload(user: User) -> None:
    require(user, Role.ADMIN, GLOBAL, "store or delete chart archives")


def known() -> QuerySet[Archive]:
    """Return the uploaded archives without their bytes."""
    return Archive.objects.defer("content").order_by("name", "-stored_at", "pk")


def upload(file: IO[bytes], *, by: User) -> tuple[Archive, bool]:
    """Judged before a byte is stored. Whether it is new here comes with it. Raises NotAllowed, BadArchive."""
    may_upload(by)
    content = file.read(archives.MAX_PACKED + 1)
    if not content:
        raise BadArchive("is empty")
    if len(content) > archives.MAX_PACKED:
        raise BadArchive(f"is longer than {archives.MAX_PACKED:,} bytes, the most that is accepted")
    chart = archives.judge(content)
    with transaction.atomic():
        is_new = not Archive.objects.filter(pk=chart.sha256).exists()
        archive = archives.store(content, origin=UPLOADED, by=str(by), authors=[by.pk])
        if is_new:
            after = {"name": archive.name, "version": archive.version, "size": archive.size, "sha256": archive.sha256}
            _record("upload", archive, by, before=None, after=after)
    return archive, is_new


def delete(archive: Archive, *, by: User) -> None:
    """Raises NotAllowed, and WrongState while a plan names it: what was approved stays what can be carried out."""
    may_upload(by)
    with transaction.atomic():
        held(Archive.objects.filter(pk=archive.pk))  # a plan that is being stored ends first: see `keep`
        if plans := uses([archive.pk]).get(archive.pk):
            named = ", ".join(f"P-{plan.number}" for plan in plans[:5])
            raise WrongState(f"{archive} cannot be deleted: {named}{' and others' if len(plans) > 5 else ''} name it.")
        before = {"name": archive.name, "version": archive.version, "sha256": archive.sha256, "origin": archive.origin}
        _record("delete", archive, by, before=before, after=None)
        archive.delete()


def keep(to_keep: Mapping[str, str]) -> None:
    """Keep a plan's archives (SHA-256 → component) from being deleted before the plan ends.

    Call in the transaction that stores the plan. Raises WrongState where one was deleted since the plan took it.
    """
    there = set(held(Archive.objects.filter(pk__in=list(to_keep))))
    for key, component in sorted(to_keep.items(), key=lambda item: item[1]):
        if key not in there:
            raise WrongState(f"The chart archive of {component} was deleted while this plan was made. Plan again.")


def held(rows: QuerySet[Archive]) -> list[str]:
    """Lock them, in one order; the keys of those that are there."""
    return list(rows.select_for_update().order_by("pk").values_list("pk", flat=True))


def uses(keys: Sequence[str], user: User | None = None) -> dict[str, list[WorkRef]]:
    """The newest plans that name each of these archives: all, or those that this person may see."""
    plans_by_archive: dict[str, list[WorkRef]] = {}
    for key, plan in hooks.plans_of_archives(keys, user):
        plans_by_archive.setdefault(key, []).append(plan)
    return plans_by_archive


def components_of(name: str) -> list[Component]:
    """Those of the catalog that are installed from a chart of this name."""
    return catalog.of_chart(name)


def replaced(archive: Archive) -> Archive | None:
    """Another archive of the same chart and version, which plans took before this one."""
    same = known().filter(name=archive.name, version=archive.version).exclude(pk=archive.pk)
    return same.order_by("-stored_at").first()


def _record(
    verb: str, archive: Archive, by: User, *, before: Mapping[str, object] | None, after: Mapping[str, object] | None
) -> None:
    audit.record(
        by=by,
        action=f"chart-archive.{verb}",
        target=f"chart-archive:{archive.pk}",
        target_name=str(archive),
        before=before,
        after=after,
    )
