"""One provider's directory: its lock, the accounts that it takes over from log-ins, and roles from its groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from django.db import transaction

from accounts.models import Identity, RoleBinding, ScimDirectory, ScimMember, ScimUser, User
from accounts.people import bootstrap, identities
from accounts.providers import Provider
from accounts.scim.clients import Caller
from accounts.scim.people import key_of
from accounts.scim.refusals import ScimRefused

AT_ONCE = 500
"""People whose groups are read by one query."""


class LastAdministrator(ScimRefused):
    """The request would leave the installation without an administrator."""

    def __init__(self) -> None:
        detail = "This would leave the installation without an administrator. Make another one first."
        super().__init__(409, detail, "mutability")


@contextmanager
def writing(caller: Caller) -> Iterator[None]:
    """Hold the directory for one request. Raises LastAdministrator, which undoes it."""
    with transaction.atomic():
        hold(caller.issuer)
        before = bootstrap.administrators()
        yield
        if before and not bootstrap.administrators():
            raise LastAdministrator


def hold(issuer: str) -> None:
    """Take the directory's lock, until the transaction ends."""
    row, _ = ScimDirectory.objects.get_or_create(issuer=issuer)
    ScimDirectory.objects.select_for_update().get(pk=row.pk)


def adopt(provider: Provider) -> None:
    """Make the rows of people who logged in before the directory sent them, so that it can end them, too."""
    unknown = Identity.objects.filter(issuer=provider.issuer, user__scim=None).select_related("user")
    if not unknown.exists():
        return
    with transaction.atomic():
        hold(provider.issuer)
        for identity in unknown.order_by("pk"):
            _adopt(identity, provider)


def _adopt(identity: Identity, provider: Provider) -> None:
    rows = ScimUser.objects.filter(issuer=provider.issuer)
    names = (identity.user.email, identity.subject, f"account-{identity.user_id}")
    name = next((each for each in names if not rows.filter(user_name_key=key_of(each)).exists()), "")
    external_id = identity.subject if provider.scim_subject == "sub" else ""
    if external_id and rows.filter(external_id=external_id).exists():
        external_id = ""
    if name and identity.is_genuine:
        ScimUser.objects.create(
            user=identity.user, issuer=provider.issuer, user_name=name[:254], user_name_key=key_of(name),
            external_id=external_id,
        )  # fmt: skip


# ── Roles ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def roles_of(user: User, provider: Provider) -> frozenset[tuple[str, str]]:
    """Return (role, scope) of the person's groups, by the operator's mapping. Rows made in the table give nothing."""
    return provider.roles_of(_groups_of([user.pk], provider)[user.pk])


def _groups_of(user_ids: Collection[int], provider: Provider) -> dict[int, set[str]]:
    """Return the names of groups, as the mapping has them, by the id of the account."""
    memberships = ScimMember.objects.filter(
        member__user__in=user_ids, member__issuer=provider.issuer, group__issuer=provider.issuer,
        member__deleted_at=None,
    ).select_related("group", "member")  # fmt: skip
    groups: dict[int, set[str]] = defaultdict(set)
    for row in memberships:
        name = row.group.external_id if provider.scim_groups == "externalId" else row.group.display_name
        if name and row.is_genuine and row.group.is_genuine and row.member.is_genuine:
            groups[row.member.user_id].add(name)
    return groups


def follow(user_ids: Collection[int], caller: Caller) -> None:
    """Give these people the roles of their groups, in the directory's transaction. Those without any are shut out."""
    if not caller.provider.scim_groups:
        return
    listed = sorted(set(user_ids))
    for start in range(0, len(listed), AT_ONCE):
        _follow(listed[start : start + AT_ONCE], caller)


def _follow(user_ids: Sequence[int], caller: Caller) -> None:
    """Write only for those whose roles change: a group that everyone is in has thousands."""
    users = list(User.objects.select_for_update().filter(pk__in=user_ids).order_by("pk"))
    groups = _groups_of(user_ids, caller.provider)
    bindings: dict[int, list[RoleBinding]] = defaultdict(list)
    for binding in RoleBinding.objects.filter(user__in=user_ids):
        bindings[binding.user_id].append(binding)
    for user in users:
        wanted = caller.provider.roles_of(groups[user.pk])
        held = {(row.role, row.scope) for row in bindings[user.pk]}
        if wanted == held and all(row.is_genuine for row in bindings[user.pk]):
            continue
        if wanted:
            identities.set_roles(user, wanted, caller.actor)
        elif held and user.is_active:
            identities.shut_out(user, "No group of the directory gives a role any more.", caller.actor)
        elif held:
            identities.set_roles(user, (), caller.actor)


def awaited(provider: Provider, external_id: object) -> ScimUser | None:
    """Return the person of this externalId whom the directory sent and who has not logged in yet."""
    if not isinstance(external_id, str) or not external_id:
        return None
    rows = ScimUser.objects.select_related("user").filter(issuer=provider.issuer, external_id=external_id)
    row = rows.filter(user__identity=None, deleted_at=None).first()
    return row if row and row.is_genuine else None
