"""Take over what is newer than this database (law 12): look, ask, have a second person approve, and carry it out.

Taking a node over writes no value. Its NodeTuning goes back to mode observe, so nothing is asked of the node any more:
what is effective stays, restart grants are withdrawn, and originals that the host's journal knows become this
database's. Each object is rewritten only where it still asks exactly what was shown. From then on plans see the node as
it is, and differences are planned and approved like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from accounts.models import User
from accounts.permissions import may, require
from audit import services as audit
from clusters.connection import registry
from clusters.fleet import Fleet, FleetError, FleetRefused, NotFound, Replaced
from clusters.inventory import enrolment, store
from clusters.models import Cluster, Node, NodeTuning
from common.clock import now
from common.errors import Invalid, NotAllowed, WrongState
from compliance.services import expectations
from contract.nodetuning import Malformed, Mode, Spec
from jobs.diffs import restore_check
from jobs.diffs.changes import digest
from jobs.models import Takeover, TakeoverNode

Status = Takeover.Status
AT_ONCE = 200
"""Nodes of one slice."""
MESSAGE_CHARACTERS = 500
LOOKED_AT = 100
"""Objects that a page looks at to say whether there is anything to take over: those that changed last."""


# ── what there is ─────────────────────────────────────────────────────────────────────────────────────────────────────
def newer_tunings(cluster: Cluster) -> QuerySet[NodeTuning]:
    """Return the rows for which a page offers it, among those that changed last: what is newer was heard last."""
    rows = NodeTuning.objects.filter(node__cluster=cluster, node__gone_at=None).exclude(spec_step="")
    last = rows.order_by("-changed_at", "-pk").values("pk")[:LOOKED_AT]
    return restore_check.naming_unknown_steps(NodeTuning.objects.filter(pk__in=last))


def newer_cordons(cluster: Cluster) -> QuerySet[Node]:
    """Likewise: nodes that a step cordoned before it wrote their objects, which ask nothing new."""
    return restore_check.cordoned_by_unknown_steps(Node.objects.present().filter(cluster=cluster))


def find_nodes(cluster: Cluster) -> list[TakeoverNode]:
    """Every node whose object or cordon names a step that this database does not know. Reads the cluster.

    Raises WrongState where it cannot be read.
    """
    try:
        raws = registry.connect(cluster).list("nodetunings", fresh=True).items
    except FleetError as error:
        raise WrongState(f"{cluster} cannot be read: {error}") from error
    objects = {raw["metadata"]["name"]: raw for raw in raws}
    nodes = list(Node.objects.present().filter(cluster=cluster).order_by("name"))
    steps = {node.pk: str((objects.get(node.name, {}).get("spec") or {}).get("step") or "") for node in nodes}
    cordons = {node.pk: node.cordoned_by.rpartition("/")[2] for node in nodes if node.is_cordoned and node.cordoned_by}
    unknown = restore_check.unknown_steps([*steps.values(), *cordons.values()])
    out = []
    for node in nodes:
        step = steps[node.pk] if steps[node.pk] in unknown else ""
        cordon = node.cordoned_by if cordons.get(node.pk, "") in unknown else ""
        if step or cordon:
            out.append(_row(node, objects.get(node.name, {}) if step else {}, step, cordon))
    return out


def _row(node: Node, raw: Mapping[str, Any], step: str, cordon: str) -> TakeoverNode:
    spec = raw.get("spec") or {}
    reports = {report.get("key"): report for report in (raw.get("status") or {}).get("settings", ())}
    desired = {setting["key"]: setting.get("value") for setting in spec.get("settings", ())}
    desired |= {setting["key"]: None for setting in spec.get("restore", ())}
    shown = [
        {
            "key": key,
            "asked": value,
            "now": reports.get(key, {}).get("effective"),
            "original": reports.get(key, {}).get("original"),
            "is_written": reports.get(key, {}).get("written") is not None,
        }
        for key, value in sorted(desired.items())
    ]
    return TakeoverNode(
        node=node,
        uid=node.uid,
        name=node.name,
        step=step,
        spec=_asks(spec) if step else "",
        settings=shown,
        restart=str((spec.get("restart") or {}).get("kind") or ""),
        cordon=cordon[:200],
    )


def _asks(spec: Mapping[str, Any]) -> str:
    """Digest of what an object asks of its node."""
    names = ("step", "attempt", "mode", "settings", "restore", "restart")
    return f"sha256:{digest({name: spec.get(name) for name in names})}"


def digest_of(rows: Iterable[TakeoverNode], *, release_cordons: bool) -> str:
    """Return the digest of everything that was shown; the rows' results are no part of it."""
    fields = ("uid", "name", "step", "spec", "settings", "restart", "cordon")
    listed = [[getattr(row, name) for name in fields] for row in sorted(rows, key=lambda row: (row.name, row.uid))]
    return f"sha256:{digest([listed, release_cordons])}"


