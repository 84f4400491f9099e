"""Rows of SCIM: the clients that may provision, and the people and groups that a provider's directory has sent."""

from __future__ import annotations

import uuid

from django.db import models

from audit.marked import Marked, MarkedQuerySet
from common.clock import now


class ScimClient(Marked):
    """`Bearer scim_<id>.<secret>` of one provider's directory; only a hash of the secret is stored. No API token."""

    MARKED = ("id", "issuer", "secret_hash", "networks", "expires_at", "enabled_at")

    id = models.CharField(primary_key=True, max_length=16)
    issuer = models.CharField(max_length=500, help_text="Of the provider whose people and groups it provisions.")
    name = models.CharField(max_length=80)
    secret_hash = models.CharField(max_length=64)
    networks = models.CharField(
        max_length=1000, blank=True, help_text="Address ranges it is accepted from; empty: any."
    )
    made_by = models.CharField(max_length=254)
    created_at = models.DateTimeField(default=now)
    enabled_at = models.DateTimeField(null=True, help_text="Null: waits for a second administrator's consent.")
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)
    refused_at = models.DateTimeField(null=True, help_text="When a use from another address was last recorded.")
    revoked_at = models.DateTimeField(null=True)

    objects = MarkedQuerySet["ScimClient"].as_manager()

    class Meta:
        ordering = ["-created_at", "id"]

    def __str__(self) -> str:
        return f"{self.name} (scim_{self.id})"

    @property
    def is_live(self) -> bool:
        return self.enabled_at is not None and self.revoked_at is None and self.expires_at > now()


class ScimDirectory(models.Model):
    """The lock of all writes of one directory, so that they come one after another."""

    issuer = models.CharField(max_length=500, unique=True)

    def __str__(self) -> str:
        return self.issuer


class ScimUser(Marked):
    """An account as its provider's directory has it. Both it and people here can deactivate it."""

    MARKED = ("id", "user_id", "issuer", "external_id", "is_active", "is_closed_by_it", "deleted_at")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    user = models.OneToOneField("accounts.User", on_delete=models.CASCADE, related_name="scim")
    issuer = models.CharField(max_length=500)
    user_name = models.CharField(max_length=254)
    user_name_key = models.CharField(max_length=400, help_text="userName without its case: it is unique so.")
    external_id = models.CharField(max_length=255, blank=True, help_text="externalId; leads a log-in to the account.")
    display_name = models.CharField(max_length=254, blank=True)
    is_active = models.BooleanField(default=True, help_text="The directory's word.")
    is_closed_by_it = models.BooleanField(
        default=False, help_text="Its word deactivated the account, and may activate it again; else a person did."
    )
    created_at = models.DateTimeField(default=now)
    changed_at = models.DateTimeField(default=now)
    deleted_at = models.DateTimeField(null=True, help_text="The directory deleted it: the account stays, deactivated.")

    objects = MarkedQuerySet["ScimUser"].as_manager()

    class Meta:
        ordering = ["created_at", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["issuer", "user_name_key"], name="one_scim_user_name"),
            models.UniqueConstraint(
                fields=["issuer", "external_id"], condition=~models.Q(external_id=""), name="one_scim_external_id"
            ),
        ]

    def __str__(self) -> str:
        return self.user_name


class ScimGroup(Marked):
    """A group of a provider's directory. It gives what the operator's mapping says of it."""

    MARKED = ("id", "issuer", "display_name", "external_id")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    issuer = models.CharField(max_length=500)
    display_name = models.CharField(max_length=254)
    display_name_key = models.CharField(max_length=400, help_text="displayName without its case: it is unique so.")
    external_id = models.CharField(max_length=255, blank=True)
    created_at = models.DateTimeField(default=now)
    changed_at = models.DateTimeField(default=now)

    objects = MarkedQuerySet["ScimGroup"].as_manager()

    class Meta:
        ordering = ["created_at", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["issuer", "display_name_key"], name="one_scim_group_name"),
            models.UniqueConstraint(
                fields=["issuer", "external_id"], condition=~models.Q(external_id=""), name="one_scim_group_external_id"
            ),
        ]

    def __str__(self) -> str:
        return self.display_name


class ScimMember(Marked):
    """A person in a group."""

    MARKED = ("group_id", "member_id")

    group = models.ForeignKey(ScimGroup, on_delete=models.CASCADE, related_name="memberships")
    member = models.ForeignKey(ScimUser, on_delete=models.CASCADE, related_name="memberships")

    objects = MarkedQuerySet["ScimMember"].as_manager()

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["group", "member"], name="one_scim_membership")]

    def __str__(self) -> str:
        return f"{self.member} in {self.group}"
