"""People, their roles, their API tokens, and what keeps their requests honest."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Any, ClassVar

from django.contrib.auth.models import AbstractUser, UserManager
from django.db import models
from django.utils.functional import cached_property

from accounts.browsers import described
from audit.marked import Marked, MarkedQuerySet
from common.clock import now


class People(UserManager["User"]):
    """Log-in is by email; `username` is kept equal to it."""

    def get_queryset(self) -> MarkedQuerySet[User]:
        return MarkedQuerySet(self.model, using=self._db)

    def create_user(self, username: str, email: str | None = None, password: str | None = None, **extra: Any) -> User:
        return super().create_user(username.lower(), (email or username).lower(), password, **extra)

    def create_superuser(
        self, username: str, email: str | None = None, password: str | None = None, **extra: Any
    ) -> User:
        return super().create_superuser(username.lower(), (email or username).lower(), password, **extra)


class User(AbstractUser, Marked):
    MARKED = ("id", "username", "email", "password", "is_superuser", "is_active", "is_service", "is_vouched")
    MARKED_IF_FILLED = ("networks",)

    class Theme(models.TextChoices):
        SYSTEM = "", "As the system"
        LIGHT = "light", "Light"
        DARK = "dark", "Dark"

    email = models.EmailField(unique=True)
    is_service = models.BooleanField(default=False, help_text="A machine's account: no password, never approves.")
    theme = models.CharField(max_length=5, choices=Theme, default=Theme.SYSTEM, blank=True)
    is_vouched = models.BooleanField(
        default=False,
        help_text="The password was set on a way that no single administrator could have gone in the owner's place.",
    )

    networks = models.CharField(
        max_length=1000, blank=True, default="", db_default="",
        help_text="Address ranges that log-ins, sessions and tokens are accepted from; empty: any.",
    )  # fmt: skip

    objects: ClassVar[People] = People()

    acting_token: ApiToken | None = None
    """The token this request came with; None for a browser session. Not stored."""

    def __str__(self) -> str:
        return self.email

    @cached_property
    def granted(self) -> dict[tuple[str, str], datetime]:
        """Time of the grant of each (role, scope); read once for this object, which lives as long as its request."""
        return granted_by(self.bindings.all())

    @property
    def grants(self) -> frozenset[tuple[str, str]]:
        return frozenset(self.granted)

    def forget_grants(self) -> None:
        """Drop the remembered grants after a change, so that the next check reads them again."""
        self.__dict__.pop("granted", None)


def granted_by(bindings: Iterable[RoleBinding]) -> dict[tuple[str, str], datetime]:
    """Return the genuine bindings, those that a process with the key wrote: (role, scope) -> time of the grant."""
    return {(row.role, row.scope): row.created_at for row in bindings if row.is_genuine}


class RoleBinding(Marked):
    """One role of one person in one scope. Roles do not include one another, except that all include viewer."""

    MARKED = ("user_id", "role", "scope", "created_at")

    class Role(models.TextChoices):
        VIEWER = "viewer"
        OPERATOR = "operator"
        APPROVER = "approver"
        ADMIN = "admin"
        BREAK_GLASS = "break-glass", "Break-glass"
        """To start a plan without its approvals (jobs.approvals.glass). No superuser or token holds it by itself."""
        AUDITOR = "auditor"

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="bindings")
    role = models.CharField(max_length=11, choices=Role)
    scope = models.CharField(max_length=60, default="*", help_text="* | env:production | cluster:<uuid>")
    created_at = models.DateTimeField(default=now)

    objects = MarkedQuerySet["RoleBinding"].as_manager()

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["user", "role", "scope"], name="one_binding")]

    def __str__(self) -> str:
        return f"{self.user}: {self.role} in {self.scope}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        super().save(*args, **kwargs)
        self.user.forget_grants()


class ApiTokenQuerySet(MarkedQuerySet["ApiToken"]):
    def live(self) -> ApiTokenQuerySet:
        return self.filter(revoked_at=None, expires_at__gt=now(), user__is_active=True)


class ApiToken(Marked):
    """`Bearer sp_<id>.<secret>`; only a hash of the secret is stored."""

    MARKED = ("id", "kind", "user_id", "secret_hash", "scopes", "created_at", "expires_at")

    class Kind(models.TextChoices):
        PERSONAL = "personal"
        SERVICE = "service"
        WORKLOAD = "workload"

    class Scope(models.TextChoices):
        READ = "read"
        PLAN = "plan"
        APPLY = "apply"
        APPROVE = "approve"
        ADMIN = "admin"

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
    rule = models.ForeignKey("WorkloadRule", null=True, on_delete=models.SET_NULL, related_name="tokens")
    subject = models.CharField(
        max_length=255, blank=True, default="", db_default="", help_text="Of the workload that exchanged its own token."
    )
    networks = models.CharField(
        max_length=1000, blank=True, default="", db_default="",
        help_text="Address ranges it is accepted from, in the hash of the secret; empty: any.",
    )  # fmt: skip
    refused_at = models.DateTimeField(null=True, help_text="When a use from another address was last recorded.")

    objects = ApiTokenQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "id"]

    def __str__(self) -> str:
        return f"{self.name} (sp_{self.id})"

    @property
    def is_live(self) -> bool:
        return self.revoked_at is None and self.expires_at > now()


class LoginAttempt(models.Model):
    """A log-in that has not succeeded. Counted per account and address, forgotten after minutes."""

    account = models.CharField(max_length=254)
    address = models.CharField(max_length=64)
    at = models.DateTimeField(default=now)

    class Meta:
        indexes = [models.Index(fields=["address", "at"])]

    def __str__(self) -> str:
        return f"{self.account} from {self.address}"


class SavedFilter(models.Model):
    """Named filter of a list: the page and its query, private to its owner or shared with everyone."""

    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="saved_filters")
    page = models.CharField(max_length=20, help_text="A key of accounts.filters.PAGES.")
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=1000, help_text="As in the URL, without the page number.")
    is_shared = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=now)

    class Meta:
        ordering = ["page", "name", "pk"]
        constraints = [models.UniqueConstraint(fields=["owner", "page", "name"], name="one_filter_name")]
        indexes = [models.Index(fields=["is_shared", "page"])]

    def __str__(self) -> str:
        return self.name


class LiveSession(models.Model):
    """A browser that is logged in, as its owner recognizes it. Django's own row holds what the session carries."""

    key = models.CharField(max_length=40, unique=True, help_text="Of django_session; ending deletes both.")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="live_sessions")
    address = models.CharField(max_length=64)
    browser = models.CharField(max_length=200, blank=True, help_text="What it says of itself.")
    started_at = models.DateTimeField(default=now)
    seen_at = models.DateTimeField(default=now, help_text="To the minute.")

    class Meta:
        ordering = ["-seen_at", "-pk"]

    def __str__(self) -> str:
        return f"{self.device} at {self.address}"

    @property
    def device(self) -> str:
        return described(self.browser)