# ── two people ────────────────────────────────────────────────────────────────────────────────────────────────────────
def request(cluster: Cluster, *, by: User, message: str, release_cordons: bool = False) -> Takeover:
    """Raises NotAllowed, Invalid, WrongState."""
    require(by, "admin", cluster.scopes, doing="take nodes over")
    if not message.strip() or len(message) > MESSAGE_CHARACTERS:
        why = f"Give the reason why they are newer, in at most {MESSAGE_CHARACTERS} characters: approvers read it."
        raise Invalid("A takeover needs a reason.", fields={"message": [why]})
    if cluster.ownership != Cluster.Ownership.OURS:
        raise WrongState(
            f"{cluster} carries the mark of another installation: connect it again and take it over first."
        )
    rows = find_nodes(cluster)
    if not rows:
        raise WrongState(f"Nothing in {cluster} is newer than this database.")
    try:
        with transaction.atomic():
            row = Takeover.objects.create(
                cluster=cluster,
                message=message.strip(),
                release_cordons=release_cordons,
                digest=digest_of(rows, release_cordons=release_cordons),
                requested_by=by,
            )
            for node in rows:
                node.takeover = row
            TakeoverNode.objects.bulk_create(rows, batch_size=200)
            _record(row, by, "takeover.request", {"nodes": len(rows), "release_cordons": release_cordons})
    except IntegrityError as error:
        raise WrongState(f"A takeover of {cluster} is open already.") from error
    return row


def open_takeover(cluster: Cluster) -> Takeover:
    """The one that is open in this cluster. Raises WrongState."""
    row = Takeover.objects.select_related("cluster").filter(cluster=cluster, status__in=Takeover.OPEN).first()
    if row is None:
        raise WrongState(f"No takeover of {cluster} is open.")
    return row


def reason_not_to_approve(row: Takeover, user: User) -> str:
    """Return why this person may not be the second one; empty when they may."""
    if row.requested_by_id in (None, user.pk):
        return "The requester cannot approve it: a second person is needed."
    if user.is_service or not (may(user, "approver", row.cluster.scopes) or may(user, "admin", row.cluster.scopes)):
        return f"This needs the role approver or admin for {row.cluster}, and a person."
    return ""


def approve(row: Takeover, *, by: User, digest: str) -> Takeover:
    """Approve, as a second person, exactly what was shown. Raises NotAllowed, Invalid, WrongState."""
    if why := reason_not_to_approve(row, by):
        raise NotAllowed(why)
    with transaction.atomic():
        row = Takeover.objects.select_for_update().get(pk=row.pk)
        if row.status != Status.REQUESTED:
            raise WrongState(f"This takeover is {row.get_status_display().lower()}.")
        if digest != row.digest:
            raise Invalid("This is not the requested takeover.", fields={"digest": ["Read the takeover again."]})
        if digest_of(row.nodes.all(), release_cordons=row.release_cordons) != row.digest:
            raise WrongState("The nodes shown were altered since: withdraw the request and make it again.")
        row.move(Status.APPROVED, approved_by=by, approved_at=now())
        _record(row, by, "takeover.approve", {"digest": row.digest})
    return row


def withdraw(cluster: Cluster, *, by: User) -> Takeover:
    """The open one, before it is approved. Raises NotAllowed, WrongState."""
    require(by, "admin", cluster.scopes, doing="withdraw a takeover")
    with transaction.atomic():
        row = Takeover.objects.select_for_update(of=("self",)).get(pk=open_takeover(cluster).pk)
        if row.status != Status.REQUESTED:
            raise WrongState(f"This takeover is {row.get_status_display().lower()}.")
        row.move(Status.WITHDRAWN, finished_at=now())
        _record(row, by, "takeover.withdraw", {})
    return row


