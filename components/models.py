"""Sources of components: chart archives by SHA-256, repositories, the site's own catalog entries, and the additional
values of one cluster."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any, ClassVar

from django.db import models
from django.db.models import Q

from audit.marked import Marked
from clusters.connection.remotes import Remote
from clusters.models import Cluster
from common.clock import now


class Archive(models.Model):
    """A chart archive (.tgz) as it was fetched or uploaded. Immutable: its key is the SHA-256 of its bytes, in hex."""

    sha256 = models.CharField(primary_key=True, max_length=64)
    name = models.CharField(max_length=250, help_text="The chart's, from its Chart.yaml.")
    version = models.CharField(max_length=250)
    app_version = models.CharField(max_length=250, blank=True)
    size = models.PositiveIntegerField(help_text="Bytes.")
    content = models.BinaryField()
    origin = models.CharField(max_length=600, help_text="The chart's address in the catalog, or `uploaded`.")
    fetched_from = models.CharField(
        max_length=600,
        blank=True,
        help_text="The address that sent it: a mirror's, or where a repository redirected to. Empty: uploaded.",
    )
    stored_at = models.DateTimeField(default=now)
    stored_by = models.CharField(max_length=150, blank=True, help_text="Who uploaded it; empty when it was fetched.")
    authors = models.JSONField(
        default=list,
        help_text="User ids: who uploaded it, or set up the repository that sent it.",
    )

    class Meta:
        ordering = ["name", "-stored_at", "pk"]
        indexes = [models.Index(fields=["name", "version"])]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise TypeError("an archive is immutable")
        super().save(*args, **kwargs)


class Repository(Remote):
    """A chart repository as the administrator set it up: credentials, a CA, hosts, or a mirror of a known one."""

    SEALED_AS = "repository"
    COLUMN = "password"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    name = models.SlugField(max_length=63, unique=True)
    url = models.CharField(max_length=500, help_text="https://… of a repository with an index.yaml, or oci://…")
    stands_for = models.CharField(
        max_length=500, blank=True, help_text="The repository of the catalog that this one mirrors; empty: itself."
    )
    username = models.CharField(max_length=200, blank=True)
    # The password is write-only: sealed, and which key sealed it. Both are empty when there is none.
    password = models.BinaryField(default=b"")
    password_key = models.CharField(max_length=16, blank=True)
    ca = models.TextField(blank=True, help_text="PEM; empty: the machine's trusted roots.")
    hosts = models.JSONField(default=list, help_text="Other hosts that a download may be redirected to.")
    is_enabled = models.BooleanField(default=True, help_text="A repository that is not enabled is never asked.")
    authors = models.JSONField(default=list, help_text="User ids of all who set it up or changed it.")
    version = models.PositiveIntegerField(default=1, help_text="Counts every save; the ETag.")
    changed_by = models.CharField(max_length=150, blank=True)
    changed_at = models.DateTimeField(default=now)

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "repositories"
        constraints = [
            models.UniqueConstraint(
                fields=["stands_for"], condition=~Q(stands_for=""), name="one_mirror_of_a_repository"
            ),
            models.UniqueConstraint(fields=["url"], name="one_repository_of_a_url"),
        ]

    def __str__(self) -> str:
        return self.name


class SiteEntry(Marked):
    """A catalog entry of the site's own: the YAML text of one component, and who vouches for what it says."""

    MARKED: ClassVar[tuple[str, ...]] = ("name", "sha256", "authors", "writers", "classified_sha256", "classifier")

    name = models.CharField(primary_key=True, max_length=53, help_text="The component's.")
    text = models.TextField(help_text="YAML, kept to the byte.")
    sha256 = models.CharField(max_length=64, help_text="Of the text.")
    authors = models.JSONField(default=list, help_text="User ids of all who wrote it.")
    writers = models.JSONField(default=list, help_text="User ids of those who wrote it since it was last classified.")
    classified_sha256 = models.CharField(max_length=64, blank=True, help_text="The text that was classified; or empty.")
    classifier = models.PositiveIntegerField(null=True, help_text="User id.")
    classified_by = models.CharField(max_length=150, blank=True)
    classified_at = models.DateTimeField(null=True)
    version = models.PositiveIntegerField(default=1, help_text="Counts every save; the ETag.")
    created_at = models.DateTimeField(default=now)
    changed_by = models.CharField(max_length=150, blank=True)
    changed_at = models.DateTimeField(default=now)

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "site entries"

    def __str__(self) -> str:
        return self.name

    @property
    def is_classified(self) -> bool:
        """Return whether an administrator who did not write this very text has classified it."""
        return bool(self.sha256) and self.classified_sha256 == self.sha256 and self.is_genuine

    @property
    def is_whole(self) -> bool:
        """Return whether row and text are as Setpoint wrote them."""
        return self.is_genuine and self.sha256_of(self.text) == self.sha256

    @staticmethod
    def sha256_of(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()


class ClusterValues(models.Model):
    """Values of one component that hold for one cluster only: the last layer, over catalog, presets and profile."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="component_values")
    component = models.CharField(max_length=63, help_text="The component's name in the catalog.")
    values = models.JSONField(default=dict)
    authors = models.JSONField(default=list, help_text="User ids of all who wrote them since there were none.")
    version = models.PositiveIntegerField(default=1, help_text="Counts every save; the ETag.")
    changed_by = models.CharField(max_length=150, blank=True)
    changed_at = models.DateTimeField(default=now)

    class Meta:
        ordering = ["cluster", "component"]
        verbose_name_plural = "cluster values"
        constraints = [models.UniqueConstraint(fields=["cluster", "component"], name="one_set_of_values")]

    def __str__(self) -> str:
        return f"values of {self.component} in {self.cluster_id}"