class Setup(Marked):
    """The one-time token with which the first administrator is made. One row, used once."""

    MARKED = ("token_hash", "closed_at", "shared_at")

    ONLY = 1

    id = models.PositiveSmallIntegerField(primary_key=True, default=ONLY)
    token_hash = models.CharField(max_length=64)
    made_at = models.DateTimeField(default=now)
    closed_at = models.DateTimeField(null=True, help_text="From then on there is no set-up any more.")
    shared_at = models.DateTimeField(
        null=True, help_text="From then on there was a second administrator or an approver: consent is always asked."
    )

    def __str__(self) -> str:
        return f"closed at {self.closed_at}" if self.closed_at else "waits for the first administrator"


class Invitation(Marked):
    """A link with which its owner sets a password, once and in time. Only hashes of its secrets are stored."""

    MARKED = ("user_id", "token_hash", "code_hash", "is_mailed", "made_at", "expires_at")

    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="invitation")
    token_hash = models.CharField(max_length=64, unique=True)
    code_hash = models.CharField(
        max_length=64, blank=True, help_text="Of the other half, which another administrator was shown; empty: none."
    )
    is_mailed = models.BooleanField(default=False, help_text="To its owner: no administrator has seen it.")
    made_at = models.DateTimeField(default=now)
    expires_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"link of {self.user}"


class Identity(Marked):
    """A person as a provider of single sign-on knows them. The account logs in there, and has its roles from there."""

    MARKED = ("user_id", "issuer", "subject", "made_at")

    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="identity")
    issuer = models.CharField(max_length=500)
    subject = models.CharField(max_length=255, help_text="The claim sub: never given to another person by its issuer.")
    made_at = models.DateTimeField(default=now)

    objects = MarkedQuerySet["Identity"].as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="one_account_per_identity")]

    def __str__(self) -> str:
        return f"{self.subject} of {self.issuer}"


