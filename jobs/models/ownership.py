"""Ownership of a cluster's component by a pool."""

from __future__ import annotations

from django.db import models

from clusters.models import Cluster, Pool
from common.clock import now


class ComponentOwner(models.Model):
    """The pool whose revision decides about a component while several want it: planning.component_owners writes it."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
    component = models.CharField(max_length=63, help_text="Its name in the catalog.")
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="+")
    since = models.DateTimeField(default=now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "component"], name="one_owner_per_component")]

    def __str__(self) -> str:
        return f"{self.component} is {self.pool}'s"