def _record(row: Takeover, by: User | None, action: str, after: Mapping[str, Any]) -> None:
    audit.record(
        by=by,
        action=action,
        target=f"cluster:{row.cluster_id}",
        target_name=str(row.cluster),
        cluster_id=row.cluster_id,
        message=row.message,
        after=dict(after),
    )


# ── carried out ───────────────────────────────────────────────────────────────────────────────────────────────────────
def due_takeovers() -> list[UUID]:
    return list(Takeover.objects.filter(status=Status.APPROVED).values_list("pk", flat=True))


def carry_out(pk: UUID, fleet: Fleet | None = None) -> int:
    """One slice; returns how many nodes are over. Twice, or killed in between, nothing happens twice: an object that
    asks nothing any more is done."""
    row = Takeover.objects.select_related("cluster").filter(pk=pk, status=Status.APPROVED).first()
    if row is None or row.cluster.ownership != Cluster.Ownership.OURS:
        return 0
    items = list(row.nodes.filter(done_at=None).select_related("node")[:AT_ONCE])
    if not items:
        _finish(row)
        return 0
    fleet = fleet or registry.connect(row.cluster)
    observe = enrolment.observed_keys()

    def take(item: TakeoverNode) -> tuple[TakeoverNode, list[dict[str, Any]], list[dict[str, Any]]] | None:
        try:
            return _take(fleet, item, observe, release=row.release_cordons)
        except FleetRefused as error:
            item.result = f"Left as it is: {error}"[:500]
            return item, [], []
        except FleetError:
            return None  # the cluster is away: the next look tries again

    with ThreadPoolExecutor(settings.SETPOINT_PARALLEL_CALLS, thread_name_prefix="takeover") as pool:
        taken = [taken_node for taken_node in pool.map(take, items) if taken_node]
    with transaction.atomic():
        for item, _, _ in taken:
            TakeoverNode.objects.filter(pk=item.pk).update(done_at=now(), result=item.result)
        expectations.adopt({item.node_id: item.settings for item, raws, _ in taken if raws and not item.result})
    store.observe_tunings(row.cluster, [raw for _, raws, _ in taken for raw in raws], complete=False, at=now())
    store.observe_nodes(row.cluster, [raw for _, _, raws in taken for raw in raws], complete=False, at=now())
    if not row.nodes.filter(done_at=None).exists():
        _finish(row)
    return len(taken)


def _take(
    fleet: Fleet, item: TakeoverNode, observe: Sequence[str], *, release: bool
) -> tuple[TakeoverNode, list[dict[str, Any]], list[dict[str, Any]]]:
    tunings, nodes = [], []
    if item.step:
        try:
            raw = fleet.tuning(item.name)
            spec = Spec.from_json(raw.get("spec") or {})
        except NotFound:
            return item, [], []
        except Malformed as error:
            item.result = f"Left as it is: its object cannot be read: {error}"[:500]
            return item, [], []
        if spec.step or spec.mode != Mode.OBSERVE:
            if _asks(raw.get("spec") or {}) != item.spec or spec.node_uid != item.uid:
                item.result = "Left as it is: its object requests other values than those approved. Check it again."
                return item, [], []
            quiet = Spec(node_uid=item.uid, mode=Mode.OBSERVE, observe=tuple(observe))
            raw = fleet.tune(item.name, quiet, version=str(raw["metadata"]["resourceVersion"]))
        tunings.append(raw)
    if item.cordon and release:
        try:
            nodes.append(fleet.uncordon(item.name, item.uid, item.cordon))
        except Replaced:
            item.result = "The node was replaced since."
        except FleetRefused as error:
            item.result = f"Its cordon is as it was: {error}"[:500]
    return item, tunings, nodes


def _finish(row: Takeover) -> None:
    left = row.nodes.exclude(result="").count()
    with transaction.atomic():
        row = Takeover.objects.select_for_update().get(pk=row.pk)
        if row.status == Status.APPROVED:
            row.move(Status.DONE, finished_at=now())
            _record(row, None, "takeover.done", {"nodes": row.nodes.count(), "left": left})
