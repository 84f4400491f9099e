"""Effect of a rollout on the GPUs it touched: the study, its nodes with their pairs, and the effect by measure."""

from __future__ import annotations

from django.db import models

from clusters.models import Node
from common.clock import now
from jobs.models import Rollout


class Study(models.Model):
    """Study of one rollout. The row is the queue: `due_at` is when it is processed next; null: never again."""

    class State(models.TextChoices):
        WAITING = "waiting", "Waiting for nodes"
        MEASURING = "measuring", "Measuring"
        DONE = "done", "Done"

    rollout = models.OneToOneField(Rollout, on_delete=models.CASCADE, primary_key=True, related_name="study")
    is_causal = models.BooleanField(default=False, help_text="Chance chose a control that was held back.")
    primary_measure = models.CharField(
        max_length=20,
        blank=True,
        default="",
        db_default="",
        help_text="By the plan; empty: OFU, else tensor, else busy.",
    )
    has_hosts = models.BooleanField(
        default=True, db_default=False, help_text="Hosts are measured, too; studies of before that are of GPUs alone."
    )
    hours = models.FloatField(help_text="Length of each window.")
    settle_minutes = models.PositiveIntegerField(help_text="After the change, before the second window.")
    state = models.CharField(max_length=9, choices=State, default=State.WAITING)
    counts = models.JSONField(default=dict, help_text="nodes and GPUs compared and left out, and why")
    due_at = models.DateTimeField(null=True, default=now)
    xids = models.JSONField(default=dict, help_text="{uuid: {code: count}} that were there when it was first watched.")
    xids_at = models.DateTimeField(null=True, help_text="When; later ones are new.")
    measured_at = models.DateTimeField(null=True, help_text="When the effects were last made.")
    ends_at = models.DateTimeField(null=True, help_text="When the last window known so far is over.")

    class Meta:
        ordering = ["-rollout__number"]
        indexes = [models.Index(fields=["due_at"], name="gpus_studies_due")]

    def __str__(self) -> str:
        return f"effect of {self.rollout_id}"


class StudyNode(models.Model):
    """One node of a study, with its devices' pairs: kept for good, while five-minute buckets live for days."""

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="nodes", db_index=False)
    node = models.ForeignKey(Node, null=True, on_delete=models.SET_NULL, related_name="+")
    node_name = models.CharField(max_length=253)
    stratum = models.CharField(max_length=120, blank=True, help_text="The GPU's model, by the API server's word.")
    is_treated = models.BooleanField(default=True)
    began_at = models.DateTimeField(help_text="The end of the window before is the last five minutes before this.")
    ended_at = models.DateTimeField(help_text="When its change was done; of a control, when that of the others was.")
    until = models.DateTimeField(null=True, help_text="What was measured reaches up to here; null: nothing yet.")
    left_out = models.CharField(max_length=200, blank=True, help_text="Why its devices do not count.")
    deviation = models.CharField(
        max_length=40,
        blank=True,
        default="",
        db_default="",
        help_text="It failed, was put back or is gone, and stays in its arm: which of these.",
    )
    is_context = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Of the rest of the fleet, which nothing was done to: no part of any estimate.",
    )
    devices = models.JSONField(
        default=list, help_text="[{uuid, instance, model, left_out, job, job_before, figures, day_before, past}]"
    )
    host = models.JSONField(
        default=dict,
        db_default={},
        help_text="{why, detail, figures, day_before, lacks}; empty: none of its GPUs counts.",
    )
    is_final = models.BooleanField(default=False)

    class Meta:
        ordering = ["node_name", "pk"]
        constraints = [models.UniqueConstraint(fields=["study", "node"], name="one_study_node")]
        indexes = [models.Index(fields=["study", "is_final"], name="gpus_study_open")]

    def __str__(self) -> str:
        return self.node_name


class StudyEffect(models.Model):
    """The estimated effect of one measure, as a row."""

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="effects", db_index=False)
    measure = models.CharField(max_length=20, help_text="name of the measure")
    position = models.PositiveSmallIntegerField()
    is_primary = models.BooleanField(default=False, help_text="The measure that the study is about.")
    verdict = models.CharField(
        max_length=12,
        help_text="With a control, at the end: rose, fell, inconclusive. Else higher, lower, no change. Or no answer.",
    )
    why = models.CharField(max_length=200, blank=True)
    ratio = models.FloatField(null=True, help_text="0.08 is +8 %.")
    ratio_low = models.FloatField(null=True)
    ratio_high = models.FloatField(null=True)
    points = models.FloatField(null=True, help_text="In the measure's unit; shares as 0-1.")
    points_low = models.FloatField(null=True)
    points_high = models.FloatField(null=True)
    confidence = models.FloatField(default=0.95, help_text="Of the intervals.")
    day_before = models.FloatField(null=True, help_text="Mean in the hours of `after`, a day earlier.")
    day_before_change = models.FloatField(null=True, help_text="From that to `after`: ratio less 1, or points.")
    rest_change = models.FloatField(
        null=True, help_text="Of the rest of the fleet in the same windows, as `ratio` or `points`."
    )
    rest_devices = models.PositiveIntegerField(default=0, db_default=0)
    rest_clusters = models.PositiveIntegerField(default=0, db_default=0)
    before = models.FloatField(null=True)
    after = models.FloatField(null=True)
    expected = models.FloatField(null=True)
    devices = models.PositiveIntegerField(default=0)
    clusters = models.PositiveIntegerField(default=0)
    control_devices = models.PositiveIntegerField(default=0)
    control_clusters = models.PositiveIntegerField(default=0)
    left_out = models.PositiveIntegerField(default=0)
    past_weight = models.FloatField(
        null=True, db_default=None, help_text="Share of the past's own difference that was taken off; null: none."
    )
    narrower = models.FloatField(
        null=True, db_default=None, help_text="Share by which that made the interval narrower; below 0: wider."
    )
    unadjusted = models.FloatField(null=True, db_default=None, help_text="Without it: ratio less 1, or points.")
    past_clusters = models.PositiveIntegerField(default=0, db_default=0)
    past_control_clusters = models.PositiveIntegerField(default=0, db_default=0)

    class Meta:
        ordering = ["study", "position"]
        constraints = [models.UniqueConstraint(fields=["study", "measure"], name="one_effect_per_measure")]

    def __str__(self) -> str:
        return f"{self.measure} {self.verdict}"
