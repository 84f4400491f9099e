"""Import of an iCalendar file: all of its events become rules, or none; or those that can, where that is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.db import transaction

from accounts.models import User
from accounts.permissions import GLOBAL, require_person
from clusters.models import Cluster, Pool
from common.errors import Invalid
from jobs.calendars import calendar_file, rule_text, rulebook
from jobs.calendars.calendar_file import RefusedEvent
from jobs.models import CalendarRule

NAMED = 20
"""Refused events that an error names."""


@dataclass(slots=True)
class ImportResult:
    created: list[CalendarRule] = field(default_factory=list)
    refused: list[RefusedEvent] = field(default_factory=list)


@transaction.atomic
def import_file(
    content: bytes,
    *,
    by: User,
    kind: str,
    environment: str = "",
    cluster: Cluster | None = None,
    pool: Pool | None = None,
    zone: str = "",
    skip_refused: bool = False,
) -> ImportResult:
    """Make a rule of each event, all for one target. An event that Setpoint exported keeps its kind; the others are of
    `kind`. `zone`: of dates and times that name none.

    Raises NotAllowed; Invalid with the line, UID and reason of each refused event, unless `skip_refused`.
    """
    require_person(by, "admin", GLOBAL, doing="write calendar rules")
    if zone and zone not in rule_text.zones():
        raise Invalid("The zone is not valid.", fields={"zone": ["Must be an IANA time zone, such as Europe/Berlin."]})
    known = calendar_file.read_events(content, zone)
    out = ImportResult(refused=known.refused)
    target = {"environment": environment, "cluster": cluster, "pool": pool}
    for event in known.events:
        try:
            with transaction.atomic():
                out.created.append(rulebook.create(by=by, **{"kind": kind, **event.fields, **target}))
        except Invalid as error:
            if wrong := set(error.fields) & {"kind", *target}:  # of all events alike
                raise Invalid(str(error), fields={name: error.fields[name] for name in wrong}) from error
            reason = " ".join(text for texts in error.fields.values() for text in texts)
            out.refused.append(RefusedEvent(event.line, event.uid, reason))
    out.refused.sort(key=lambda refused: refused.line)
    if out.refused and not (skip_refused and out.created):
        raise Invalid("Nothing was imported.", fields={"file": _named(out.refused)})
    return out


def _named(refused: list[RefusedEvent]) -> list[str]:
    texts = [str(event) for event in refused[:NAMED]]
    more = len(refused) - len(texts)
    return [*texts, f"And {more} more."] if more else texts
