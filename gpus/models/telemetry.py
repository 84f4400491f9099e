"""Telemetry sources of clusters and the result of the last reading; each GPU with its latest sample."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import models
from django.db.models import Q

from clusters.connection.remotes import Remote
from clusters.models import Cluster, Node
from common.clock import now

STALE_AFTER = timedelta(minutes=3)
"""Six readings missed: figures older than this are shown as what they were, with their age, and count as unknown."""


class TelemetrySource(Remote):
    """Settings for reading one cluster's GPU telemetry, and the result of the last reading.

    The row is the queue of readings: `due_at` says when the next one is. What a person sets and what a reading finds
    are written by name and never over each other.
    """

    SEALED_AS = "telemetry"

    class Kind(models.TextChoices):
        AUTOMATIC = "automatic", "Automatic: a Prometheus in the cluster, else the exporters"
        EXPORTERS = "exporters", "Exporters, found by their labels"
        SERVICE = "service", "Prometheus in the cluster"
        PROMETHEUS = "prometheus", "Prometheus at an address"

    EXPORTERS = "exporters"
    """In `chosen`: not a Prometheus."""

    class Auth(models.TextChoices):
        NONE = "none", "None"
        BEARER = "bearer", "Bearer token"
        BASIC = "basic", "User name and password"
        CERTIFICATE = "certificate", "Client certificate"

    class State(models.TextChoices):
        NEVER = "never", "Not read yet"
        WELL = "well", "Read"
        PARTLY = "partly", "Read in part"
        EMPTY = "empty", "No GPUs found"
        FAILED = "failed", "Not read"

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, related_name="telemetry")
    # ── what a person sets ────────────────────────────────────────────────────────────────────────────────────────
    is_enabled = models.BooleanField(default=True, help_text="A source that is not enabled is never asked.")
    kind = models.CharField(max_length=10, choices=Kind, default=Kind.AUTOMATIC)
    namespace = models.CharField(
        max_length=63, blank=True, help_text="Only exporters' pods of this namespace; empty: of all."
    )
    url = models.CharField(max_length=500, blank=True, help_text="https://… of a Prometheus, without /api/v1.")
    service = models.CharField(
        max_length=200,
        blank=True,
        help_text="namespace/name:port of Prometheus' service, or namespace/https:name:port.",
    )
    selector = models.CharField(
        max_length=200, blank=True, help_text='Label matchers, such as cluster="a", where Prometheus serves several.'
    )
    auth = models.CharField(max_length=11, choices=Auth, default=Auth.NONE)
    username = models.CharField(max_length=200, blank=True)
    certificate = models.TextField(blank=True, help_text="Client certificate as PEM.")
    ca = models.TextField(blank=True, help_text="PEM; empty: the machine's trusted roots.")
    # Token, password or the certificate's key; write-only: sealed, and which key sealed it. Both empty: there is none.
    secret = models.BinaryField(default=b"")
    secret_key = models.CharField(max_length=16, blank=True)
    version = models.PositiveIntegerField(default=1, help_text="Counts every save by a person; the ETag.")
    changed_by = models.CharField(max_length=150, blank=True)
    changed_at = models.DateTimeField(default=now)
    # ── what the last reading found ───────────────────────────────────────────────────────────────────────────────
    state = models.CharField(max_length=10, choices=State, default=State.NEVER)
    sentence = models.CharField(max_length=500, blank=True, help_text="What is wrong, or empty.")
    since = models.DateTimeField(default=now, help_text="When `state` last changed.")
    tried_at = models.DateTimeField(null=True, help_text="When a reading last ended, however it ended.")
    read_at = models.DateTimeField(null=True, help_text="When devices were last read: their age.")
    milliseconds = models.PositiveIntegerField(default=0, help_text="What the last reading took, storing included.")
    series = models.PositiveIntegerField(default=0)
    devices = models.PositiveIntegerField(default=0, help_text="That pods can hold, in the last reading.")
    asked = models.PositiveIntegerField(default=0, help_text="Exporters, or queries, of the last reading.")
    unanswered = models.PositiveIntegerField(default=0, help_text="Of those, how many gave nothing.")
    reasons = models.JSONField(default=list, help_text="[what was asked, why it gave nothing], a few of them.")
    skew_seconds = models.FloatField(null=True, help_text="Prometheus' clock minus ours; null where nobody said.")
    findings = models.JSONField(default=list, help_text="[code of the finding, count, example]")
    generations = models.JSONField(default=list, help_text="names that exporters use: classic, base_units, amd")
    honor_labels = models.CharField(
        max_length=10, default="unknown", help_text="whose pod a series names: off, on, direct, unknown"
    )
    has_profiling = models.BooleanField(default=False)
    exporter_versions = models.JSONField(default=list)
    ticks = models.PositiveBigIntegerField(default=0, help_text="Readings that ended.")
    failures = models.PositiveBigIntegerField(default=0, help_text="Of those, that read nothing.")
    dropped = models.PositiveBigIntegerField(default=0, help_text="Series that were left out, of all readings.")
    # What the kind `automatic` found. Both empty: it has not looked yet.
    chosen = models.CharField(max_length=200, blank=True, help_text="`exporters`, or as `service`.")
    chosen_because = models.CharField(max_length=500, blank=True)
    chosen_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(default=now)
    claimed_until = models.DateTimeField(null=True)

    class Meta:
        ordering = ["cluster__name"]
        indexes = [models.Index(fields=["due_at"])]

    def __str__(self) -> str:
        return f"telemetry of {self.cluster_id}"

    @property
    def is_current(self) -> bool:
        """Freshness of the source: whether the stored samples describe the present."""
        return self.read_at is not None and now() - self.read_at < STALE_AFTER

    @property
    def reads_exporters(self) -> bool:
        """True if the exporters themselves are read, by an administrator's choice or by the automatic kind's."""
        return self.kind == self.Kind.EXPORTERS or (self.kind == self.Kind.AUTOMATIC and self.chosen == self.EXPORTERS)

    @property
    def sealed_for(self) -> UUID:
        return self.cluster_id


class HostLoad(models.Model):
    """Hosts of one cluster with slow disks or tasks that wait for I/O, by its Prometheus. The row is the queue."""

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, related_name="host_load")
    read_at = models.DateTimeField(null=True, help_text="When the cluster's Prometheus last answered.")
    sentence = models.CharField(max_length=500, blank=True, help_text="Why it was not read, or empty.")
    has_source = models.BooleanField(default=False, help_text="Whether there is a Prometheus that may be read.")
    reporting = models.JSONField(default=dict, help_text="Targets of the node exporter that report {figure: count}.")
    high = models.JSONField(default=dict, help_text="{figure: {node: [value, disk, operation]}} above the floor.")
    lost = models.JSONField(default=dict, help_text="{figure: [nodes that were high, and report nothing now]}")
    due_at = models.DateTimeField(default=now)

    class Meta:
        indexes = [models.Index(fields=["due_at"])]

    def __str__(self) -> str:
        return f"hosts of {self.cluster_id}"

    @property
    def is_current(self) -> bool:
        return self.read_at is not None and now() - self.read_at < STALE_AFTER


class Waiting(models.Model):
    """Pending GPU gangs of one cluster, from its schedulers' own objects, as last read. The row is the queue."""

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, related_name="waiting")
    read_at = models.DateTimeField(null=True, help_text="When schedulers' objects were last read.")
    systems = models.JSONField(default=list, help_text="Which of volcano and kueue the cluster serves.")
    refused = models.JSONField(default=list, help_text="[what could not be read, why]")
    gangs = models.JSONField(default=list, help_text="gangs that wait, the longest first")
    count = models.PositiveIntegerField(default=0, help_text="Gangs altogether; `gangs` has the first of them.")
    queues = models.JSONField(default=list, help_text="queues by name")
    local_queues = models.JSONField(default=list, db_default=[], help_text="[namespace, LocalQueue, its ClusterQueue]")
    due_at = models.DateTimeField(default=now)
    claimed_until = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["due_at"], name="gpus_waiting_due")]

    def __str__(self) -> str:
        return f"what waits in {self.cluster_id}"


