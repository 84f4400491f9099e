"""People, their roles and their API tokens."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.auth.models import AbstractUser, UserManager
from django.db import models

from common.clock import now


class People(UserManager["User"]):
    """Log-in is by email; `username` is kept equal to it."""

    def create_user(self, username: str, email: str | None = None, password: str | None = None, **extra: Any) -> User:
        return super().create_user(username.lower(), (email or username).lower(), password, **extra)


class User(AbstractUser):
    class Theme(models.TextChoices):
        SYSTEM = "", "As the system"
        LIGHT = "light", "Light"
        DARK = "dark", "Dark"

    email = models.EmailField(unique=True)
    is_service = models.BooleanField(default=False, help_text="A machine's account: no password, never approves.")
    theme = models.CharField(max_length=5, choices=Theme, default=Theme.SYSTEM, blank=True)

    objects: ClassVar[People] = People()  # type: ignore[assignment]

    def __str__(self) -> str:
        return self.email


class RoleBinding(models.Model):
    """One role of one person in one scope. Roles do not include one another, except that all include viewer."""

    class Role(models.TextChoices):
        VIEWER = "viewer"
        OPERATOR = "operator"
        APPROVER = "approver"
        ADMIN = "admin"

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="bindings")
    role = models.CharField(max_length=10, choices=Role)
    scope = models.CharField(max_length=60, default="*", help_text="* | env:production | cluster:<uuid>")
    created_at = models.DateTimeField(default=now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "role", "scope"], name="one_binding")]

    def __str__(self) -> str:
        return f"{self.user}: {self.role} in {self.scope}"


class ApiToken(models.Model):
    """`Bearer sp_<id>.<secret>`; only a hash of the secret is stored."""

    class Kind(models.TextChoices):
        PERSONAL = "personal"
        SERVICE = "service"

    id = models.CharField(primary_key=True, max_length=16)
    kind = models.CharField(max_length=10, choices=Kind)
    name = models.CharField(max_length=80)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    secret_hash = models.CharField(max_length=64)
    scopes = models.JSONField(default=list, help_text="read, plan, apply, approve, admin")
    created_at = models.DateTimeField(default=now)
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.name} (sp_{self.id})"
