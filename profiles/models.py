"""Profiles and their immutable revisions."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models

from common.clock import now


class Profile(models.Model):
    name = models.SlugField(max_length=63, unique=True)
    description = models.CharField(max_length=300, blank=True)
    draft = models.TextField(blank=True, help_text="YAML being edited; empty when nothing differs from the last revision.")
    draft_author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    draft_authors = models.JSONField(default=list, help_text="User ids that saved this draft: all become authors.")
    version = models.PositiveIntegerField(default=1, help_text="Counts every save; the ETag.")
    created_at = models.DateTimeField(default=now)
    updated_at = models.DateTimeField(default=now)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def latest(self) -> Revision | None:
        return self.revisions.order_by("-number").first()


class Revision(models.Model):
    """Immutable. `content` is the flattened form (see profiles.schema.Content.to_json), which the digest covers."""

    profile = models.ForeignKey(Profile, on_delete=models.PROTECT, related_name="revisions")
    number = models.PositiveIntegerField()
    digest = models.CharField(max_length=71, unique=True, help_text="sha256:<hex>")
    source = models.TextField(help_text="The YAML as written.")
    content = models.JSONField()
    extends = models.ForeignKey("self", null=True, on_delete=models.PROTECT, related_name="extended_by")
    message = models.CharField(max_length=300, blank=True)
    authors = models.ManyToManyField(settings.AUTH_USER_MODEL, related_name="+")
    published_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    published_at = models.DateTimeField(default=now)

    class Meta:
        ordering = ["profile", "-number"]
        constraints = [models.UniqueConstraint(fields=["profile", "number"], name="one_revision_number")]

    def __str__(self) -> str:
        return f"{self.profile.name} r{self.number}"

    @property
    def name(self) -> str:
        return str(self)

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise TypeError("a revision is immutable")
        super().save(*args, **kwargs)