class GpuDeviceQuerySet(models.QuerySet["GpuDevice"]):
    def seen(self) -> GpuDeviceQuerySet:
        """Restrict to devices in their cluster's last reading; `TelemetrySource.read_at` is that reading's time."""
        return self.filter(missing_since=None)

    def holdable(self) -> GpuDeviceQuerySet:
        """Restrict to devices that pods can hold: whole GPUs, and MIG instances in place of the GPU that is split."""
        return self.filter(is_board=False)

    def hardware(self) -> GpuDeviceQuerySet:
        """Each physical GPU once: what may be added up of power, energy, heat and errors."""
        return self.filter(instance="")


class GpuDevice(models.Model):
    """A GPU, or one MIG instance of it, with its latest sample. A metric that is absent was not reported: never zero.

    A row is rewritten only when something changed by more than `gpus.storage.devices` lets pass, or after some minutes.
    A device that the last reading lacks keeps its sample and says since when it is missing.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="gpu_devices", db_index=False)
    uuid = models.CharField(max_length=80, help_text="The vendor's, of the whole GPU, also for an instance.")
    instance = models.CharField(max_length=20, blank=True, help_text="MIG's GPU instance id; empty: the whole GPU.")
    is_board = models.BooleanField(default=False, help_text="A GPU that MIG splits: nobody holds it as a whole.")
    node_name = models.CharField(max_length=253, blank=True)
    node = models.ForeignKey(Node, null=True, on_delete=models.SET_NULL, related_name="gpu_devices")
    index = models.CharField(max_length=20, blank=True, help_text="The number that tools on the node show.")
    model = models.CharField(max_length=120, blank=True)
    profile = models.CharField(max_length=40, blank=True, help_text="MIG profile such as 3g.40gb.")
    driver = models.CharField(max_length=40, blank=True)
    values = models.JSONField(default=dict, help_text="{metric: number}")
    holders = models.JSONField(default=list, help_text="[[namespace, pod, container]], sorted; empty: free.")
    held_since = models.DateTimeField(null=True, help_text="When these holders were first seen; null while it is free.")
    xids = models.JSONField(default=list, help_text="[[code, count, evidence]], of evidence total with when it rose.")
    clock_events = models.JSONField(
        null=True, help_text="{reason: count in the exporter's window}; null: not exported."
    )
    is_suspect = models.BooleanField(default=False, help_text="Utilization and profiling contradict each other.")
    first_seen_at = models.DateTimeField(default=now)
    seen_at = models.DateTimeField(default=now, help_text="When the stored sample was read.")
    missing_since = models.DateTimeField(
        null=True, help_text="The first reading that lacked it; null: in the last one."
    )

    objects = GpuDeviceQuerySet.as_manager()

    class Meta:
        ordering = ["cluster", "node_name", "index", "instance"]
        constraints = [models.UniqueConstraint(fields=["cluster", "uuid", "instance"], name="one_row_per_gpu")]
        indexes = [
            models.Index(fields=["cluster", "node_name"]),
            models.Index(fields=["cluster", "missing_since"], name="gpus_missing", condition=~Q(missing_since=None)),
        ]

    def __str__(self) -> str:
        return f"{self.uuid}/{self.instance}" if self.instance else self.uuid

    @property
    def is_held(self) -> bool:
        return bool(self.holders)

    def value(self, metric: Any) -> float | None:
        """None where it was not reported."""
        number = self.values.get(str(metric))
        return None if number is None else float(number)

    def age(self, source: TelemetrySource, at: datetime | None = None) -> timedelta:
        """Return how long ago the device was last in a reading."""
        last = self.seen_at if self.missing_since or source.read_at is None else source.read_at
        return (at or now()) - last


# ── history ───────────────────────────────────────────────────────────────────────────────────────────────────────────
class GpuOpen(models.Model):
    """Readings since the last five minutes were over, of a group of nodes; `gpus.storage.rollups` knows its form."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+", db_index=False)
    of = models.PositiveSmallIntegerField(help_text="How many groups the cluster's nodes are in.")
    shard = models.PositiveSmallIntegerField(help_text="Which of them this is: gpus.shards.number.")
    data = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "of", "shard"], name="one_open_per_shard")]

    def __str__(self) -> str:
        return f"open {self.shard}/{self.of} of {self.cluster_id}"


