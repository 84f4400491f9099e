"""Browsers that are logged in: listed for their owner, and ended by their owner or an administrator.

A session lives in Django's table, under the hash of its key; the row here has its person, address and last use. Ending
deletes both, so the next request of that browser is anonymous. A row whose session is over is never shown and is
forgotten later.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import Count, QuerySet
from django.http import HttpRequest

from accounts.access.addresses import client_address
from accounts.access.session_store import SessionStore
from accounts.models import LiveSession, User
from accounts.permissions import GLOBAL, Role, may, require_person
from audit.services import record
from common.clock import now
from common.errors import Missing

SEEN_EVERY = timedelta(minutes=1)
"""`seen_at` is written at most this often by each process: a page that polls must not write with every poll."""
REMEMBERED = 5000
"""Sessions of which this process remembers when it last wrote."""


class _Written:
    """Times at which this process last wrote `seen_at`, by session; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._at: OrderedDict[str, datetime] = OrderedDict()
        self._lock = threading.Lock()

    def is_due(self, key: str, at: datetime) -> bool:
        """Tell whether to write now, and if so, note the time."""
        with self._lock:
            last = self._at.get(key)
            if last is not None and timedelta(0) <= at - last < SEEN_EVERY:
                return False
            self._at[key] = at
            self._at.move_to_end(key)
            while len(self._at) > REMEMBERED:
                self._at.popitem(last=False)
            return True


_written = _Written()


def key_of(request: HttpRequest) -> str | None:
    """Return this request's session key as stored: a hash (accounts.access.session_store). None before it is saved."""
    session = request.session
    return session.stored_key if isinstance(session, SessionStore) else None


def begin(request: HttpRequest, user: User) -> None:
    """Call it once the session is `user`'s."""
    key = key_of(request)
    if not key:
        return
    LiveSession.objects.update_or_create(key=key, defaults={"user": user, **_seen_values(request), "started_at": now()})
    _written.is_due(key, now())


def renamed(old: str | None, new: str | None) -> None:
    """The same browser under a new key, as after a change of password."""
    if old and new and old != new:
        LiveSession.objects.filter(key=old).update(key=new)


def note_seen(request: HttpRequest) -> None:
    """Writes when a session was last used, before its page is made, so that the list of sessions is true."""
    key = key_of(request)
    if key and isinstance(request.user, User) and _written.is_due(key, now()):
        _note(key, request, request.user)


def _note(key: str, request: HttpRequest, user: User) -> None:
    if LiveSession.objects.filter(key=key, user=user).update(**_seen_values(request)):
        return
    begun_before_the_list = LiveSession(key=key, user=user, **_seen_values(request))
    LiveSession.objects.bulk_create([begun_before_the_list], ignore_conflicts=True)


def _seen_values(request: HttpRequest) -> dict[str, Any]:
    browser = request.headers.get("User-Agent", "")[:200]
    return {"address": client_address(request), "browser": browser, "seen_at": now()}


def visible_to(user: User) -> QuerySet[LiveSession]:
    """One's own that still work; administrators of everything see all."""
    working = Session.objects.filter(expire_date__gt=now()).values("session_key")
    rows = LiveSession.objects.filter(key__in=working).select_related("user")
    return rows if may(user, Role.ADMIN, GLOBAL) else rows.filter(user=user)


def own(user: User) -> QuerySet[LiveSession]:
    return visible_to(user).filter(user=user)


def counts(user_ids: Sequence[int]) -> dict[int, int]:
    """Count the valid sessions of each of these users; users without any are left out. One query."""
    working = Session.objects.filter(expire_date__gt=now()).values("session_key")
    rows = LiveSession.objects.filter(user__in=list(user_ids), key__in=working).order_by()
    return dict(rows.values("user").annotate(n=Count("pk")).values_list("user", "n"))


@transaction.atomic
def end(*, pk: int, by: User) -> LiveSession:
    """Raises Missing, also for another person's unless by an administrator. The browser is logged out at once."""
    row = visible_to(by).filter(pk=pk).first()
    if row is None:
        raise Missing("There is no such session; it may have ended already.")
    if row.user_id != by.pk:
        require_over_others(by)
    _end(LiveSession.objects.filter(pk=pk))
    _record(row.user, by, 1, str(row))
    return row


@transaction.atomic
def end_others(*, user: User, keep: str | None, by: User) -> int:
    """All sessions of `user` but the one with the key `keep`; how many. Raises NotAllowed for others' sessions."""
    if user.pk != by.pk:
        require_over_others(by)
    ended = end_all(user, keep=keep)
    if ended:
        _record(user, by, ended, "all" if keep is None else "all others")
    return ended


def require_over_others(by: User) -> None:
    """Raises NotAllowed."""
    require_person(by, Role.ADMIN, GLOBAL, "end another person's sessions")


def end_all(user: User, *, keep: str | None = None) -> int:
    """End the user's sessions, except `keep`, on deactivation or a new password. Records nothing: the callers record
    their own action."""
    rows = LiveSession.objects.filter(user=user)
    return _end(rows.exclude(key=keep) if keep else rows)


def _end(rows: QuerySet[LiveSession]) -> int:
    keys = list(rows.values_list("key", flat=True))
    working = Session.objects.filter(session_key__in=keys, expire_date__gt=now()).count()
    Session.objects.filter(session_key__in=keys).delete()
    LiveSession.objects.filter(key__in=keys).delete()
    return working


def _record(user: User, by: User, count: int, what: str) -> None:
    after = {"sessions": count}
    record(by=by, action="session.revoke", target=f"user:{user.pk}", target_name=user.email, message=what, after=after)


def forget_old() -> int:
    """Sessions that are over, and rows without one. Rows deleted."""
    over, _ = Session.objects.filter(expire_date__lt=now()).delete()
    gone, _ = LiveSession.objects.exclude(key__in=Session.objects.values("session_key")).delete()
    return over + gone
