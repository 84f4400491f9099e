"""How a session finds its person."""

from __future__ import annotations

from django.contrib.auth.backends import ModelBackend

from accounts.models import RoleBinding, User


class WithRoles(ModelBackend):
    """Django's, but a person is read together with their roles, which every page asks for: one query, not two."""

    def get_user(self, user_id: int) -> User | None:
        bindings = list(RoleBinding.objects.filter(user=user_id).select_related("user"))
        if not bindings:
            found = super().get_user(user_id)
            return found if isinstance(found, User) else None
        user = bindings[0].user
        user.granted = {(binding.role, binding.scope): binding.created_at for binding in bindings}
        return user if self.user_can_authenticate(user) else None
