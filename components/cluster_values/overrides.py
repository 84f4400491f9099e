"""Values of one component that hold for one cluster: the layers under them, their problems, and saving.

Nothing in the cluster changes by saving. The next plan takes what is stored, shows what it means, and is approved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Max

from accounts.models import User
from accounts.permissions import Role, require
from audit import services as audit
from clusters.models import Cluster, Pool
from common import hooks
from common.clock import now
from common.errors import Invalid, Stale
from components.catalog import values_check
from components.catalog.entry import Component
from components.catalog.layering import Layered
from components.catalog.values_check import BLOCK
from components.charts import profile_findings, store
from components.charts.archives import ChartContent
from components.models import Archive, ClusterValues
from components.values.paths import at, dotted
from components.values.secrets import MASK, REFERENCE
from profiles.content.cluster import WantedComponent, canonical
from profiles.models import Revision

OFFERED = 100
"""Profiles whose newest revision is offered as the layer below."""


@dataclass(frozen=True, slots=True)
class RevisionLayer:
    """A revision that wants the component: the layer below the cluster's own."""

    revision: Revision
    wanted: WantedComponent
    is_target: bool
    """A pool of this cluster has it as its target, or a plan that is open brings it."""


@dataclass(frozen=True, slots=True)
class ValuesFinding:
    path: str
    severity: str
    code: str
    message: str
    is_own: bool
    """It is there because of the cluster's own values. Such a one that blocks keeps them from being saved."""


@dataclass(frozen=True, slots=True)
class ComponentInCluster:
    """A component in one cluster, before its own values."""

    cluster: Cluster
    component: Component
    row: ClusterValues | None
    wish: RevisionLayer | None
    wishes: Sequence[RevisionLayer]
    version: str
    chart: ChartContent | None
    """Of this version, where it is stored: without it neither keys nor schema are judged."""

    @property
    def presets(self) -> tuple[str, ...]:
        return self.wish.wanted.presets if self.wish else ()

    @property
    def version_of_row(self) -> int:
        """0: the cluster has no values of its own yet."""
        return self.row.version if self.row else 0

    @property
    def own(self) -> dict[str, Any]:
        return dict(self.row.values) if self.row else {}

    def layered(self, own: Mapping[str, Any]) -> Layered:
        below = self.wish.wanted.values if self.wish else {}
        presets = tuple(name for name in self.presets if name in self.component.presets)
        return values_check.layered(self.component, self.version, presets, below, own)


def component_in_cluster(cluster: Cluster, component: Component, revision: int | None = None) -> ComponentInCluster:
    """Return the component's layers in this cluster, with this revision below where it wants the component.

    Without such a revision, the cluster's target that wants it is below.
    """
    layers = wishes(cluster, component)
    chosen = next((wish for wish in layers if wish.revision.pk == revision), None)
    if chosen is None and revision is None and layers and layers[0].is_target:
        chosen = layers[0]
    version = (chosen.wanted.version if chosen else "") or component.newest
    row = ClusterValues.objects.filter(cluster=cluster, component=component.name).first()
    chart = profile_findings.stored_chart(component, version)
    return ComponentInCluster(cluster, component, row, chosen, layers, version, chart)


def wishes(cluster: Cluster, component: Component) -> list[RevisionLayer]:
    """Revisions that want it: this cluster's targets, then open plans', then the newest of every profile."""
    near = near_revisions(cluster)
    newest = Revision.objects.order_by("profile__name").values_list("profile__name").annotate(newest=Max("id"))
    ids = [*near, *(key for _, key in newest[:OFFERED])]
    # The text is looked for in the database, so that the contents of a hundred profiles need not travel.
    naming = Revision.objects.filter(pk__in=ids, content__components__icontains=f'"{component.name}"')
    rows = {row.pk: row for row in naming.select_related("profile")}
    layers = []
    for key in dict.fromkeys(ids):
        component_wish = rows[key].flat.component(component.name) if key in rows else None
        if component_wish is not None and not component_wish.is_gone and _is_sound(component, component_wish):
            layers.append(RevisionLayer(rows[key], component_wish, is_target=key in near))
    return layers


