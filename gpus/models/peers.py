"""Pace of each node's GPUs against their peers', as last compared, and how far each cluster was compared."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from clusters.models import Cluster, Node
from common.clock import now


class PaceLook(models.Model):
    """Comparison queue, one row a cluster. A row is due as soon as another whole hour is available."""

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, primary_key=True, related_name="pace_look")
    until = models.DateTimeField(null=True, help_text="The end of the last hour that was looked at; null: none.")
    claimed_until = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"pace of {self.cluster_id} until {self.until}"


class NodePace(models.Model):
    """gpus.pacing.Pace of one node as a row, replaced by each look. Drift is joined when it is read: it changes by the
    second, and this by the hour."""

    class Verdict(models.TextChoices):
        SLOWER = "slower", "Slower than its peers"
        LEVEL = "level", "Not slower"
        FEW = "few", "Not enough to compare"

    IN_COMMON: ClassVar[list[tuple[str, str]]] = [
        ("job", "Same job"),
        ("replicas", "Replicas of the same work"),
        ("namespace", "Same namespace"),
    ]

    node = models.OneToOneField(Node, on_delete=models.CASCADE, primary_key=True, related_name="pace")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="paces", db_index=False)
    verdict = models.CharField(max_length=6, choices=Verdict)
    model = models.CharField(max_length=120, blank=True, help_text="Of its GPUs, as the driver says it.")
    in_common = models.CharField(
        max_length=9, blank=True, choices=IN_COMMON, help_text="What the peers have in common."
    )
    work = models.CharField(max_length=253, blank=True, help_text="namespace/name of the job, or the namespace.")
    role = models.CharField(
        max_length=128,
        blank=True,
        db_default="",
        help_text="Of its pod in the job, and of its peers' pods; empty: not known.",
    )
    pod_gpus = models.PositiveIntegerField(
        default=0, db_default=0, help_text="GPUs that its pod held, and each of its peers'; 0: not known."
    )
    hours = models.PositiveSmallIntegerField(default=0, help_text="Compared; where nothing was, at work.")
    peers = models.PositiveIntegerField(default=0)
    signal = models.CharField(max_length=10, blank=True, help_text="by which it is slower the most")
    gap = models.FloatField(null=True, help_text="By that signal: -0.12 is 12 % below the usual.")
    since = models.DateTimeField(null=True, help_text="The first hour of the day in which it was that slow.")
    signals = models.JSONField(default=list, help_text="each signal: the node, its peers, the difference")
    until = models.DateTimeField(help_text="The end of the last hour that was looked at.")
    looked_at = models.DateTimeField(default=now)

    class Meta:
        indexes = [
            models.Index(fields=["cluster", "verdict"], name="gpus_pace_verdict"),
            models.Index(fields=["until"], name="gpus_pace_age"),
        ]

    def __str__(self) -> str:
        return f"{self.node_id}: {self.verdict}"
