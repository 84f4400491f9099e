"""Creation of the second administrator, whose consent later changes of power need.

While an installation has one administrator and has never had a second one or an approver, that one may make a second
administrator of everything alone, in a session. From the first second administrator or approver on this is closed for
ever, even if roles are removed later. An administrator who is then left alone makes another one on the server, with
`createadmin`.
"""

from __future__ import annotations

from accounts.models import RoleBinding, Setup, User
from accounts.permissions import Role
from common.clock import now

Roles = RoleBinding.objects


def lets(user: User, role: str, scope: str, by: User) -> bool:
    """Return whether `by` may make `user` the second administrator without consent."""
    is_second = role == Role.ADMIN and scope == "*" and not user.is_service and user.pk != by.pk
    return is_second and by.acting_token is None and is_alone()


def is_alone() -> bool:
    """Return whether the one administrator is, and has always been, the only person with such power."""
    note()
    return administrators() == 1 and not _is_shared()


def needs_no_consent(by: User) -> bool:
    """Return whether `by` decides alone: there is no second administrator yet, and no approver yet."""
    return by.acting_token is None and is_alone()


def note() -> None:
    """Remember that power is shared, before anything is taken away again. In the caller's transaction."""
    if _is_shared():
        return
    shared = administrators() > 1 or Roles.filter(role=Role.APPROVER).exists()
    if shared or Roles.filter(role=Role.ADMIN).exclude(scope="*").exists():
        row, _ = Setup.objects.get_or_create(pk=Setup.ONLY, defaults={"token_hash": ""})
        if row.shared_at is None:
            row.put_marked(shared_at=now())


def administrators() -> int:
    """Active people who administer everything."""
    active = User.objects.filter(is_active=True, is_service=False)
    bound = active.filter(bindings__role=Role.ADMIN, bindings__scope="*")
    return (bound | active.filter(is_superuser=True)).distinct().count()


def _is_shared() -> bool:
    """A row that was changed in the table has no valid mark and does not count: consent is required, as later."""
    row = Setup.objects.filter(pk=Setup.ONLY).first()
    return row is not None and (row.shared_at is not None or not row.is_genuine)
