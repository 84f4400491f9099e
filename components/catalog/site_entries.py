"""Writing of the site's own catalog entries: uploaded by one administrator, classified by another, deleted when unused.

An entry says how its chart touches running work, so what it says counts only once an administrator who did not write it
has classified it. Until then it is untested and its effects are the strictest. A new text is untested again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from accounts.models import ApiToken, User
from accounts.permissions import GLOBAL, Role, may, require_person
from audit import services as audit
from common import hooks, yaml
from common.clock import now
from common.errors import Invalid, NotAllowed, Stale, WrongState
from components.catalog import catalog, loader
from components.catalog.catalog import BadCatalog
from components.catalog.entry import Component
from components.catalog.site import StoredEntry
from components.models import SiteEntry

MOST = 200
"""A judgment: the whole catalog that comes with Setpoint has a quarter of this."""
RESERVED = frozenset(("archives", "installed", "repositories", "site"))
"""Pages stand at these names."""
SHOWN = 5


def may_change(user: User) -> None:
    require_person(user, Role.ADMIN, GLOBAL, "write entries of the site's catalog")


def reason_not_to_change(user: User) -> str:
    """Return why this person may write no entry; empty when they may."""
    if user.is_service:
        return "A service account cannot write catalog entries: people decide what a chart may do."
    return "" if may(user, Role.ADMIN, GLOBAL) else "You need the role admin in all clusters."


def known() -> QuerySet[SiteEntry]:
    return SiteEntry.objects.order_by("name")


def create(text: str | bytes, *, by: User) -> SiteEntry:
    """Store a new entry, judged first. Raises NotAllowed, Invalid that names field and line."""
    may_change(by)
    text = _decoded(text)
    component = judge(text)
    if SiteEntry.objects.count() >= MOST:
        raise Invalid(f"There are {MOST} entries, the most that are kept. Delete one first.")
    row = SiteEntry(
        name=component.name, text=text, sha256=SiteEntry.sha256_of(text), authors=[by.pk], writers=[by.pk],
        changed_by=str(by)[:150],
    )  # fmt: skip
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            _record("create", row, by, before=None)
    except IntegrityError as error:  # the name is the key
        why = f"The site has an entry {component.name} already: change that one."
        raise Invalid(why, fields={"name": [why]}) from error
    return row


def update(row: SiteEntry, text: str | bytes, *, by: User, version: int) -> SiteEntry:
    """Put another text in its place; it is untested again. Raises NotAllowed, Invalid, Stale."""
    may_change(by)
    text = _decoded(text)
    component = judge(text)
    if component.name != row.name:
        why = f"is {component.name!r}, and this is the entry of {row.name!r}; upload it as a new one"
        raise Invalid(f"name: {why}", fields={"name": [why]})
    with transaction.atomic():
        row = _locked(row, version)
        if row.text == text:
            return row
        before = _for_records(row)
        was_classified = row.is_classified
        row.put_marked(
            text=text,
            sha256=SiteEntry.sha256_of(text),
            authors=sorted({*row.authors, by.pk}),
            # Another administrator has read the classified text; the new one was read by its writer only.
            writers=[by.pk] if was_classified else sorted({*row.writers, by.pk}),
            version=row.version + 1,
            changed_by=str(by)[:150],
            changed_at=now(),
        )
        _record("update", row, by, before=before)
    return row


def reason_not_to_classify(row: SiteEntry, by: User) -> str:
    """Return why this person may not vouch for the entry; empty when they may."""
    if reason := reason_not_to_change(by):
        return reason
    if by.acting_token and ApiToken.Scope.APPROVE not in by.acting_token.scopes:
        return "Classifying is a signature: the token needs the scopes admin and approve, or use the page."
    if by.pk in row.writers:
        return "You wrote this text: an administrator who did not write it must classify it."
    return ""


def classify(row: SiteEntry, *, by: User, version: int) -> SiteEntry:
    """Vouch for what the entry says: its own classes count from now on. Raises NotAllowed, Stale, WrongState."""
    may_change(by)
    with transaction.atomic():
        row = _locked(row, version)
        if reason := reason_not_to_classify(row, by):
            raise NotAllowed(reason)
        if row.is_classified:
            raise WrongState(f"{row} is classified by {row.classified_by}.")
        before = _for_records(row)
        row.put_marked(
            classified_sha256=row.sha256,
            classifier=by.pk,
            classified_by=str(by)[:150],
            classified_at=now(),
            version=row.version + 1,
        )
        _record("classify", row, by, before=before)
    return row


def delete(row: SiteEntry, *, by: User, version: int) -> None:
    """Raises NotAllowed, Stale, and WrongState while something needs it."""
    may_change(by)
    with transaction.atomic():
        current = _lock(row, version)  # a plan that is being stored ends first: see `keep`
        if reasons := needed_by(row):
            more = f" and {len(reasons) - SHOWN} more" if len(reasons) > SHOWN else ""
            raise WrongState(f"{row} cannot be deleted: {'; '.join(reasons[:SHOWN])}{more}.")
        _record("delete", current, by, before=_for_records(current), is_gone=True)
        SiteEntry.objects.filter(pk=current.pk).delete()


def needed_by(row: SiteEntry) -> list[str]:
    """Return what needs the entry: other entries, targets of pools, plans, releases; a clause each."""
    there = catalog.current().components
    own = there.get(row.name)
    if own is not None and not own.entry:
        return []  # the catalog that comes with Setpoint describes it, too
    naming = [
        f"the entry {other.name} names it"
        for other in there.values()
        if row.name in {*other.needs(other.presets), *other.after, *(c.other for c in other.conflicts)}
    ]
    return naming + list(dict.fromkeys(hooks.component_uses(row.name)))


def keep(approved: Mapping[str, str]) -> None:
    """Keep a plan's entries (component → SHA-256) from being deleted or changed before the plan is stored.

    Call in the transaction that stores the plan. Raises WrongState where one was changed since the plan took it.
    """
    wanted = {name: sha256 for name, sha256 in approved.items() if sha256}
    if not wanted:
        return
    rows = SiteEntry.objects.select_for_update().filter(pk__in=list(wanted)).order_by("pk")
    there = dict(rows.values_list("pk", "sha256"))
    for name, sha256 in sorted(wanted.items()):
        if there.get(name) != sha256:
            raise WrongState(f"The catalog entry of {name} was changed while this plan was made. Plan again.")


def judge(text: str) -> Component:
    """Judge a text as it would be stored: the schema, its name, and whether it fits the catalog. Raises Invalid."""
    try:
        component = loader.parse(text, file="entry")
    except BadCatalog as error:
        raise Invalid(str(error), fields={"text": [str(error)]}) from error
    _check_name(component.name)
    there = catalog.current()
    others = [
        StoredEntry(name, (name, "", False, True), other) for name, other in there.components.items() if other.entry
    ]
    own = StoredEntry(component.name, (component.name, "", False, True), component.of_site("new", is_untested=True))
    new = catalog.joined(catalog.shipped(), [*(o for o in others if o.name != component.name), own])
    for name, problem in new.problems.items():
        why = problem if name == component.name else f"with it, {problem}"
        raise Invalid(why, fields={"text": [why]})
    return component


def _check_name(name: str) -> None:
    why = ""
    if name in catalog.shipped().components:
        why = f"Setpoint's own catalog has a component {name}, which no entry of the site takes the place of"
    elif name in RESERVED:
        why = f"{name} is the name of a page; give it another, such as site-{name}"
    if why:
        raise Invalid(f"name: {why}", fields={"name": [why]})


def _decoded(text: str | bytes) -> str:
    """Return the text as it will be stored, to the byte. Raises Invalid."""
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    if size > yaml.MAX_BYTES:
        why = f"is {size:,} bytes long; at most {yaml.MAX_BYTES:,} are accepted"
        raise Invalid(f"text: {why}", fields={"text": [why]})
    try:
        return text.decode() if isinstance(text, bytes) else text.encode().decode()
    except UnicodeError as error:
        raise Invalid("text: is not UTF-8", fields={"text": ["is not UTF-8"]}) from error


def _locked(row: SiteEntry, version: int) -> SiteEntry:
    current = _lock(row, version)
    if not current.is_whole:
        raise WrongState(f"The row of {row} was changed outside Setpoint. Delete it and upload it again.")
    return current


def _lock(row: SiteEntry, version: int) -> SiteEntry:
    """One writer at a time, and only on the version that was read. Raises Stale."""
    current = SiteEntry.objects.select_for_update().filter(pk=row.pk).first()
    if current is None or current.version != version:
        raise Stale(f"The entry {row} was changed meanwhile. Reload it and try again.")
    return current


def _for_records(row: SiteEntry) -> dict[str, Any]:
    return {"sha256": row.sha256, "is_classified": row.is_classified, "text": row.text}


def _record(verb: str, row: SiteEntry, by: User, *, before: Mapping[str, Any] | None, is_gone: bool = False) -> None:
    audit.record(
        by=by,
        action=f"site-entry.{verb}",
        target=f"site-entry:{row.pk}",
        target_name=row.name,
        before=before,
        after=None if is_gone else _for_records(row),
    )
