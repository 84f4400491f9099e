"""Authentication backend that loads the user of a session."""

from __future__ import annotations

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import AnonymousUser

from accounts.models import RoleBinding, User, granted_by


class WithRoles(ModelBackend):
    """Django's, but a person is read together with their roles, which every page asks for: one query, not two."""

    def get_user(self, user_id: int) -> User | None:
        bindings = list(RoleBinding.objects.filter(user=user_id).select_related("user"))
        if not bindings:
            account = super().get_user(user_id)
            return account if isinstance(account, User) else None  # judged there
        user = bindings[0].user
        user.granted = granted_by(bindings)
        return user if self.user_can_authenticate(user) else None

    def user_can_authenticate(self, user: User | AnonymousUser | None) -> bool:
        """An account whose password or name was written into the table by hand logs in as no one."""
        return super().user_can_authenticate(user) and isinstance(user, User) and user.is_genuine
