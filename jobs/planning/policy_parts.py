"""The policy objects of a plan: in groups, each at its place in the order, or why nothing is done with one.

What Kubernetes itself understands (namespaces, quotas, priority classes) comes before the components; queues come after
the component that brings their kind. As a component, an object has one owning assignment in its cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from clusters.connection import registry
from clusters.fleet import Fleet, FleetError, ObjectRef
from clusters.models import Cluster, Pool
from compliance.models import Assignment
from components.blast.ground import Ground
from components.policies import policy_blast, policy_objects
from components.policies.policy_objects import PreparedPolicies, mark_of
from jobs.forecast import blast_radius
from jobs.forecast.findings import SEVERITIES, PlanFinding
from jobs.models import PlanComponent
from profiles.content.cluster import WantedObject
from profiles.models import Revision
from profiles.policies.kinds import KINDS

FIRST = "policy objects"
"""The group that comes before components. No name of a component has a space in it."""
UNPREPARED = "policies"
"""The finding's code where the cluster could not be asked about them."""
AS_WANTED = "They are already compliant."
BLOCKED = "Nothing is done with them: one of them blocks this plan."


def prepare_groups(
    cluster: Cluster, pool: Pool, revision: Revision, *, brings: Collection[str], findings: list[PlanFinding]
) -> dict[str, PlanComponent]:
    """Groups by name. `brings`: components that the same plan installs. Asks the cluster: hold no transaction."""
    wanted = revision.flat.policies
    findings += _dropped_findings(pool, wanted)
    if not wanted:
        return {}
    others = _of_other_pools(cluster, pool)
    try:
        fleet = registry.connect(cluster)
        owners = {policy.title: policy_objects.owner(fleet, policy) for policy in wanted if policy.title in others}
    except FleetError as error:
        findings.append(_unprepared(error))
        return {}
    ours: list[WantedObject] = []
    shared: dict[str, Pool] = {}
    for policy in wanted:
        wishes = others.get(policy.title, [])
        named = [wish for wish in wishes if mark_of(wish[0].pk) == owners[policy.title]]
        if not wishes or owners[policy.title] == mark_of(pool.pk):
            ours.append(policy)
            findings += _differing_findings(policy, wishes)
            continue
        owner, wish = (named or wishes)[0]
        if wish.meaning != policy.meaning:
            findings.append(_contended_finding(policy, owner))
        else:
            shared[_group(policy.kind)] = owner
            findings.append(_shared_finding(policy, owner))
    rows = _rows(fleet, ours, brings, mark_of(pool.pk), findings, ground=Ground.of(cluster))
    for group in shared.keys() - rows.keys():
        reason = f"{shared[group]} has the same objects and writes them."
        rows[group] = _row(group, PreparedPolicies(), left_out=reason)
    return rows


def connect(groups: Mapping[str, PlanComponent], components: Mapping[str, PlanComponent]) -> None:
    """Say in the rows what each waits for. A component waits for all that comes first, and requires its namespace."""
    spaces = _spaces(groups.get(FIRST))
    for name, row in groups.items():
        if name != FIRST:
            row.requires = [provider for provider in _providers(row) if provider in components]
            row.requires += [FIRST] if _namespaces(row) & spaces else []
    if FIRST in groups:
        for row in components.values():
            where = row.requires if row.namespace in spaces else row.after
            where.append(FIRST)


_QUEUES, _OBJECTS = "queues of ", "objects of "
_SCHEDULERS = ("volcano", "kueue")
"""Whose objects are queues, most of them."""


def _group(kind: str) -> str:
    component = KINDS[kind].component
    return f"{_QUEUES if component in _SCHEDULERS else _OBJECTS}{component}" if component else FIRST


def _providers(row: PlanComponent) -> tuple[str, ...]:
    """Components that bring the kinds of this group: which of them, a plan says."""
    kinds = (policy.ref.kind for policy in PreparedPolicies.from_json(row.prepared).objects)
    named = [provider for kind in kinds if kind in KINDS for provider in KINDS[kind].components]
    first = row.component.partition(" of ")[2]
    return tuple(dict.fromkeys([first, *named]))


def _unprepared(error: FleetError) -> PlanFinding:
    return PlanFinding("block", UNPREPARED, "The policy objects cannot be prepared", str(error) or type(error).__name__)


