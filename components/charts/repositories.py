"""Chart repositories as an administrator keeps them: added, changed, switched off, tried. No password is read back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction

from accounts.models import User
from accounts.permissions import GLOBAL, Role, require
from audit import services as audit
from clusters.connection import encryption, remotes
from clusters.net import certificates
from common import addresses, hooks
from common.clock import now
from common.errors import Invalid, WrongState
from components.catalog import catalog
from components.catalog.entry import Component
from components.catalog.versions import same_version
from components.charts import fetching, store, uploads
from components.charts.fetching import ChartSource, Unfetchable
from components.models import Repository

FIELDS = ("name", "url", "stands_for", "username", "ca", "hosts", "is_enabled")
MOST_HOSTS = 20
LONGEST_PASSWORD = 4096
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_HOST = re.compile(r"(?=.{1,260}\Z)[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[1-9][0-9]{0,4})?")


def may_change(user: User) -> None:
    require(user, Role.ADMIN, GLOBAL, "see and set up chart repositories")


# ── Writing ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def create(*, by: User, password: str = "", **fields: Any) -> Repository:
    """Raises NotAllowed, Invalid."""
    may_change(by)
    row = filled(Repository(), password=password, **fields)
    row.changed_by, row.authors = str(by)[:150], [by.pk]
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            _record("create", row, by, before=None, after=for_records(row))
    except IntegrityError as error:
        raise _taken(row) from error
    return row


def update(row: Repository, *, by: User, version: int, password: str | None = None, **changes: Any) -> Repository:
    """`password` None: the stored one stays; empty: it is forgotten. Raises NotAllowed, Invalid, Stale."""
    may_change(by)
    before = for_records(row)
    changed = filled(Repository.objects.get(pk=row.pk), password=password, **changes)
    authors = sorted({*changed.authors, by.pk})
    try:
        with transaction.atomic():
            remotes.write(changed, FIELDS, by=by, version=version, title=f"the repository {row.name}", authors=authors)
            after = for_records(changed) | remotes.new_secret(changed, password)
            _record("update", changed, by, before=before, after=after)
    except IntegrityError as error:
        raise _taken(changed) from error
    row.refresh_from_db()
    return row


def delete(row: Repository, *, by: User, version: int) -> None:
    """Raises NotAllowed, Stale, and WrongState while a plan names an archive of a chart that it serves."""
    may_change(by)
    if named := _needed_by(row):
        raise WrongState(f"{row} cannot be deleted: {named}. Switch it off, and it is never asked.")
    with transaction.atomic():
        remotes.delete(row, version=version, title=f"the repository {row.name}")
        _record("delete", row, by, before=for_records(row), after=None)


def _needed_by(row: Repository) -> str:
    """`P-7 names volcano 1.15.1, which it serves`; empty where no plan does."""
    here = {(component.chart.chart, component.chart.reference) for component in _served_by(row)}
    archives = {a.pk: a for a in uploads.known() if (a.name, a.origin) in here}
    used = [(archives[key], plans) for key, plans in uploads.uses(list(archives)).items() if plans]
    if not used:
        return ""
    archive, plans = used[0]
    more = f", and {len(used) - 1} more of its charts are named by plans" if len(used) > 1 else ""
    return f"P-{plans[0].number} names {archive}, which it serves{more}"


def _served_by(row: Repository) -> list[Component]:
    """The catalog's components that come from here."""
    url = (row.stands_for or row.url).rstrip("/")
    return [component for component in catalog.all() if component.chart.url.rstrip("/") == url]


def _taken(row: Repository) -> Invalid:
    """The field that another repository has already."""
    others = Repository.objects.exclude(pk=row.pk)
    meant = [
        name for name in ("name", "url", "stands_for") if others.filter(**{name: getattr(row, name) or None}).exists()
    ]
    fields = {name: ["Another repository has it already."] for name in meant or ("name",)}
    return Invalid("There is such a repository already.", fields=fields)


def for_records(row: Repository) -> dict[str, Any]:
    """Return the row for records: everything but what is secret."""
    return remotes.recorded_fields(row, FIELDS)