class SecondFactor(Marked):
    """An authenticator app (TOTP, RFC 6238) of a local account. Without `confirmed_at` it has no effect yet.

    The mark leaves the key out, which rotation seals again: it is sealed for `id`, and opens in no other row.
    """

    MARKED = ("id", "user_id", "begun_in", "begun_at", "confirmed_at", "last_step")

    SEALED_AS = "second-factor"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="second_factor")
    secret = models.BinaryField(help_text="Sealed.")
    secret_key = models.CharField(max_length=32, help_text="Fingerprint of the key it is sealed with.")
    begun_in = models.CharField(max_length=40, help_text="The session that began it, as stored; it alone confirms it.")
    begun_at = models.DateTimeField(default=now)
    confirmed_at = models.DateTimeField(null=True)
    last_step = models.BigIntegerField(default=0, help_text="Time step of the last code accepted: none up to it is.")
    wrong_codes = models.PositiveSmallIntegerField(default=0, help_text="In a row, from all addresses.")

    objects = MarkedQuerySet["SecondFactor"].as_manager()

    def __str__(self) -> str:
        return f"second factor of {self.user}"

    @property
    def is_in_effect(self) -> bool:
        """Return whether log-in asks for it. One that was changed in the database is asked for, and accepts no code."""
        return self.confirmed_at is not None or not self.is_genuine


class RecoveryCode(Marked):
    """A code that replaces one of the authenticator app, once: using it deletes the row. Only its hash is stored."""

    MARKED = ("factor_id", "code_hash")

    factor = models.ForeignKey(SecondFactor, on_delete=models.CASCADE, related_name="recovery_codes")
    code_hash = models.CharField(max_length=64)

    objects = MarkedQuerySet["RecoveryCode"].as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["factor", "code_hash"], name="one_recovery_code")]

    def __str__(self) -> str:
        return f"recovery code of {self.factor.user}"


class PendingChange(Marked):
    """Change that one administrator proposed and another must consent to before it takes effect. Rows are kept."""

    MARKED = ("id", "kind", "scope", "subject_id", "about", "target", "wanted", "code_hash", "proposed_by_id",
              "proposed_at", "expires_at")  # fmt: skip

    class Status(models.TextChoices):
        WAITING = "waiting", "Waits for consent"
        DONE = "done", "Consented to"
        REFUSED = "refused", "Refused"
        WITHDRAWN = "withdrawn", "Withdrawn"
        EXPIRED = "expired", "Expired"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    kind = models.CharField(max_length=30, help_text="What is proposed, such as role.grant")
    scope = models.CharField(max_length=60, default="*", help_text="Whose administrators may consent.")
    subject = models.ForeignKey(User, null=True, on_delete=models.CASCADE, related_name="+", help_text="Whom it is of.")
    about = models.CharField(max_length=300, help_text="What will be so, as a sentence.")
    target = models.CharField(max_length=200, help_text="kind:id, as in the audit record.")
    wanted = models.JSONField(default=dict, help_text="What the kind's handler is given.")
    code_hash = models.CharField(max_length=64, blank=True, help_text="Of the proposer's half of a link to come.")
    status = models.CharField(max_length=10, choices=Status, default=Status.WAITING)
    proposed_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    proposed_at = models.DateTimeField(default=now)
    expires_at = models.DateTimeField()
    decided_by = models.ForeignKey(User, null=True, on_delete=models.PROTECT, related_name="+")
    decided_at = models.DateTimeField(null=True)
    told_at = models.DateTimeField(null=True, help_text="When administrators were sent mail of it.")

    @property
    def details(self) -> list[tuple[str, str]]:
        """Return what the proposed object says, by field, where the sentence leaves something out."""
        if self.kind == "user.networks":
            named = (("accepted from now", "was"), ("and then", "networks"))
            return [(name, self.wanted.get(key) or "every address") for name, key in named]
        if self.kind != "workload-rule.make":
            return []
        filled = [
            (name.replace("_", " "), value) for name, value in self.wanted.items() if value not in ([], {}, False)
        ]
        return [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in filled]

    class Meta:
        ordering = ["-proposed_at", "pk"]
        indexes = [models.Index(fields=["status", "expires_at"])]

    def __str__(self) -> str:
        return self.about


class RepeatableRequest(models.Model):
    """A creating request that carried an Idempotency-Key, and the answer it got: asked again, it is answered again."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64, help_text="SHA-256 over method, path and body.")
    claim = models.CharField(max_length=32, help_text="Which process works on it.")
    claimed_until = models.DateTimeField(help_text="A process killed at work holds the key until then.")
    status = models.PositiveSmallIntegerField(null=True, help_text="Null: still being worked on.")
    headers = models.JSONField(default=dict)
    body = models.TextField(blank=True)
    created_at = models.DateTimeField(default=now, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="one_answer_per_key")]

    def __str__(self) -> str:
        return self.key