class GpuPacked(models.Model):
    """Five minutes, or an hour, of every device of a group of nodes: `gpus.storage.codec` knows its form."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+", db_index=False)
    seconds = models.PositiveSmallIntegerField(help_text="300 or 3600.")
    start = models.DateTimeField(help_text="A multiple of `seconds`, UTC.")
    of = models.PositiveSmallIntegerField(help_text="How many groups the cluster's nodes were in.")
    shard = models.PositiveSmallIntegerField(help_text="Which of them this is: gpus.shards.number.")
    data = models.BinaryField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "seconds", "start", "of", "shard"], name="one_packed_per_shard")
        ]
        indexes = [models.Index(fields=["seconds", "start"], name="gpus_packed_age")]

    def __str__(self) -> str:
        return f"{self.start:%Y-%m-%d %H:%M} {self.shard}/{self.of} of {self.cluster_id}"


class GpuBand(models.Model):
    """GPU-seconds spent in each state during one step of time. The seven states sum to the capacity.

    Capacity is what the nodes offered while Setpoint observed them, a MIG instance as its part of a GPU. A namespace's
    states are those of the GPUs that its pods held; a GPU that several hold is shared out among them.
    """

    class Scope(models.TextChoices):
        CLUSTER = "cluster"
        POOL = "pool"
        MODEL = "model"
        NAMESPACE = "namespace"
        NODE = "node"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="gpu_bands", db_index=False)
    scope = models.CharField(max_length=9, choices=Scope)
    name = models.CharField(max_length=253, blank=True, help_text="Of the pool, model, …; empty: the cluster itself.")
    seconds = models.PositiveSmallIntegerField(help_text="300 or 3600; of nodes only 3600.")
    start = models.DateTimeField(help_text="A multiple of `seconds`, UTC.")
    recorded = models.FloatField(help_text="Seconds of the step in which Setpoint looked, more than 0.")
    effective = models.FloatField(default=0, help_text="GPU-seconds, as all that follow.")
    low = models.FloatField(default=0)
    held = models.FloatField(default=0, help_text="Held and idle.")
    held_unknown = models.FloatField(default=0, help_text="Held, and no telemetry says what they did.")
    free = models.FloatField(default=0)
    out = models.FloatField(default=0, help_text="Held by nobody, on nodes that are cordoned or not ready.")
    free_unknown = models.FloatField(default=0, help_text="Held by nobody, without telemetry.")
    joules = models.FloatField(default=0)

    STATES = ("effective", "low", "held", "held_unknown", "free", "out", "free_unknown")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "scope", "name", "seconds", "start"], name="one_band_per_step")
        ]
        indexes = [
            models.Index(fields=["scope", "seconds", "start"], name="gpus_band_age"),
            models.Index(fields=["cluster", "scope", "seconds", "start"], name="gpus_band_time"),
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.name} {self.start:%Y-%m-%d %H:%M}"


class NodeTally(models.Model):
    """Telemetry counts of one node's GPUs in the last reading, which the funnel adds up without any device's row."""

    node = models.OneToOneField(Node, on_delete=models.CASCADE, primary_key=True, related_name="gpu_tally")
    effective = models.PositiveIntegerField(default=0)
    low = models.PositiveIntegerField(default=0)
    held = models.PositiveIntegerField(default=0, help_text="Held and idle.")
    held_unknown = models.PositiveIntegerField(default=0, help_text="Held, and not telling what they do.")
    free = models.PositiveIntegerField(default=0)
    ill = models.PositiveIntegerField(default=0, help_text="Whose last XID asks for more than the application's look.")

    SEEN = ("effective", "low", "held", "held_unknown", "free", "ill")

    def __str__(self) -> str:
        return f"GPUs of {self.node_id}"


class IdleHolding(models.Model):
    """A pod all of whose GPUs do nothing, without a break since `since`. Gone once one of them does something."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="idle_holdings", db_index=False)
    node = models.ForeignKey(Node, null=True, on_delete=models.SET_NULL, related_name="idle_holdings")
    node_name = models.CharField(max_length=253)
    namespace = models.CharField(max_length=253)
    pod = models.CharField(max_length=253)
    model = models.CharField(max_length=120, blank=True)
    since = models.DateTimeField()
    gpus = models.PositiveIntegerField(help_text="Devices that it holds.")
    share = models.FloatField(help_text="In whole GPUs: an instance is a part of one, a shared one is shared out.")
    gpu_seconds = models.FloatField(default=0, help_text="Of whole GPUs, up to `counted_until`.")
    watts = models.FloatField(null=True, help_text="Of all of them, when last written; null: not reported.")
    has_xid = models.BooleanField(default=False)
    counted_until = models.DateTimeField(help_text="The last reading that counts for `gpu_seconds`.")
    is_seen = models.BooleanField(default=True, help_text="In the last reading; else telemetry of it is lost.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "node_name", "namespace", "pod"], name="one_idle_per_pod")
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod} since {self.since:%Y-%m-%d %H:%M}"