def near_revisions(cluster: Cluster) -> list[int]:
    """List the targets of the cluster's pools, then the revisions that open plans and live rollouts bring."""
    pools = list(Pool.objects.filter(cluster=cluster).values_list("pk", flat=True))
    near = [revision for _, revision in hooks.targets_of_pools(pools)]
    near += [work.revision_id for work in hooks.work_of_pools(pools)]
    return list(dict.fromkeys(near))


def _is_sound(component: Component, wanted: WantedComponent) -> bool:
    return values_check.excluded(component, wanted.presets) is None


# ── Judging ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def judge(here: ComponentInCluster, own: Any) -> list[ValuesFinding]:
    """List the problems of the cluster's values, and of all layers as one. Never raises, for any values."""
    if not isinstance(own, Mapping):
        return [ValuesFinding("", BLOCK, "bad-values", "must be a mapping of the chart's keys to values", is_own=True)]
    if limits := list(values_check.limits(own)):
        return [ValuesFinding(note.path, BLOCK, note.code, note.message, is_own=True) for note in limits]
    notes = _notes(here, own)
    before = {(note.path, note.code, note.message) for note in _notes(here, {})}
    findings = [
        ValuesFinding(
            note.path,
            note.severity,
            note.code,
            note.message,
            is_own=note.code != "decision" and (note.path, note.code, note.message) not in before,
        )
        for note in notes
        if note.code != "plain-secret" or (note.path, note.code, note.message) in before
    ]
    findings += _plain_secrets(own, "")
    return sorted(findings, key=lambda finding: (not finding.is_own, finding.severity != BLOCK))


def _notes(here: ComponentInCluster, own: Mapping[str, Any]) -> list[values_check.ValuesNote]:
    chart = here.chart
    if chart is None:
        return values_check.judge(here.layered(own))
    return values_check.judge(
        here.layered(own), chart.values, chart.schema, text=chart.values_text, subcharts=frozenset(chart.subcharts)
    )


def _plain_secrets(value: Any, path: str) -> Iterator[ValuesFinding]:
    """Yield a finding for each plain-text secret in mappings and lists.

    A row that many may read is no place for a password.
    """
    if isinstance(value, Mapping) and REFERENCE not in value:
        for key, inner in value.items():
            below = path + ("." if path and not dotted((key,)).startswith("[") else "") + dotted((key,))
            if inner == MASK:
                yield ValuesFinding(below, BLOCK, "mask", "is the mask of a secret, not a value", is_own=True)
            elif values_check.looks_secret(key, inner):
                message = (
                    f"looks like a secret in plain text: write {{{REFERENCE}: {{name: the-secret, key: its-key}}}}"
                )
                yield ValuesFinding(below, BLOCK, "plain-secret", message, is_own=True)
            else:
                yield from _plain_secrets(inner, below)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _plain_secrets(inner, f"{path}[{index}]")


# ── Saving ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def may_change(user: User, cluster: Cluster, component: Component) -> None:
    require(user, Role.OPERATOR, cluster.scopes, f"set values of {component.name} for {cluster}")


def fetch_chart(here: ComponentInCluster, *, by: User) -> Archive:
    """The chart that the values are checked against, stored from now on. Waits on the network: hold no transaction.

    Raises NotAllowed, Unfetchable, BadArchive.
    """
    may_change(by, here.cluster, here.component)
    archive = store.fetch(here.component.chart, here.version)
    audit.record(
        by=by,
        action="chart-archive.fetch",
        target=f"chart-archive:{archive.pk}",
        target_name=str(archive),
        cluster_id=here.cluster.pk,
        after={"name": archive.name, "version": archive.version, "sha256": archive.sha256, "origin": archive.origin},
    )
    return archive


