"""Clusters, their nodes, the agents' answers, GPU pods and pools: what the watch keeps true."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from functools import reduce
from operator import or_

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Cast

from audit.marked import Marked, MarkedQuerySet
from clusters import objects
from clusters.models.node_gpus import NodeGpus
from clusters.models.sync import RowCheck, RowWriter, Tombstone, Watcher  # noqa: F401  (models of this room)
from common.clock import now

STALE_AFTER = timedelta(seconds=120)
"""Six watches' length: rows older than this are shown as unknown. The engine is stricter (SETPOINT_FRESH_SECONDS)."""


def heard_after() -> datetime:
    """An agent that was not heard since is silent."""
    return now() - timedelta(seconds=settings.SETPOINT_AGENT_SILENT_SECONDS)


class Cluster(Marked):
    MARKED = ("id", "uid", "environment")
    """Its environment decides whose roles and which approval rules hold."""

    class Environment(models.TextChoices):
        DEVELOPMENT = "development"
        STAGING = "staging"
        PRODUCTION = "production"

    class Reach(models.TextChoices):
        NEVER = "never", "Not seen yet"
        REACHABLE = "reachable", "Reachable"
        UNREACHABLE = "unreachable", "Unreachable"

    class Ownership(models.TextChoices):
        UNCLAIMED = "unclaimed"
        OURS = "ours"
        FOREIGN = "foreign"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    uid = models.CharField(max_length=64, unique=True, help_text="UID of the namespace kube-system.")
    name = models.SlugField(max_length=63, unique=True)
    environment = models.CharField(max_length=12, choices=Environment, default=Environment.DEVELOPMENT)
    server = models.CharField(max_length=500)
    # Write-only: one encrypted document (clusters.net.credentials.Credentials), and which key sealed it.
    credential = models.BinaryField()
    credential_key = models.CharField(max_length=16, help_text="Fingerprint of the key it is encrypted with.")
    credential_set_at = models.DateTimeField(default=now)
    credential_expires_at = models.DateTimeField(null=True)
    authority_expires_at = models.DateTimeField(
        null=True, help_text="When the last certificate of the authority ends that the server is trusted by."
    )
    credential_renews = models.BooleanField(default=False, help_text="A token that exchanges itself before it ends.")
    renewal_error = models.CharField(max_length=300, blank=True, help_text="Why the last renewal failed.")
    kubernetes_version = models.CharField(max_length=40, blank=True)
    budget = models.PositiveIntegerField(
        default=1, help_text="Most nodes out of service at once, whoever took them out."
    )
    ownership = models.CharField(max_length=10, choices=Ownership, default=Ownership.UNCLAIMED)
    ownership_mark = models.CharField(max_length=64, blank=True, help_text="The installation id found in the cluster.")
    equipment = models.JSONField(
        default=dict, help_text="What of deploy/ is present; clusters.fleet.Equipment as JSON."
    )
    devices_unread = models.CharField(
        max_length=300,
        blank=True,
        default="",
        db_default="",
        help_text="Why GPUs that claims are given cannot be read; empty: they are, or none is.",
    )
    enrolment_error = models.CharField(
        max_length=500, blank=True, help_text="Why nodes without a NodeTuning cannot be given one."
    )
    reach = models.CharField(max_length=12, choices=Reach, default=Reach.NEVER)
    reach_since = models.DateTimeField(default=now)
    reach_reason = models.CharField(max_length=500, blank=True)
    refused_since = models.DateTimeField(
        null=True, help_text="Since when the API server refuses the stored credential, or its certificate is wrong."
    )
    observed_at = models.DateTimeField(null=True, help_text="When the watch last knew the rows to be true.")
    leases_at = models.DateTimeField(null=True, help_text="When agents' Leases were last listed.")
    watch_owner = models.CharField(max_length=64, blank=True)
    watch_lease_until = models.DateTimeField(null=True)
    version = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(default=now)

    objects = MarkedQuerySet["Cluster"].as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def is_current(self) -> bool:
        """Its rows say how things are now; else how they were at `observed_at`, and its nodes are unknown."""
        if self.reach != self.Reach.REACHABLE or self.observed_at is None:
            return False
        return now() - self.observed_at < STALE_AFTER

    @property
    def health_of_all(self) -> str:
        """The one health of all its nodes while its rows are not current: unreachable or unknown; else empty."""
        if self.is_current:
            return ""
        return "unreachable" if self.reach == self.Reach.UNREACHABLE else "unknown"

    @property
    def why_unknown(self) -> str:
        """Reason why its nodes are unknown, and since when; empty while they are not."""
        if self.is_current:
            return ""
        if self.reach == self.Reach.NEVER:
            return "The cluster has not been seen yet."
        if self.reach == self.Reach.UNREACHABLE:
            return f"The cluster has not answered since {self.reach_since:%Y-%m-%d %H:%M} UTC: {self.reach_reason}"
        seen = f"{self.observed_at:%Y-%m-%d %H:%M} UTC" if self.observed_at else "it was connected"
        return f"No updates from the cluster since {seen}: no watch is running."

    @property
    def deaf_since(self) -> datetime | None:
        """Time since which its agents have not been listened to, if that is too long ago; None while they are."""
        is_heard = self.leases_at is None or self.leases_at >= heard_after()
        return None if is_heard else self.leases_at

    @property
    def is_renewal_late(self) -> bool:
        """A token that exchanges itself at half of its life has not done so at three quarters."""
        since, until = self.credential_set_at, self.credential_expires_at
        return self.credential_renews and until is not None and now() > since + (until - since) * 3 / 4

    @property
    def scopes(self) -> tuple[str, ...]:
        """The role scopes this cluster falls under."""
        of_environment = (f"env:{self.environment}",) if self.is_genuine else ()
        return ("*", *of_environment, f"cluster:{self.pk}")


