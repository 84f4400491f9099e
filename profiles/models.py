"""Profiles and their immutable revisions."""

from __future__ import annotations

import re
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Count, OuterRef, Subquery

from common.clock import now
from profiles.content.content import Content

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
ID = re.compile(r"[1-9][0-9]{0,17}")


class ProfileQuerySet(models.QuerySet["Profile"]):
    def with_newest(self) -> ProfileQuerySet:
        """Adds `newest_number`, `newest_id`, `newest_digest`, `newest_at` and `revision_count`, in the same query."""
        newest = Revision.objects.filter(profile=OuterRef("pk")).order_by("-number")
        return self.annotate(
            newest_id=Subquery(newest.values("pk")[:1]),
            newest_number=Subquery(newest.values("number")[:1]),
            newest_digest=Subquery(newest.values("digest")[:1]),
            newest_at=Subquery(newest.values("published_at")[:1]),
            revision_count=Count("revisions"),
        )


class Profile(models.Model):
    name = models.SlugField(max_length=63, unique=True)
    description = models.CharField(max_length=300, blank=True)
    draft = models.TextField(blank=True, help_text="YAML being edited; empty when nothing differs from the latest.")
    draft_author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    draft_authors = models.JSONField(default=list, help_text="User ids that saved this draft: all become authors.")
    is_library = models.BooleanField(default=False, help_text="Comes with the product: extended, not edited.")
    owner_team = models.PositiveBigIntegerField(
        null=True, db_default=None, help_text="Key of the team that owns it, which the room of teams keeps; null: none."
    )
    version = models.PositiveIntegerField(default=1, help_text="Counts every save; the ETag.")
    created_at = models.DateTimeField(default=now)
    updated_at = models.DateTimeField(default=now)

    objects = ProfileQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def latest(self) -> Revision | None:
        return self.revisions.order_by("-number").first()


class RevisionQuerySet(models.QuerySet["Revision"]):
    def update(self, **fields: Any) -> int:
        raise TypeError("a revision is immutable")

    def named(self, name: str) -> RevisionQuerySet:
        """Find revisions by `sha256:…`, the newest of that digest first, or by id; none for other text."""
        if DIGEST.fullmatch(name):
            return self.filter(digest=name).order_by("-pk")
        return self.filter(pk=int(name)) if ID.fullmatch(name) else self.none()


class Revision(models.Model):
    """Immutable. `content` is a profiles.content.content.Content, flattened, as JSON; the digest covers what it means.

    Going back to an earlier tuning publishes its digest again, so two revisions may share one.
    """

    profile = models.ForeignKey(Profile, on_delete=models.PROTECT, related_name="revisions")
    number = models.PositiveIntegerField()
    digest = models.CharField(max_length=71, db_index=True, help_text="sha256:<hex> over what it means; may recur.")
    source = models.TextField(help_text="The YAML as written.")
    content = models.JSONField()
    extends = models.ForeignKey("self", null=True, on_delete=models.PROTECT, related_name="extended_by")
    message = models.CharField(max_length=300, blank=True)
    authors = models.ManyToManyField(settings.AUTH_USER_MODEL, related_name="+")
    published_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    published_at = models.DateTimeField(default=now)

    objects = RevisionQuerySet.as_manager()

    class Meta:
        ordering = ["profile", "-number"]
        constraints = [models.UniqueConstraint(fields=["profile", "number"], name="one_revision_number")]

    def __str__(self) -> str:
        return f"{self.profile.name} r{self.number}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise TypeError("a revision is immutable")
        super().save(*args, **kwargs)

    @property
    def name(self) -> str:
        return str(self)

    @property
    def previous(self) -> Revision | None:
        """The revision of this profile published before it."""
        return self.profile.revisions.filter(number__lt=self.number).order_by("-number").first()

    @property
    def flat(self) -> Content:
        """`content`, typed. Raises profiles.content.content.BadContent."""
        return Content.from_json(self.content)
