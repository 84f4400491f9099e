"""Address ranges of an account: its log-ins, sessions and tokens are accepted from nowhere else.

Beside its own ranges, an account with a role of power is held to SETPOINT_POWER_NETWORKS. The address is the one that
tokens are judged by (accounts.access.addresses).
"""

from __future__ import annotations

from django.conf import settings
from django.contrib import auth
from django.http import HttpRequest

from accounts.access import networks
from accounts.access.addresses import client_address
from accounts.models import RoleBinding, User
from audit.services import record

Role = RoleBinding.Role
POWER = frozenset({Role.ADMIN, Role.APPROVER, Role.OPERATOR, Role.BREAK_GLASS})
"""Roles that SETPOINT_POWER_NETWORKS is about, in any scope; a superuser holds them."""
OUTSIDE = "from outside of the account's address ranges"


def admits(user: User, address: str) -> bool:
    """Return whether this account is accepted from this address. Ranges that were changed in the table admit none."""
    if user.networks and not (user.is_genuine and networks.admits(user.networks, address)):
        return False
    limit = settings.SETPOINT_POWER_NETWORKS
    return not limit or networks.admits(limit, address) or not has_power(user)


def has_power(user: User) -> bool:
    return user.is_superuser or any(role in POWER for role, _ in user.grants)


def accepts(user: User, address: str, way: str) -> bool:
    """Return whether `admits`, and record a refusal. `way`: what the browser had proved."""
    if admits(user, address):
        return True
    _record(user, address, way)
    return False


def end_if_outside(request: HttpRequest) -> None:
    """End this session where its address is not accepted; the request continues as no one's."""
    user = request.user
    if isinstance(user, User) and not admits(user, client_address(request)):
        _record(user, client_address(request), "with a session, which ended")
        auth.logout(request)


def _record(user: User, address: str, way: str) -> None:
    message = f"{address or 'an unknown address'} {way}: {OUTSIDE}"
    record(by="anonymous", action="session.refuse", target=f"user:{user.pk}", target_name=user.email, message=message)
