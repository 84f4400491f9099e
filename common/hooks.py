"""Typed registries: the one way for something to flow upwards. Rooms above fill them in `AppConfig.ready()`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, ParamSpec, TypeVar
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest

from common.alerting import AlertRule
from common.search import Needle, SearchGroup
from common.timeline import Entry, Subject

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger(__name__)


class Hook(Generic[P]):
    """A list of subscribers. One that raises is logged and does not stop the others."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._subscribers: list[Callable[P, object]] = []

    def subscribe(self, function: Callable[P, object]) -> None:
        if function not in self._subscribers:
            self._subscribers.append(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for function in self._subscribers:
            try:
                function(*args, **kwargs)
            except Exception:
                log.exception("subscriber of %s failed: %s", self.name, function)


class Question(Generic[P, T]):
    """Asks every subscriber and joins their answers, in the order they subscribed.

    One that raises is logged and left out, unless `is_strict`: then it raises, for questions whose unheard answer
    might have been "no".
    """

    def __init__(self, name: str, *, is_strict: bool = False) -> None:
        self.name = name
        self.is_strict = is_strict
        self._subscribers: list[Callable[P, Iterable[T]]] = []

    def subscribe(self, function: Callable[P, Iterable[T]]) -> None:
        if function not in self._subscribers:
            self._subscribers.append(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> list[T]:
        answers: list[T] = []
        for function in self._subscribers:
            try:
                answers.extend(function(*args, **kwargs))
            except Exception:
                if self.is_strict:
                    raise
                log.exception("subscriber of %s failed: %s", self.name, function)
        return answers


@dataclass(frozen=True, slots=True)
class Panel:
    """A part of a page that a room above contributes: `{% include panel.template with panel=panel.context %}`."""

    template: str
    """A fragment, such as `compliance/_node_settings.html`. Its first line says what it needs of `panel`."""
    context: Mapping[str, Any]
    order: int = 100
    """Panels are sorted by it, ascending."""
    place: str = ""
    """On a cluster's page: `tile` is among the numbers at its top, `lead` right below them; empty further down."""


@dataclass(frozen=True, slots=True)
class WorkRef:
    """A plan or a rollout, for rooms below the one that keeps them: enough to name it and to link to it."""

    id: UUID
    number: int
    pool_id: int
    revision_id: int
    status: str
    kind: str = field(default="plan", kw_only=True)
    """plan or rollout."""


audit_panels = Question[[], Panel]("audit_panels")
"""Panels above the audit record, for people who may read all of it."""

nodes_changed = Hook[[UUID, Sequence[int]]]("nodes_changed")
"""Rows of these nodes (or of their NodeTunings) were just written and committed; at most a few hundred per call."""

nodes_gone = Hook[[UUID, Sequence[int]]]("nodes_gone")
"""These nodes were deleted or replaced under their name."""


@dataclass(frozen=True, slots=True, order=True)
class Followed:
    """Objects of one kind with a label, all over a cluster, of which a room above wants to hear: their metadata."""

    api_version: str
    plural: str
    label: str
    """A label selector."""


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """Something happened to one followed object: when to look, never what is there."""

    followed: Followed
    namespace: str
    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    """As they were before, where the object was known."""
    is_status: bool = False
    """Neither what is wanted of it nor its metadata is another."""


follow = Question[[UUID], Followed]("follow")
"""Asked of each watched cluster, every few seconds: what else to follow there (clusters.watch.following)."""

followed_changed = Hook[[UUID, Sequence[ObjectChange]]]("followed_changed")
"""Heard in a cluster within the last seconds, each object once."""

followed_relisted = Hook[[UUID, Sequence[Followed]]]("followed_relisted")
"""These kinds were listed: what happened to them before was not heard."""

not_followed = Hook[[UUID, Mapping[Followed, str]]]("not_followed")
"""All that cannot be followed in a cluster, and why; called at each change of that."""

cluster_disconnecting = Hook[[UUID]]("cluster_disconnecting")
"""A cluster is about to be removed; subscribers may raise nothing, they clean up or note it."""

disconnect_blockers = Question[[Any], str]("disconnect_blockers", is_strict=True)
"""Why a clusters.models.Cluster may not be disconnected now, one sentence each ("R-131 is running"); no answers: it
may."""

pool_blockers = Question[[int], str]("pool_blockers", is_strict=True)
"""Why a pool (its key) may not be deleted or select other nodes now, one sentence each."""

left_behind = Question[[UUID], str]("left_behind")
"""What a disconnected cluster keeps, one sentence each, for the page that asks for confirmation."""

observed_keys = Question[[], str]("observed_keys")
"""Keys that every agent reports besides those it sets: the settings catalog's."""

cluster_panels = Question[[HttpRequest, Any], Panel]("cluster_panels")
"""Panels of a cluster's page; called with the request and the clusters.models.Cluster."""

cluster_numbers = Question[[Any], tuple[str, QuerySet[Any]]]("cluster_numbers")
"""(name, rows) of a clusters.models.Cluster: its page counts all of them in one query, and panels find the numbers in
`numbers`."""

component_panels = Question[[HttpRequest, str], Panel]("component_panels")
"""Panels of a component's page in the catalog; called with the request and its name."""

node_panels = Question[[HttpRequest, Any], Panel]("node_panels")
"""Panels of a node's page; called with the request and the clusters.models.Node."""

plan_panels = Question[[HttpRequest, Any], Panel]("plan_panels")
"""Panels of a plan's page, below its findings; called with the request and the jobs.models.Plan."""

rollout_panels = Question[[HttpRequest, Any], Panel]("rollout_panels")
"""Panels of a rollout's page, below what polls itself; called with the request and the jobs.models.Rollout."""

profile_panels = Question[[HttpRequest, Any], Panel]("profile_panels")
"""Panels of a profile's page; called with the request and the profiles.models.Profile."""


overview_panels = Question[[HttpRequest], Panel]("overview_panels")
"""Panels of the overview, between its numbers and its lists; called with the request."""

compliance_panels = Question[[HttpRequest, Mapping[str, str]], Panel]("compliance_panels")
"""Panels of the fleet's page of compliance, below its live part; called with the request and what the page is narrowed
to: `cluster` (a name) and `environment`, either of them empty."""

alert_rules = Question[[], AlertRule]("alert_rules", is_strict=True)
"""What each room has alerts for. Strict: a rule that goes unheard would close its alerts as if all were well."""

alert_panels = Question[[HttpRequest], Panel]("alert_panels")
"""Panels of the page of alert rules; called with the request."""


node_work = Question[[Collection[int]], tuple[int, str]]("node_work", is_strict=True)
"""(node, sentence) of each of these nodes (keys) on which a room above works now: no step starts there until it has
ended, and it ends at once where a step waits. Strict: a step that starts unheard would disturb a node in use."""


@dataclass(frozen=True, slots=True)
class NodeMark:
    """Status of a node on an axis that its own room does not know: a cell of the lists of nodes."""

    node_id: int
    axis: str
    """compliance or operation, as in common.look."""
    value: str
    note: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class NodeListFilter:
    """A filter of the lists of nodes, contributed by a room above."""

    name: str
    """Of the parameter in the URL, and the axis of its values."""
    values: Sequence[str]
    narrow: Callable[[QuerySet[Any], str], QuerySet[Any]]
    """Those of the nodes that have the value."""
    count: Callable[[QuerySet[Any]], Mapping[str, int]]
    """How many of the nodes have which value, in one query."""


web_session = Question[[], Any]("web_session", is_strict=True)
"""A requests.Session under the egress policy, bounded in time and size: its one answer is that of clusters.net."""

unconfirmed_restores = Question[[], str]("unconfirmed_restores", is_strict=True)
"""Why nothing may be written to any cluster by itself: a restore that no administrator has confirmed."""

node_marks = Question[[Sequence[int]], NodeMark]("node_marks")
"""Asked with the keys of a page of nodes; a fixed number of queries."""

node_filters = Question[[], NodeListFilter]("node_filters")

cluster_counts = Question[[Sequence[Any]], tuple[UUID, str, Mapping[str, int]]]("cluster_counts")
"""(cluster, axis, nodes by value) for each of these clusters.models.Cluster: what is counted besides health."""

role_scopes = Question[[], tuple[str, str]]("role_scopes")
"""(scope, name) of everything besides environments in which a role can be given: each cluster, by name."""

team_scopes = Question[[], tuple[str, str]]("team_scopes")
"""(scope, name) of each team to which a viewer can be limited, by name."""

team_locks = Question[[int], int]("team_locks", is_strict=True)
"""The key of the team, if it is there: it is not removed until the caller's transaction ends."""

team_holdings = Question[[int], str]("team_holdings", is_strict=True)
"""What a team (its key) owns, a phrase each. Strict: one that is thought to own nothing is removed."""

owners_changed = Question[[Any], Any]("owners_changed", is_strict=True)
"""Plans judged again, as a person changes owners in the transaction. Strict: a new owner must not be passed over."""

timeline = Question[[Subject], Entry]("timeline", is_strict=True)
"""What happened to one object, at most `subject.limit` entries a source. Strict: it is all of them, or an error."""

rollouts_named = Question[[Collection[UUID]], WorkRef]("rollouts_named")
"""The rollouts of these ids; ids that no room knows (newer than this database) have no answer."""

rollouts_of_pools = Question[[Collection[int]], WorkRef]("rollouts_of_pools", is_strict=True)
"""Rollouts that are live in these pools (keys)."""

objects_to_come = Question[[Collection[int]], str]("objects_to_come")
"""Policy objects, `kind/namespace/name`, that live rollouts of these pools (keys) are still to make."""

work_of_pools = Question[[Collection[int]], WorkRef]("work_of_pools", is_strict=True)
"""Plans of these pools (keys) that are still open, and rollouts that are live in them, the newest first."""

targets_of_pools = Question[[Collection[int]], tuple[int, int]]("targets_of_pools", is_strict=True)
"""(pool, revision) of those of these pools (keys) that have a target."""

component_owners = Question[[], tuple[UUID, str, int]]("component_owners", is_strict=True)
"""(cluster, component, pool) of every component that a target wants: whose plans change it, where several pools want
it. Strict: without the answer a component would be held to what another pool wants."""


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """A secret that a row keeps sealed: what it takes to seal it again with another key."""

    row: Any
    """A Django model's instance."""
    place: UUID
    field: str
    """With `place`, what it is sealed for (clusters.connection.encryption)."""
    columns: tuple[str, str]
    """Of the row: the ciphertext, and the fingerprint of its key."""
    title: str
    """The stored credential of east"""
    action: str
    """Of the audit record, as `target` and `target_name` are."""
    target: str
    target_name: str
    cluster_id: UUID | None = None


class NotSealed(Exception):
    """A secret cannot be sealed or opened: its key is missing, or it was changed. The message has the reason."""


@dataclass(frozen=True, slots=True)
class Sealing:
    """Sealing with the installation's credential keys, for rooms below the one that has them."""

    seal: Callable[[UUID, str, str], tuple[bytes, str]]
    """(place, field, text) → the ciphertext, and the fingerprint of its key. Raises NotSealed."""
    unseal: Callable[[UUID, str, bytes, str], str]
    """(place, field, ciphertext, fingerprint) → the text. Raises NotSealed."""


sealing = Question[[], Sealing]("sealing", is_strict=True)
"""Its one answer is that of clusters.connection."""

stored_secrets = Question[[], StoredSecret]("stored_secrets", is_strict=True)
"""Every secret that is stored sealed. Strict: a key that is thought unused is thrown away."""

plans_of_archives = Question[[Collection[str], Any], tuple[str, WorkRef]]("plans_of_archives", is_strict=True)
"""(SHA-256, plan) of the newest hundred plans that name each of these chart archives, the newest first, as far as this
person may see them; with None in the person's place, all. Strict: an archive that looks unused is deleted."""

component_uses = Question[[str], str]("component_uses", is_strict=True)
"""What needs a component of the catalog (its name) now, a clause each: targets of pools, plans, releases. Strict: an
entry that looks unused is deleted."""

plans_of_nodes = Question[[Collection[int]], tuple[int, WorkRef]]("plans_of_nodes")
"""(node, plan) of open plans that do something on these nodes (keys), the newest plan first."""

kept_filters = Question[[str, Any], Any]("kept_filters")
"""Asked with a list's name and a person, for rooms below the people's: the accounts.filters.Shelf of that page."""


@dataclass(frozen=True, slots=True)
class RevisionUse:
    """Use of one revision, for its page: a pool's target, a plan."""

    revision_id: int
    kind: str
    """assignment or plan"""
    id: str
    name: str
    href: str
    status: str
    at: datetime


revision_uses = Question[[Any, Sequence[int]], RevisionUse]("revision_uses")
"""Asked with a person and keys of revisions: what they may see of it, newest first, at most a hundred of a kind."""

search = Question[[Any, Needle], SearchGroup]("search")
"""Asked with a person: what a room knows by this name, number or identifier, of what they may see. Two queries at most
a kind, for any size."""

profile_findings = Question[[Any], Any]("profile_findings", is_strict=True)
"""Asked with a profiles.content.content.Content, flattened: what rooms above know to be wrong with it or risky, as
profiles.document.document.Note. With one of severity `block` it cannot be published. Strict: an unheard "no" would be
published."""


@dataclass(frozen=True, slots=True)
class ComponentChoice:
    """A component that a profile can want, for the form that writes one."""

    name: str
    title: str
    summary: str
    versions: Sequence[str]
    """The newest first."""
    presets: Sequence[tuple[str, str]]
    """(name, title)"""
    href: str


component_choices = Question[[], ComponentChoice]("component_choices")
"""What the catalog of components offers, in its order."""


@dataclass(frozen=True, slots=True)
class ComponentRelease:
    """The Helm release that a component of a profile would be, for files of other tools."""

    name: str
    repository: str = ""
    chart: str = ""
    version: str = ""
    namespace: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    """All layers but a cluster's, without secrets."""
    secrets: Sequence[str] = ()
    """Paths of values that are a secret."""
    decisions: Sequence[str] = ()
    """Paths of values that each cluster must give."""
    requires: Sequence[str] = ()
    """Components that must be there first."""
    problem: str = ""
    """Reason why there is none; everything else is empty then."""


component_releases = Question[[Any], ComponentRelease]("component_releases", is_strict=True)
"""Asked with a profiles.content.content.Content, flattened: what its components would be installed as."""
