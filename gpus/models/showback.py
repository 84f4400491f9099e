"""Rows of showback: use by workload and day, prices, teams and their rules."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from accounts.models import User
from clusters.models import Cluster, GpuJob
from common.clock import now


class GpuUse(models.Model):
    """GPU-seconds that one workload's pods held on one day (UTC), by state, of one GPU model.

    Counted as a namespace's state bands are: a MIG instance as its part of a GPU, a shared GPU divided among its pods.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+", db_index=False)
    day = models.DateField(help_text="UTC.")
    model = models.CharField(max_length=120, blank=True, help_text="As of the model's bands; empty: not known.")
    namespace = models.CharField(max_length=253, blank=True, help_text="Empty: not known.")
    owner = models.CharField(max_length=317, blank=True, help_text="Kind/name of the controller; empty: none known.")
    effective = models.FloatField(default=0, help_text="GPU-seconds, as all that follow.")
    low = models.FloatField(default=0)
    held = models.FloatField(default=0, help_text="Held and idle.")
    held_unknown = models.FloatField(default=0, help_text="Held, and no telemetry says what they did.")
    joules = models.FloatField(default=0)

    STATES = ("effective", "low", "held", "held_unknown")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "day", "namespace", "owner", "model"], name="one_use_per_workload_and_day"
            )
        ]
        indexes = [models.Index(fields=["day"], name="gpus_use_day")]

    def __str__(self) -> str:
        return f"{self.namespace} {self.owner} on {self.day}"


class JobUse(models.Model):
    """The part of `GpuUse` that one job's pods held on one day (UTC), of one GPU model: counted in the same step.

    So a job's figures are those of the cost page, and stay apart where another job of the same name ran that day.
    """

    job = models.ForeignKey(GpuJob, on_delete=models.CASCADE, related_name="uses", db_index=False)
    day = models.DateField(help_text="UTC.")
    model = models.CharField(max_length=120, blank=True, help_text="As of GpuUse; empty: not known.")
    effective = models.FloatField(default=0, help_text="GPU-seconds, as all that follow.")
    low = models.FloatField(default=0)
    held = models.FloatField(default=0, help_text="Held and idle.")
    held_unknown = models.FloatField(default=0, help_text="Held, and no telemetry says what they did.")
    joules = models.FloatField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "day", "model"], name="one_use_per_job_and_day")]
        indexes = [models.Index(fields=["day"], name="gpus_job_use_day")]

    def __str__(self) -> str:
        return f"{self.job_id} on {self.day}"


class NodeUse(models.Model):
    """GPU-seconds that the pods of one namespace held on one node on one day (UTC): where a team's GPUs were.

    Counted in the same step as `GpuUse`. Owners are kept apart only where a rule of teams names them, so that a day has
    as many rows as its nodes have namespaces, however many pods came and went.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+", db_index=False)
    day = models.DateField(help_text="UTC.")
    node_name = models.CharField(max_length=253)
    namespace = models.CharField(max_length=253, blank=True, help_text="Empty: not known.")
    owner = models.CharField(max_length=317, blank=True, help_text="As of GpuUse; empty: no rule named it.")
    held = models.FloatField(default=0, help_text="GPU-seconds held, whatever they did.")
    active = models.FloatField(default=0, help_text="Of them, those in which the GPU was active.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "day", "node_name", "namespace", "owner"], name="one_use_per_node_and_day"
            )
        ]
        indexes = [models.Index(fields=["day", "namespace"], name="gpus_node_use_day")]

    def __str__(self) -> str:
        return f"{self.namespace} {self.owner} on {self.node_name}, {self.day}"


class GpuPrice(models.Model):
    """A price from a day on, until the next of the same kind, model and cluster. Rows are never edited.

    A price of one cluster goes before that of every cluster. What has taken effect on an earlier day stays.
    """

    class Kind(models.TextChoices):
        GPU = "gpu", "GPU-hour"
        ENERGY = "energy", "kWh"

    kind = models.CharField(max_length=6, choices=Kind)
    model = models.CharField(max_length=120, blank=True, help_text="Of a GPU-hour; empty: energy.")
    cluster = models.ForeignKey(Cluster, null=True, on_delete=models.CASCADE, related_name="+")
    valid_from = models.DateField(help_text="Its first day, UTC.")
    amount = models.DecimalField(max_digits=14, decimal_places=6, help_text="Of a GPU-hour, or of a kWh.")
    pue = models.DecimalField(
        max_digits=5,
        decimal_places=3,
        default=1,
        help_text="Energy alone: kWh of the site for each kWh of its GPUs (power usage effectiveness).",
    )
    created_at = models.DateTimeField(default=now)
    created_by = models.CharField(max_length=200)
    withdrawn_at = models.DateTimeField(null=True, help_text="Before it counted for a day that is over.")
    withdrawn_by = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["kind", "model", "cluster", "-valid_from", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "model", "cluster", "valid_from"],
                condition=Q(withdrawn_at=None),
                name="one_price_per_day_and_cluster",
            ),
            models.UniqueConstraint(  # of every cluster: no null equals another
                fields=["kind", "model", "valid_from"],
                condition=Q(withdrawn_at=None, cluster=None),
                name="one_price_per_day",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.model or 'energy'} from {self.valid_from}"


class Team(models.Model):
    """A team whose GPUs' cost is shown; rules say what is its."""

    name = models.CharField(max_length=63, unique=True)
    budget = models.DecimalField(
        max_digits=14, decimal_places=2, null=True, help_text="Of a month, in the installation's currency; null: none."
    )
    version = models.PositiveIntegerField(default=1)
    changed_at = models.DateTimeField(default=now)
    changed_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class TeamRules(models.Model):
    """The installation's list of rules, first match first. One row; `gpus.showback.rules` knows its form."""

    only = models.BooleanField(default=True, unique=True)
    rules = models.JSONField(default=list, help_text="[{by, pattern, team: its id}]")
    version = models.PositiveIntegerField(default=1)
    changed_at = models.DateTimeField(default=now)
    changed_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    owners_changed_at = models.DateTimeField(
        null=True, db_default=None, help_text="When a rule first named another owner; null: not known."
    )

    def __str__(self) -> str:
        return f"{len(self.rules)} rules"