DRIVER_FAILED = "upgrade-failed"
"""The one state of an operator's driver upgrade in which no one works on the node, although it is out."""


def unheard(prefix: str = "") -> Q:
    """Match nodes at `prefix` whose agent, or all agents of whose cluster, have not been heard for too long."""
    return Q(**{f"{prefix}tuning__silent_since__isnull": False}) | Q(
        **{f"{prefix}cluster__leases_at__lt": heard_after()}
    )


class HelmCredential(models.Model):
    """The token of setpoint-helm-issuer, sealed with keys that only the worker of helm has (`encryption.HELM`)."""

    FIELD = "helm_credential"

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, primary_key=True, related_name="helm_credential")
    sealed = models.BinaryField()
    key = models.CharField(max_length=16, help_text="Fingerprint of the key it is encrypted with.")
    set_at = models.DateTimeField(default=now)
    expires_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"helm's credential of {self.cluster_id}"


class AdministratorCredential(models.Model):
    """A token of setpoint-helm-admin, sealed as HelmCredential is. It is never renewed: what it opens ends with it."""

    FIELD = "administrator_credential"

    cluster = models.OneToOneField(
        Cluster, on_delete=models.CASCADE, primary_key=True, related_name="administrator_credential"
    )
    sealed = models.BinaryField()
    key = models.CharField(max_length=16, help_text="Fingerprint of the key it is encrypted with.")
    set_at = models.DateTimeField(default=now)
    expires_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"a cluster administrator's credential of {self.cluster_id}"


class NodeQuerySet(models.QuerySet["Node"]):
    def present(self) -> NodeQuerySet:
        return self.filter(gone_at=None)

    def heard(self) -> NodeQuerySet:
        """Nodes whose agents are not silent, as `NodeTuning.silence` says it of one."""
        return self.exclude(unheard())

    def unavailable(self) -> NodeQuerySet:
        """Nodes that run no new pods now, from all causes: the left side of law 1."""
        return self.present().filter(unavailable_now())

    def split(self) -> NodeQuerySet:
        """Nodes that offer parts of GPUs, or did: a kubelet continues to name them, as 0. `instances` says which.

        Told by the text, for no database looks for a key by its beginning.
        """
        text = Cast("allocatable", models.TextField())
        named = (f'"{objects.MIG_PREFIX}', objects.AMD_SUFFIX, f'{objects.SHARED_SUFFIX}"')
        parts = (Q(allocatable_text__contains=part) for part in named)
        return self.alias(allocatable_text=text).filter(reduce(or_, parts, Q(gpu_virtual__gt=0)))


def unavailable_now() -> Q:
    """Match nodes that are not ready, cordoned, or have a driver that its operator is about to replace."""
    return Q(is_ready=False) | Q(is_cordoned=True) | ~Q(driver_upgrade="")


