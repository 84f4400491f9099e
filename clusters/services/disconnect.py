"""Disconnecting a cluster: what stays behind in it is shown before and after."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.db import transaction
from django.db.models import ProtectedError

from accounts import permissions
from accounts.models import User
from clusters.connection import audit_records, preflight, registry
from clusters.fleet import FleetError
from clusters.models import Cluster, NodeTuning
from clusters.services import former_clusters
from common import hooks
from common.errors import WrongState


@dataclass(frozen=True, slots=True)
class DisconnectPreview:
    """Preview of a disconnect: what stays in the cluster, and what blocks it now."""

    stays: tuple[str, ...]
    blockers: tuple[str, ...]
    commands: tuple[str, ...] = preflight.DELETE_COMMANDS
    """Take the rest out of the cluster; run after settings were reverted."""


def disconnect_preview(cluster: Cluster) -> DisconnectPreview:
    """Return what disconnecting would leave behind, and what blocks it."""
    tunings = NodeTuning.objects.filter(node__cluster=cluster, node__gone_at=None).count()
    stays = [*hooks.left_behind(cluster.pk)]
    if tunings:
        stays.append(
            f"{tunings} NodeTuning objects, and every value that agents wrote: nothing on a node is changed back."
        )
    stays.append("The agent's DaemonSet, the accounts and both admission policies.")
    return DisconnectPreview(tuple(stays), tuple(hooks.disconnect_blockers(cluster)))


def disconnect(cluster: Cluster, *, by: User) -> DisconnectPreview:
    """Remove the mark, the credential and every row of the cluster; what it did stays in the audit record.

    An unreachable cluster can be disconnected, too: its mark stays then, which is reported.

    Raises NotAllowed, WrongState.
    """
    permissions.require(by, permissions.Role.ADMIN, cluster.scopes, f"disconnect {cluster}")
    try:
        # Rows of their own: on the one that a page has read, what rooms above know of it is of before.
        leaving = disconnect_preview(Cluster.objects.get(pk=cluster.pk))
        _refuse_if_busy(cluster, leaving.blockers)
        stays = leaving.stays + _release(cluster)
        with transaction.atomic():
            locked = Cluster.objects.select_for_update().get(pk=cluster.pk)
            _refuse_if_busy(cluster, tuple(hooks.disconnect_blockers(locked)))
            hooks.cluster_disconnecting(cluster.pk)
            former_clusters.remember(locked)
            audit_records.record(
                cluster, "cluster.disconnect", by, audit_records.facts(cluster), gone=True, message=" ".join(stays)
            )
            pk = cluster.pk
            cluster.delete()
    except Cluster.DoesNotExist as error:
        raise WrongState("This cluster was disconnected meanwhile.") from error
    except ProtectedError as error:
        kinds = sorted({str(row._meta.verbose_name_plural) for row in error.protected_objects})
        raise WrongState(f"{cluster} cannot be removed: {' and '.join(kinds)} refer to it.") from error
    registry.forget(pk)
    return DisconnectPreview(stays, ())


def _refuse_if_busy(cluster: Cluster, blockers: tuple[str, ...]) -> None:
    if blockers:
        raise WrongState(f"{cluster} cannot be disconnected: {'; '.join(blockers)}.")


def _release(cluster: Cluster) -> tuple[str, ...]:
    """Remove our mark, if it can be done. Returns what to say if not."""
    try:
        registry.connect(cluster).release(settings.SETPOINT_INSTALLATION)
    except FleetError as error:
        return (f"The ownership mark, because it could not be removed: {error}",)
    return ()
