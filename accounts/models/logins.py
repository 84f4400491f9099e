"""Rows of log-ins without a password: passkeys of people, workload identity of machines, and what of each is spent."""

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


class WorkloadRule(Marked):
    """A rule: which tokens of an outside issuer are exchanged for short-lived API tokens. It is never changed, but for
    being enabled."""

    MARKED = ("id", "name", "issuer", "keys", "audience", "conditions", "account_id", "scopes", "minutes", "may_repeat",
              "networks", "is_enabled", "made_at")  # fmt: skip

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    name = models.CharField(max_length=40, unique=True)
    issuer = models.CharField(max_length=500, help_text="The claim iss, and where its discovery document is.")
    keys = models.JSONField(default=dict, help_text="A JWKS in place of the issuer's published one; empty: that one.")
    audience = models.CharField(max_length=500, help_text="The claim aud: names this installation.")
    conditions = models.JSONField(default=dict, help_text="Claim, as a dotted path: value, in which * may stand.")
    account = models.ForeignKey(
        "accounts.User", on_delete=models.CASCADE, related_name="workload_rules",
        help_text="The service account that its tokens act as.",
    )  # fmt: skip
    scopes = models.JSONField(default=list, help_text="read, plan, apply, admin: never approve.")
    minutes = models.PositiveSmallIntegerField(help_text="How long its tokens live.")
    may_repeat = models.BooleanField(default=False, help_text="The same token is exchanged more than once.")
    networks = models.CharField(max_length=1000, blank=True, help_text="Address ranges, as a token's.")
    is_enabled = models.BooleanField(default=True)
    made_by = models.CharField(max_length=254)
    made_at = models.DateTimeField(default=now)
    used_at = models.DateTimeField(null=True, help_text="Of the last exchange, to the minute.")

    objects = MarkedQuerySet["WorkloadRule"].as_manager()

    class Meta:
        ordering = ["name"]
        indexes = [models.Index(fields=["issuer", "is_enabled"])]

    def __str__(self) -> str:
        return self.name


class UsedAssertion(models.Model):
    """A token or an assertion of an outside issuer that was used, by a hash: until it expires, never a second time.

    The requests that SAML assertions answer are here, too."""

    digest = models.CharField(primary_key=True, max_length=64)
    expires_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return self.digest
