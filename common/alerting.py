"""Alert rules as rooms offer them, and the conditions that one evaluation of a cluster finds.

Standard library only. A room knows when something of its own is wrong; `notices` knows since when, and who is to be
notified and has been. Rooms above and below `notices` alike offer their rules through `common.hooks.alert_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID


class Severity(StrEnum):
    WARNING = "warning"
    CRITICAL = "critical"


class SubjectKind(StrEnum):
    CLUSTER = "cluster"
    NODE = "node"
    DEVICE = "device"
    POD = "pod"
    WORKLOAD = "workload"
    """Pods of one owner, or of one namespace without one."""
    ROLLOUT = "rollout"
    FLEET_RUN = "fleet"


@dataclass(frozen=True, slots=True)
class Threshold:
    """The one number of a rule that people may set."""

    default: float
    least: float
    most: float
    unit: str
    means: str
    """Completes "the limit is": `below which a GPU counts as idle`."""


@dataclass(frozen=True, slots=True)
class AlertMember:
    """One of several things that are wrong for the same cause, and are one alert."""

    name: str
    """Unique among the members."""
    since: datetime | None = None
    """None: since the look that first reported it."""
    figures: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AlertCondition:
    """One subject that is wrong now."""

    kind: SubjectKind
    subject: str
    """Its stable identity within its cluster: a UUID, `namespace/pod`, a key."""
    name: str
    """What people call it."""
    sentence: str
    """What is wrong, with its numbers and units."""
    mend: str = ""
    """What to do about it."""
    link: str = ""
    """The page that shows it, without the host."""
    node: int | None = None
    """Key of the clusters.models.Node that it is of."""
    namespace: str = ""
    severity: Severity | None = None
    """Where it is not the rule's own."""
    since: datetime | None = None
    """Since when, where the room knows that better than looks can tell: then every page says the same."""
    figures: Mapping[str, float | str] = field(default_factory=dict)
    """For programs: {name: number or word}, such as {"gpus": 8, "owner": "Job train"}."""
    members: Sequence[AlertMember] = ()
    """What it consists of, where it is one alert for several; the subject stays while members come and go."""


@dataclass(frozen=True, slots=True)
class RuleResult:
    """Result of one rule for one cluster, now."""

    conditions: Sequence[AlertCondition] = ()
    unknown: frozenset[str] = frozenset()
    """Subjects with unknown state: their open alerts stay open. Unknown is not treated as healthy."""
    blind: str = ""
    """Why nothing at all can be said of the cluster; then nothing opens and nothing closes."""
    not_judged: str = ""
    """Why some subjects can never be judged as the cluster is set up, such as a metric that is not exported. It lasts,
    so it is shown with the rule and not as a disturbance."""
    is_unjudged: bool = False
    """`not_judged` holds for all subjects: nothing opens and nothing closes."""

    @property
    def is_blind(self) -> bool:
        return bool(self.blind) or self.is_unjudged


@dataclass(frozen=True, slots=True)
class AlertRule:
    """Something worth telling people, as the room that knows it offers it."""

    name: str
    title: str
    about: str
    """When it fires, for the administrator who sets it up; `{limit}` is the threshold with its unit, `{lasting}` is
    ` for 30 minutes`, or nothing where it fires at once."""
    severity: Severity
    look: Callable[[UUID, float], RuleResult]
    """(cluster, threshold) -> Look. A fixed number of queries; no network."""
    opens_after: timedelta = timedelta(0)
    """Time for which every evaluation must have found it before a notice is sent."""
    closes_after: timedelta = timedelta(minutes=5)
    """So long it must have been well, at every look, before that is over."""
    threshold: Threshold | None = None
    order: int = 100
    is_told_above: bool = False
    """The overview's "Needs attention" has it already: it is not listed twice there."""