class Node(NodeGpus):
    """One node, identified by its UID: a node replaced under the same name is another row."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="nodes")
    uid = models.CharField(max_length=64)
    name = models.CharField(max_length=253)
    is_control_plane = models.BooleanField(default=False)
    architecture = models.CharField(max_length=20, blank=True)
    os_image = models.CharField(max_length=120, blank=True)
    kernel = models.CharField(max_length=120, blank=True)
    kubelet = models.CharField(max_length=40, blank=True)
    boot_id = models.CharField(max_length=64, blank=True)
    is_ready = models.BooleanField(default=False)
    ready_reason = models.CharField(max_length=300, blank=True)
    conditions = models.JSONField(default=list, help_text="[{type, status, reason, message, since}]")
    is_cordoned = models.BooleanField(default=False)
    cordoned_by = models.CharField(max_length=200, blank=True, help_text="Our annotation; empty when a person did it.")
    keep_cordoned = models.BooleanField(default=False)
    driver_upgrade = models.CharField(
        max_length=63, blank=True, help_text="The state that an operator's own driver upgrade is in; empty: in none."
    )
    labels = models.JSONField(default=dict)
    annotations = models.JSONField(default=dict, help_text="Only keys that Setpoint or a profile may own.")
    taints = models.JSONField(default=list)
    resource_version = models.CharField(max_length=40, blank=True, help_text="Of its deletion once it is gone.")
    versioned_at = models.DateTimeField(default=now, help_text="When the object of `resource_version` was heard.")
    changed_at = models.DateTimeField(default=now)
    gone_at = models.DateTimeField(null=True)

    objects = NodeQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "uid"], name="one_node_uid"),
            models.UniqueConstraint(
                fields=["cluster", "name"], condition=Q(gone_at=None), name="one_present_node_name"
            ),
        ]
        indexes = [
            models.Index(fields=["cluster", "gone_at", "is_ready", "is_cordoned"]),
            # For a search by how a name begins; PostgreSQL's own order of letters could not serve one.
            models.Index(fields=["name"], name="node_name_prefix", opclasses=["varchar_pattern_ops"]),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_unavailable(self) -> bool:
        """Return what `unavailable_now` tells in the database."""
        return not self.is_ready or self.is_cordoned or bool(self.driver_upgrade)

    @property
    def is_driver_busy(self) -> bool:
        """Return whether an operator works on this node's driver; one that failed no longer does."""
        return self.driver_upgrade not in ("", DRIVER_FAILED)

    @property
    def health(self) -> str:
        """healthy, degraded, unreachable (its cluster does not answer) or unknown. Needs `cluster` selected."""
        return self.cluster.health_of_all or ("healthy" if self.is_ready else "degraded")

    @property
    def health_reason(self) -> str:
        return self.cluster.why_unknown or self.ready_reason


class NodeTuning(models.Model):
    """The agent's object of a node as last watched. Raw status is kept as checked JSON, bounded by the contract."""

    node = models.OneToOneField(Node, on_delete=models.CASCADE, primary_key=True, related_name="tuning")
    generation = models.BigIntegerField(default=0)
    observed_generation = models.BigIntegerField(default=0)
    spec_step = models.CharField(max_length=64, blank=True)
    mode = models.CharField(max_length=10, blank=True)
    protocol = models.PositiveIntegerField(default=0, help_text="0: no agent has answered yet.")
    agent_version = models.CharField(max_length=40, blank=True)
    status = models.JSONField(default=dict, help_text="contract.nodetuning.Status as JSON, without `observed`.")
    observed = models.JSONField(default=dict, help_text="Effective value per key of the catalog.")
    malformed = models.CharField(max_length=300, blank=True, help_text="Why the last status was not accepted.")
    resource_version = models.CharField(max_length=40, blank=True)
    versioned_at = models.DateTimeField(default=now, help_text="When the object of `resource_version` was heard.")
    silent_since = models.DateTimeField(
        null=True, help_text="When the agent was last heard, once that is too long ago; null while it is heard."
    )
    changed_at = models.DateTimeField(default=now)

    def __str__(self) -> str:
        return f"tuning of {self.node_id}"

    def silence(self, cluster: Cluster) -> datetime | None:
        """Return the time since which this node's agent is not heard; None while it is. `cluster` is the node's."""
        return self.silent_since or cluster.deaf_since


class Pool(models.Model):
    """A named, never empty, node selector inside one cluster."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="pools")
    name = models.SlugField(max_length=63)
    selector = models.JSONField(help_text="LabelSelector: {matchLabels, matchExpressions}")
    selector_authors = models.JSONField(default=list, help_text="[{by, at}] of each who chose it, by user id.")
    description = models.CharField(max_length=300, blank=True)
    hold_minutes = models.PositiveIntegerField(
        null=True,
        help_text="How long a new node with the taint setpoint.dev/untuned is held at most; null: not decided here.",
    )
    owner_team = models.PositiveBigIntegerField(
        null=True, db_default=None, help_text="Key of the team that owns it, which the room of teams keeps; null: none."
    )
    version = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(default=now)

    class Meta:
        ordering = ["cluster", "name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="one_pool_name")]

    def __str__(self) -> str:
        return f"{self.cluster.name} / {self.name}"


class ClusterDay(models.Model):
    """Daily count of a cluster's nodes by state, the last of the day (UTC): the source of trends."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="days")
    day = models.DateField()
    nodes = models.PositiveIntegerField(default=0)
    counts = models.JSONField(default=dict, help_text="{axis: {value: nodes}}; the axes are never merged.")
    counted_at = models.DateTimeField(default=now)

    class Meta:
        ordering = ["day"]
        constraints = [models.UniqueConstraint(fields=["cluster", "day"], name="one_count_per_day")]

    def __str__(self) -> str:
        return f"{self.cluster_id} on {self.day}"


class FormerCluster(models.Model):
    """A cluster that was disconnected, and the environment that it left from (clusters.services.former_clusters)."""

    uid = models.CharField(max_length=64, primary_key=True, help_text="UID of the namespace kube-system.")
    name = models.CharField(max_length=63)
    environment = models.CharField(max_length=12, choices=Cluster.Environment)

    def __str__(self) -> str:
        return f"{self.name}, formerly in {self.environment}"