def _rows(
    fleet: Fleet,
    wanted: Sequence[WantedObject],
    brings: Collection[str],
    owner: str,
    findings: list[PlanFinding],
    *,
    ground: Ground,
) -> dict[str, PlanComponent]:
    if not wanted:
        return {}
    try:
        prepared = policy_objects.prepare(fleet, wanted, brings=brings, owner=owner)
    except FleetError as error:
        findings.append(_unprepared(error))
        return {}
    findings += [PlanFinding(SEVERITIES[note.severity], note.code, note.title, note.detail) for note in prepared.notes]
    made = {policy.ref for policy in prepared.objects}
    blocked = {_group(policy.kind) for policy in wanted if ObjectRef.of(policy.manifest) not in made}
    out = {}
    for group in dict.fromkeys(_group(policy.ref.kind) for policy in prepared.objects):
        objects = tuple(policy for policy in prepared.objects if _group(policy.ref.kind) == group)
        part = replace(prepared, objects=objects, notes=(), blast=policy_blast.policies_blast(objects, ground))
        nothing = BLOCKED if group in blocked else AS_WANTED
        out[group] = _row(group, part, left_out="" if part.changes else nothing)
    return out


def _row(group: str, prepared: PreparedPolicies, *, left_out: str) -> PlanComponent:
    return PlanComponent(
        kind=PlanComponent.Kind.POLICIES,
        component=group,
        action="none" if left_out else "apply",
        prepared=prepared.to_json(),
        digest=prepared.digest,
        left_out=left_out[:300],
        **({} if left_out else blast_radius.blast_columns(prepared.blast)),
    )


def _spaces(row: PlanComponent | None) -> set[str]:
    """Namespaces that this group brings."""
    if row is None:
        return set()
    return {
        policy.ref.name for policy in PreparedPolicies.from_json(row.prepared).objects if policy.ref.kind == "Namespace"
    }


def _namespaces(row: PlanComponent) -> set[str]:
    """Namespaces in which objects of this group live."""
    return {policy.ref.namespace for policy in PreparedPolicies.from_json(row.prepared).objects if policy.ref.namespace}


def _of_other_pools(cluster: Cluster, pool: Pool) -> dict[str, list[tuple[Pool, WantedObject]]]:
    """Return the objects that targets of other pools of this cluster want.
    By kind, namespace and name; the oldest first.
    """
    out: dict[str, list[tuple[Pool, WantedObject]]] = defaultdict(list)
    rows = Assignment.objects.filter(pool__cluster=cluster).exclude(pool=pool).select_related("pool", "revision")
    for row in rows.order_by("set_at", "pk"):
        for policy in row.revision.flat.policies:
            out[policy.title].append((row.pool, policy))
    return dict(out)


def _differing_findings(ours: WantedObject, others: Sequence[tuple[Pool, WantedObject]]) -> list[PlanFinding]:
    """Other pools that want an object of its owner differently from what the owner's plan makes of it."""
    differing = [str(pool) for pool, wish in others if wish.meaning != ours.meaning]
    if not differing:
        return []
    return [
        PlanFinding(
            "warn",
            "policy-otherwise",
            f"{ours.title} changes for {', '.join(differing)}, too, whose target configures it differently",
            "This pool created it, so this plan decides. Use the same configuration in their profiles.",
        )
    ]


def _contended_finding(policy: WantedObject, pool: Pool) -> PlanFinding:
    return PlanFinding(
        "block",
        "policy-owner",
        f"{pool} configures {policy.title} differently",
        f"A cluster has one {policy.title}. {pool} owns it, and its revision configures it differently. Use the same "
        f"configuration in both, change it with a plan for {pool}, or take it out of one of them.",
    )


def _shared_finding(policy: WantedObject, pool: Pool) -> PlanFinding:
    return PlanFinding(
        "note",
        "policy-shared",
        f"{pool} has the same {policy.title} and writes it",
        "Nothing is done with it here, and reverting this plan leaves it as it is. Reverting the rollout that "
        "created it removes it from this pool, too.",
    )


def _dropped_findings(pool: Pool, wanted: Sequence[WantedObject]) -> list[PlanFinding]:
    """Objects that the pool's present revision wants and the new one does not: they stay."""
    now = Assignment.objects.filter(pool=pool).select_related("revision").first()
    before = now.revision.flat.policies if now else ()
    titles = {policy.title for policy in wanted}
    return [
        PlanFinding(
            "note",
            "policy-dropped",
            f"{dropped.title} is not in this revision, and stays",
            "Setpoint removes a policy object only when the rollout that created it is reverted. Remove it by hand.",
        )
        for dropped in before
        if dropped.title not in titles
    ]
