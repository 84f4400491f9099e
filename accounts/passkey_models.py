"""Rows of passkeys: credentials of WebAuthn, and which challenges were answered already."""

from __future__ import annotations

import uuid

from django.db import models

from audit.marked import Marked, MarkedQuerySet
from common.clock import now


class Passkey(Marked):
    """A discoverable credential (WebAuthn) of a local account. It replaces the second factor, or the whole log-in."""

    MARKED = ("id", "user_id", "credential", "user_handle", "public_key", "sign_count", "is_syncable", "created_at")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    user = models.ForeignKey("accounts.User", on_delete=models.CASCADE, related_name="passkeys")
    name = models.CharField(max_length=60, help_text="By which its owner recognizes it.")
    credential = models.CharField(max_length=1364, unique=True, help_text="The credential ID, base64url.")
    user_handle = models.CharField(max_length=86, help_text="What its authenticator knows its owner as; random.")
    public_key = models.CharField(max_length=1500, help_text="A COSE key, base64url.")
    sign_count = models.BigIntegerField(default=0, help_text="Of the last use. An authenticator without a counter: 0.")
    is_syncable = models.BooleanField(default=False, help_text="It may be copied to other devices. It never changes.")
    created_at = models.DateTimeField(default=now)
    last_used_at = models.DateTimeField(null=True)

    objects = MarkedQuerySet["Passkey"].as_manager()

    class Meta:
        ordering = ["created_at", "pk"]

    def __str__(self) -> str:
        return f"passkey {self.name} of {self.user}"


class SpentChallenge(models.Model):
    """A challenge that was answered, by a hash: no process accepts a second answer to it."""

    digest = models.CharField(primary_key=True, max_length=64)
    at = models.DateTimeField(default=now, db_index=True)

    def __str__(self) -> str:
        return self.digest
