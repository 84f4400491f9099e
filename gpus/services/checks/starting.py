"""Starts and stops of checks by people, and the image of each check: judged, allowed and recorded in one place."""

from __future__ import annotations

import re
from collections.abc import Sequence

from django.db import IntegrityError, transaction

from accounts import permissions
from accounts.models import User
from accounts.permissions import ANYWHERE, GLOBAL, Role
from audit import services as audit
from clusters.models import Cluster, Node
from common.clock import now
from common.errors import Invalid, Missing, WrongState
from gpus.models import CheckImage, CheckRun, CheckSchedule
from gpus.services.checks import pods
from gpus.services.checks import targets as reachable
from gpus.services.checks.catalog import CHECKS, Check

MOST_NODES = 500
MOST_AT_ONCE = CheckSchedule.MOST_AT_ONCE
_IMAGE = re.compile(
    r"[a-z0-9][a-z0-9.-]*(:\d{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)


def find(name: str) -> Check:
    """Raises Missing."""
    if name not in CHECKS:
        raise Missing(f"There is no check {name[:60]}.")
    return CHECKS[name]


def may_set(user: User) -> bool:
    return permissions.may(user, Role.ADMIN, GLOBAL)


def may_set_image(user: User) -> None:
    """Raises NotAllowed."""
    permissions.require(user, Role.ADMIN, GLOBAL, "set the image of a check")


def may_start(user: User) -> bool:
    return permissions.may(user, Role.OPERATOR, ANYWHERE)


def may_start_anywhere(user: User) -> None:
    """Raises NotAllowed where this person may start checks in no cluster."""
    permissions.require(user, Role.OPERATOR, ANYWHERE, "start a check")


def set_image(name: str, image: str, *, by: User) -> CheckImage | None:
    """Set the image of a check; an empty one turns the check off. Raises NotAllowed, Missing, Invalid."""
    check, image = find(name), image.strip()
    may_set_image(by)
    if image and (len(image) > 500 or not _IMAGE.fullmatch(image) or not ("@" in image or ":" in image.split("/")[-1])):
        advice = "Write registry/name@sha256:…, or registry/name:tag, with the registry's host."
        raise Invalid(advice, fields={"image": [advice]})
    person = audit.actor_of(by)[:200]
    with transaction.atomic():
        row = CheckImage.objects.select_for_update().filter(check_name=check.name).first()
        before = row.image if row else ""
        if image == before:
            return row
        if not image and row:
            row.delete()
            row = None
        elif row:
            row.image, row.version, row.changed_at, row.changed_by = image, row.version + 1, now(), person
            row.save(update_fields=["image", "version", "changed_at", "changed_by"])
        else:
            row = CheckImage.objects.create(check_name=check.name, image=image, changed_by=person)
        audit.record(
            by=by,
            action="check.image",
            target=f"check:{check.name}",
            target_name=check.title,
            before={"image": before},
            after={"image": image},
        )
    return row


def start(
    name: str, cluster: Cluster, node_names: Sequence[str], *, at_once: int, by: User, targets: Sequence[str] = ()
) -> list[CheckRun]:
    """Queue one run a node; each begins when its node is idle. Raises NotAllowed, Missing, Invalid, WrongState.

    `targets` is what a check of the network resolves and reaches besides the cluster's own.
    """
    permissions.require(by, Role.OPERATOR, cluster.scopes, f"run a check in {cluster}")
    check = find(name)
    row = CheckImage.objects.filter(check_name=check.name).first()
    if row is None:
        raise WrongState(f"{check.title} has no image: an administrator sets it first.")
    wanted = list(dict.fromkeys(node_names))
    if not 1 <= len(wanted) <= MOST_NODES:
        raise Invalid(f"Name 1 to {MOST_NODES} nodes.", fields={"nodes": [f"Name 1 to {MOST_NODES} nodes."]})
    if not 1 <= at_once <= MOST_AT_ONCE:
        raise Invalid(f"1 to {MOST_AT_ONCE} at once.", fields={"at_once": [f"1 to {MOST_AT_ONCE}."]})
    wanted_targets = reachable.judged(check, targets)
    nodes = {n.name: n for n in Node.objects.present().filter(cluster=cluster, name__in=wanted)}
    objections = [_objection(check, name, nodes.get(name)) for name in wanted]
    if refused := [text for text in objections if text]:
        raise Invalid(refused[0], fields={"nodes": refused[:20]})
    try:
        with transaction.atomic():
            author = audit.actor_of(by)
            runs = [new_run(check, row.image, nodes[name], at_once=at_once, author=author) for name in wanted]
            for run in runs:
                run.targets = wanted_targets
                run.save(force_insert=True)
            audit.record(
                by=by,
                action="check.start",
                target=f"check:{check.name}",
                target_name=check.title,
                cluster_id=cluster.pk,
                message=f"{len(runs)} node{'s' if len(runs) > 1 else ''}, at most {at_once} at once",
                after={"nodes": wanted[:50], "image": row.image}
                | ({"targets": wanted_targets} if wanted_targets else {}),
            )
    except IntegrityError as error:
        raise WrongState("A check waits or runs already on one of these nodes: let it end, or stop it.") from error
    return runs


def new_run(
    check: Check, image: str, node: Node, *, at_once: int, author: str, schedule: CheckSchedule | None = None
) -> CheckRun:
    """Return a run that is not stored yet."""
    return CheckRun(
        cluster_id=node.cluster_id,
        node=node,
        schedule=schedule,
        check_name=check.name,
        image=image,
        model=node.gpu_product,
        gpus=pods.resource_of(check, node.allocatable)[1],
        at_once=at_once,
        created_by=author[:200],
    )


def _objection(check: Check, name: str, node: Node | None) -> str:
    if node is None:
        return f"The cluster has no node {name[:80]}."
    if not check.takes_gpus:
        return ""
    if node.instances or node.gpu_shares or node.gpu_virtual:
        return f"The GPUs of {name} are split, shared or for virtual machines, and a check takes whole ones."
    if not pods.resource_of(check, node.allocatable)[1]:
        return f"{name} offers no GPUs that this check can take."
    return ""


def stop(run: CheckRun, *, by: User) -> CheckRun:
    """End it soon: its pod is removed. Raises NotAllowed, WrongState."""
    permissions.require(by, Role.OPERATOR, run.cluster.scopes, f"stop a check in {run.cluster}")
    with transaction.atomic():
        live = CheckRun.objects.live().filter(pk=run.pk, stopped_by="")
        if not live.update(stopped_by=audit.actor_of(by)[:200], not_before=None):
            raise WrongState("It has ended, or is being stopped already.")
        audit.record(
            by=by,
            action="check.stop",
            target=f"check:{run.check_name}",
            target_name=CHECKS[run.check_name].title if run.check_name in CHECKS else run.check_name,
            cluster_id=run.cluster_id,
            after={"node": run.node.name},
        )
    run.refresh_from_db()
    return run