def save(here: ComponentInCluster, own: Any, *, by: User, version: int) -> ClusterValues:
    """`version`: the one the caller saw; 0: there were none. Raises NotAllowed, Invalid naming each path, Stale."""
    may_change(by, here.cluster, here.component)
    if wrong := [finding for finding in judge(here, own) if finding.is_own and finding.severity == BLOCK]:
        fields: dict[str, list[str]] = {}
        for finding in wrong:
            fields.setdefault(f"values.{finding.path}".rstrip("."), []).append(finding.message)
        first = f"{wrong[0].path or 'values'}: {wrong[0].message}"
        raise Invalid(f"These values cannot be saved: {first}.", fields=fields)
    if version != here.version_of_row:
        raise _stale(here.row)
    if here.row and canonical(here.own) == canonical(own):
        return here.row
    with transaction.atomic():
        saved = _stored(here, dict(own), by, version)
        before, after = _difference(here.own, own)
        audit.record(
            by=by,
            action="component-values.update",
            target=f"cluster:{here.cluster.pk}",
            target_name=f"{here.component.name} in {here.cluster}",
            cluster_id=here.cluster.pk,
            before=before,
            after=after,
        )
    return saved


def _stored(here: ComponentInCluster, own: dict[str, Any], by: User, version: int) -> ClusterValues:
    before = here.row.authors if here.row and own else []  # emptied values have one author, the editor
    authors = sorted({*before, by.pk})
    changed = {"values": own, "authors": authors, "changed_by": str(by)[:150], "changed_at": now()}
    rows = ClusterValues.objects.filter(cluster=here.cluster, component=here.component.name)
    if version == 0:
        try:
            with transaction.atomic():  # savepoint: judge this one insert
                return ClusterValues.objects.create(cluster=here.cluster, component=here.component.name, **changed)
        except IntegrityError as error:  # one_set_of_values
            raise _stale(rows.first()) from error
    if not rows.filter(version=version).update(**changed, version=version + 1):
        raise _stale(rows.first())
    return rows.get()


def _stale(row: ClusterValues | None) -> Stale:
    who = row.changed_by if row and row.changed_by else "Somebody"
    return Stale(f"{who} changed these values meanwhile. Read them again.")


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the changed values by path, before and after, with secrets as words: for the audit record."""
    a, b = _leaves(before), _leaves(after)
    changed = [path for path in dict.fromkeys((*a, *b)) if _canonical_leaf(a, path) != _canonical_leaf(b, path)]
    return {path: a.get(path) for path in changed}, {path: b.get(path) for path in changed}


def _canonical_leaf(leaves: Mapping[str, Any], path: str) -> str | None:
    """1 and true are equal to Python, and not to helm."""
    return canonical(leaves[path]) if path in leaves else None


def _leaves(given: Mapping[str, Any]) -> dict[str, Any]:
    hidden = values_check.masked(given)
    return {dotted(path): at(hidden, path) for path in values_check.leaves(hidden)}


# ── Shown ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class LayeredValue:
    path: str
    value: Any
    origin: str
    replaces: str
    """The origin of what stood there below; empty: nothing did."""


def lines(here: ComponentInCluster, own: Mapping[str, Any]) -> list[LayeredValue]:
    """Every key that helm is given, with where it comes from; secrets as words."""
    layered, below = here.layered(own), here.layered({})
    hidden: Mapping[str, Any] = values_check.masked(layered.values)
    out = []
    for path in values_check.leaves(layered.values):
        name = dotted(path)
        origin = layered.origins[name]
        replaces = below.origins.get(name, "") if origin == values_check.CLUSTER else ""
        out.append(LayeredValue(name, at(hidden, path), origin, replaces))
    return out


def hidden(own: Any) -> Any:
    """Return the values to be read and sent back.

    References are as they are, and a plain text that looks like a secret is its mask.
    """
    if isinstance(own, Mapping):
        if REFERENCE in own:
            return dict(own)
        return {
            key: MASK if values_check.looks_secret(str(key), inner) else hidden(inner) for key, inner in own.items()
        }
    return [hidden(inner) for inner in own] if isinstance(own, list | tuple) else own