def _record(
    verb: str, row: Repository, by: User, *, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> None:
    audit.record(
        by=by,
        action=f"chart-repository.{verb}",
        target=f"chart-repository:{row.pk}",
        target_name=row.name,
        before=before,
        after=after,
    )


def stored_secrets() -> Iterator[hooks.StoredSecret]:
    for row in Repository.objects.order_by("name"):
        title, target = f"the chart repository {row.name}", f"chart-repository:{row.pk}"
        action = "chart-repository.reseal"
        yield remotes.stored_secret(row, title=title, action=action, target=target, target_name=row.name)


# ── Judging what was given ────────────────────────────────────────────────────────────────────────────────────────────
def filled(row: Repository, *, password: str | None = None, **fields: Any) -> Repository:
    """The row with these fields, judged and not saved: for saving, and for trying it first. Raises Invalid."""
    was = row.url
    for name, value in fields.items():
        setattr(row, name, value)
    bad_password = ("password", _bad_password(row, was, password))
    remotes.refuse("The repository cannot be saved", [*_objections(row), bad_password])
    remotes.seal(row, password)
    return row


def _bad_password(row: Repository, was: str, given: str | None) -> str:
    if given is not None and (len(given) > LONGEST_PASSWORD or not given.isprintable()):
        return f"At most {LONGEST_PASSWORD} characters, none of them invisible."
    if remotes.is_carried_off(row, was, given):
        return "Give it again, or forget it: the stored one is not sent to another host than it was given for."
    return ""


def _objections(row: Repository) -> list[tuple[str, str]]:
    row.url, row.stands_for = row.url.rstrip("/"), row.stands_for.rstrip("/")
    row.hosts = [str(host).strip().lower() for host in row.hosts]
    return [
        ("name", "" if _NAME.fullmatch(row.name) else "Small letters, digits and '-', at most 63 characters."),
        ("url", _bad_url(row.url)),
        ("stands_for", _bad_url(row.stands_for) if row.stands_for else ""),
        ("stands_for", "Is the repository's own address; leave it empty." if row.stands_for == row.url != "" else ""),
        ("username", _bad_user(row.username)),
        ("ca", certificates.objection_to_ca(row.ca, now())),
        ("hosts", f"At most {MOST_HOSTS} hosts." if len(row.hosts) > MOST_HOSTS else ""),
        *(("hosts", "" if _HOST.fullmatch(host) else f"{host[:80]!r} is no host or host:port.") for host in row.hosts),
    ]


def _bad_user(text: str) -> str:
    is_good = len(text) <= 200 and text.isprintable() and ":" not in text
    return "" if is_good else "At most 200 characters, without ':'."


def _bad_url(text: str) -> str:
    advice = "Write https://host/path of a repository with an index.yaml, or oci://host/path."
    parts = addresses.parted(text)
    if parts is None or not addresses.is_bare(parts):
        return advice
    if parts.scheme == "http":
        return "Must be https: what comes over http could be changed on the way."
    if addresses.names_a_person(parts):
        return "Put user name and password into their own fields, not into the address."
    return "" if parts.scheme in ("https", "oci") else advice


# ── Trying ────────────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class ServedChart:
    component: str
    chart: str
    is_there: bool
    text: str


@dataclass(frozen=True, slots=True)
class RepositoryCheck:
    is_reached: bool
    text: str
    served: Sequence[ServedChart] = ()
    """The catalog's components that come from here."""


def probe(row: Repository, *, by: User) -> RepositoryCheck:
    """Ask it now, saved or not, enabled or not. Waits on the network: hold no transaction. Raises NotAllowed."""
    may_change(by)
    meant = _served_by(row)
    try:
        password = row.open_secret()
        probed = _source(row, "", (), password)
        with store.asking(probed) as (door, deadline):
            names = fetching.listed(door, probed, deadline)
            served = []
            for component in meant:
                source = _source(row, component.chart.chart, component.chart.hosts, password)
                served.append(
                    _served(component.name, component.newest, source, lambda s: fetching.offered(door, s, deadline))
                )
    except (encryption.CannotOpen, encryption.KeyUnusable) as error:
        return RepositoryCheck(False, f"Its stored password cannot be read: {error}. Give it again.")
    except Unfetchable as error:
        return RepositoryCheck(False, f"{error}.")
    if probed.is_oci:
        return RepositoryCheck(True, "The registry answers; which charts it has, it does not tell.", tuple(served))
    many = len(names)
    return RepositoryCheck(True, f"Its index.yaml lists {many:,} chart{'' if many == 1 else 's'}.", tuple(served))


def _source(row: Repository, chart: str, hosts: Sequence[str], password: str) -> ChartSource:
    named = tuple(row.hosts) if row.stands_for else (*hosts, *row.hosts)
    return ChartSource(row.url.rstrip("/"), chart, named, row.username, password, row.ca, row.name or row.url)


def _served(component: str, version: str, source: ChartSource, offered: Any) -> ServedChart:
    try:
        versions = offered(source)
    except Unfetchable as error:
        return ServedChart(component, source.chart, False, f"{error}.")
    if any(same_version(offered_version, version) for offered_version in versions):
        return ServedChart(component, source.chart, True, f"has {version}, and {len(versions):,} versions in all")
    return ServedChart(component, source.chart, False, f"lacks {version}; it begins with {', '.join(versions[:3])}")
