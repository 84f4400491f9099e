"""Runs of active checks, one row a node and check, their schedules, and the image that the site gives each check."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import ClassVar

from django.db import models
from django.db.models import Q

from clusters.models import Cluster, Node
from common.clock import now


class CheckImage(models.Model):
    """The site's image of one check of the catalog. Without a row the check is off."""

    check_name = models.CharField(max_length=40, unique=True)
    image = models.CharField(max_length=500, help_text="With its registry, by digest or tag.")
    version = models.PositiveIntegerField(default=1)
    changed_at = models.DateTimeField(default=now)
    changed_by = models.CharField(max_length=200)

    def __str__(self) -> str:
        return f"{self.check_name}: {self.image}"


class CheckSchedule(models.Model):
    """A check that repeats by itself on idle nodes of one cluster, as gpus.services.checks.queueing queues it."""

    LEAST_DAYS, MOST_DAYS = 1, 90
    MOST_AT_ONCE = 50

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="check_schedules", db_index=False)
    check_name = models.CharField(max_length=40)
    every_days = models.PositiveSmallIntegerField(help_text="From one result of a node to its next run.")
    at_once = models.PositiveSmallIntegerField(help_text="Its runs that wait or run at the same time, at most.")
    queued_at = models.DateTimeField(null=True, help_text="When it last queued a run.")
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(default=now)
    changed_by = models.CharField(max_length=200)
    changed_at = models.DateTimeField(default=now)
    version = models.PositiveIntegerField(default=1)

    class Meta:
        ordering = ["cluster__name", "check_name", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "check_name"], name="one_schedule_per_cluster_and_check"),
        ]

    def __str__(self) -> str:
        return f"{self.check_name} every {self.every_days} days"

    @property
    def interval(self) -> timedelta:
        return timedelta(days=self.every_days)


class CheckRunQuerySet(models.QuerySet["CheckRun"]):
    def live(self) -> CheckRunQuerySet:
        return self.exclude(status=CheckRun.Status.ENDED)

    def on_node(self) -> CheckRunQuerySet:
        """Select those that may have a pod on their node: no step of a rollout starts there."""
        return self.filter(status__in=CheckRun.ON_NODE)


class CheckRun(models.Model):
    """One run of one check on one node.

    waiting: the node is busy, or as many as may run at once do. starting: it has the node; its pod may be there.
    running: its pod is there. ending: what came of it is stored, and its pod is being removed. ended: no pod is left.
    """

    class Status(models.TextChoices):
        WAITING = "waiting", "Waiting"
        STARTING = "starting", "Starting"
        RUNNING = "running", "Running"
        ENDING = "ending", "Ending"
        ENDED = "ended", "Ended"

    class Outcome(models.TextChoices):
        PASSED = "passed", "Passed"
        FAILED = "failed", "Failed"
        UNKNOWN = "unknown", "No result"
        NOT_RUN = "not-run", "Not run"

    ON_NODE: ClassVar[tuple[str, ...]] = (Status.STARTING, Status.RUNNING, Status.ENDING)
    VERDICTS: ClassVar[tuple[str, ...]] = (Outcome.PASSED, Outcome.FAILED)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="check_runs", db_index=False)
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="check_runs", db_index=False)
    schedule = models.ForeignKey(
        CheckSchedule,
        null=True,
        on_delete=models.SET_NULL,
        related_name="runs",
        db_index=False,
        help_text="That queued it; null: a person started it, or the schedule was deleted.",
    )
    check_name = models.CharField(max_length=40)
    image = models.CharField(max_length=500, help_text="As it was set when the run was made.")
    model = models.CharField(max_length=120, blank=True, help_text="Of the node's GPUs then.")
    gpus = models.PositiveIntegerField(help_text="That it requests: all of the node, or none.")
    targets = models.JSONField(
        default=list,
        db_default=[],
        help_text="Names and host:port that a check of the network also reaches.",
    )
    at_once = models.PositiveSmallIntegerField(help_text="Runs on nodes of its cluster at the same time, at most.")
    status = models.CharField(max_length=8, choices=Status, default=Status.WAITING)
    outcome = models.CharField(max_length=7, choices=Outcome, blank=True)
    reason = models.CharField(max_length=500, blank=True, help_text="What it waits for, or what came of it.")
    measures = models.JSONField(default=dict, help_text="By the catalog's names, in its units.")
    notes = models.JSONField(default=list, help_text="The program's own words about what failed.")
    program_version = models.CharField(max_length=40, blank=True)
    pod_uid = models.CharField(max_length=64, blank=True)
    stopped_by = models.CharField(max_length=200, blank=True, help_text="Who ended it by hand.")
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(default=now)
    started_at = models.DateTimeField(null=True, help_text="When it had the node.")
    ended_at = models.DateTimeField(null=True)
    not_before = models.DateTimeField(null=True)
    claim = models.CharField(max_length=36, blank=True)
    claimed_until = models.DateTimeField(null=True)

    objects = CheckRunQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["node"], condition=~Q(status="ended"), name="one_live_check_per_node"),
        ]
        indexes = [
            models.Index(fields=["node", "check_name", "-created_at"], name="gpus_check_of_node"),
            models.Index(fields=["cluster", "status"], name="gpus_check_status"),
            models.Index(fields=["check_name", "model", "-created_at"], name="gpus_check_peers"),
            models.Index(fields=["schedule", "-ended_at"], name="gpus_check_of_schedule"),
        ]

    def __str__(self) -> str:
        return f"{self.check_name} on node {self.node_id}"

    @property
    def is_live(self) -> bool:
        return self.status != self.Status.ENDED

    @property
    def state(self) -> str:
        """Return what it does now, or what came of it."""
        return self.status if self.is_live else self.outcome

    @property
    def pod_name(self) -> str:
        return f"check-{self.pk}"
