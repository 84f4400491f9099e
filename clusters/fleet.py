"""The port to a Kubernetes cluster: the verbs the product needs, in its own words, and the ways they fail.

Standard library and `contract` only. `clusters.kube.fleet.KubeFleet` speaks to a real API server,
`simfleet.memory.SimFleet` to a simulated one; `tests/contract/` holds both to the same behavior. Every call has a
timeout, is safe to repeat, raises only FleetError subclasses, and may be made by several threads at once.

Node-changing verbs take the node's UID and refuse a node that was replaced under its name (law 9).
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from contract.nodetuning import Spec

Keep = Callable[[dict[str, Any]], "dict[str, Any] | None"]
"""Returns what is kept of an object that was just read; None where nothing of it is needed."""
ObjectKind = Literal["nodes", "pods", "nodetunings", "leases", "resourceslices", "resourceclaims"]
"""The last two are not served everywhere, nor may every account read them: NotFound, Forbidden."""


class FleetError(Exception):
    """Base of what the port raises. `str()` is a sentence for people. `is_final`: trying again cannot help."""

    is_final = False


class FleetUnavailable(FleetError):
    """Timeout, refused connection, TLS failure, 5xx: the call may succeed later."""


class Throttled(FleetUnavailable):
    """429 that is not a PodDisruptionBudget's. `retry_after` in seconds is the server's word, else 1."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class CredentialsRefused(FleetUnavailable):
    """401, or a credential that cannot be used: authentication failed before the request was considered.

    Retried like an unavailable API server: once the credential is replaced, or accepted again, every call may succeed.
    """


class WrongCertificate(CredentialsRefused):
    """The server's: signed by no authority that the credential names, for another host, or expired."""


class FleetRefused(FleetError):
    """The API server said no for good: 400, 403, 422."""

    is_final = True


class Forbidden(FleetRefused):
    """403: known, and without this right; names the verb and resource."""


class NotFound(FleetRefused):
    """The object is not there."""


class Conflict(FleetRefused):
    """409: another writer was first, or another field manager owns the field."""


class Replaced(FleetRefused):
    """The node of that name has another UID now (law 9)."""


class Gone(FleetRefused):
    """410: the resource version is too old; list again."""

    is_final = False


class Untrusted(FleetRefused):
    """The answer is not what an API server says: not JSON, wrong kind. Nothing is known of the question.

    Something else answers, as a load balancer does while all API servers are away.
    """

    is_final = False


@dataclass(frozen=True, slots=True)
class Identity:
    uid: str
    """UID of the namespace kube-system: the cluster's identity under any URL."""
    version: str
    """gitVersion, such as v1.35.4."""


@dataclass(frozen=True, slots=True)
class Permission:
    verb: str
    group: str
    resource: str
    """May carry a subresource: `pods/eviction`."""
    namespace: str = ""
    why: str = ""
    name: str = ""
    """Of the one object that the right is about; empty: of all."""
    is_optional: bool = False
    """Setpoint works without it, less well: its absence is a warning."""


@dataclass(frozen=True, slots=True)
class Review:
    permission: Permission
    allowed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Equipment:
    """Parts of deploy/ that are present in the cluster. `missing` is human-readable, empty when complete."""

    crd: bool
    agent_policy: bool
    spec_policy: bool
    agent_desired: int
    agent_ready: int
    missing: tuple[str, ...] = ()
    hold_policy: bool = False
    """Agents may end the hold of their own node. It is optional, so it is never among `missing`."""


@dataclass(frozen=True, slots=True)
class Page:
    """One list page of raw objects (`limit=500`)."""

    items: list[dict[str, Any]]
    resource_version: str
    left_out: frozenset[str] = frozenset()
    """UIDs of objects of which nothing was kept."""


@dataclass(frozen=True, slots=True)
class Event:
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: dict[str, Any]
    is_brief: bool = False
    """Nothing but its names, UID and version was kept, and of a finished pod its status."""

    @property
    def resource_version(self) -> str:
        return str(self.object.get("metadata", {}).get("resourceVersion", ""))


@dataclass(frozen=True, slots=True)
class PodRef:
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Backend:
    """A pod or service that speaks HTTP, asked through the API server's proxy."""

    kind: Literal["pods", "services"]
    namespace: str
    name: str
    port: str
    """Number or name."""
    scheme: Literal["", "http", "https"] = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer of a backend itself, of any status: it was reached."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """One policy object: a quota, a priority class, a queue."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    """Empty for kinds that belong to the cluster."""

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> ObjectRef:
        metadata = manifest.get("metadata") or {}
        return cls(
            str(manifest.get("apiVersion", "")),
            str(manifest.get("kind", "")),
            str(metadata.get("name", "")),
            str(metadata.get("namespace") or ""),
        )

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Eviction:
    """Answer of the Eviction API for one pod."""

    outcome: Literal["evicted", "gone", "blocked", "throttled", "terminating"]
    budget: str = ""
    """`namespace/name` of the PodDisruptionBudget when blocked; several are joined by a comma."""
    retry_after: float = 1.0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str


class Fleet(Protocol):
    """One cluster. Raw objects are Kubernetes JSON as dicts; see `clusters.objects` for how they are read."""

    # ── who and what ──────────────────────────────────────────────────────────────────────────────────────────────
    def identify(self) -> Identity: ...

    def clock(self) -> datetime:
        """The API server's own time, by the Date of an answer that it gives now. To the second."""

    def review(self, permissions: Sequence[Permission]) -> builtins.list[Review]:
        """SelfSubjectAccessReview for each."""

    def equipment(self) -> Equipment: ...

    def installation(self) -> str | None:
        """Return the id of the installation that owns this cluster, None if it has no owner (law 12)."""

    def claim(self, installation: str, *, take_over: bool = False) -> str:
        """Write our mark if there is none (or take_over). Returns the mark that is there now."""

    def release(self, installation: str) -> None:
        """Remove the mark if it is ours."""

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────
    def list(self, kind: ObjectKind, *, fresh: bool = False, keep: Keep | None = None) -> Page:
        """All objects of a kind without managedFields and node images. `keep` decides while a page is read.

        `fresh=False` permits an answer from the API server's cache, a moment old; the resource version says how old.
        """

    def heads(self, kind: ObjectKind, *, keep: Keep | None = None) -> Page:
        """List names, UIDs and versions of all objects: as `list`, at a fraction of the size. Never from a cache."""

    def watch(
        self, kind: ObjectKind, resource_version: str, *, timeout: float = 300.0, keep: Keep | None = None
    ) -> Iterator[Event]:
        """Events after a version, with bookmarks, for `timeout` seconds; brief where `keep` is None. Raises Gone."""

    def node(self, name: str) -> dict[str, Any]:
        """One node, uncached. Raises NotFound."""

    def tuning(self, name: str) -> dict[str, Any]:
        """One NodeTuning, uncached. Raises NotFound."""

    def pod(self, namespace: str, name: str) -> dict[str, Any]:
        """One pod, uncached. Raises NotFound."""

    def pods_on(self, node: str) -> builtins.list[dict[str, Any]]: ...

    def pods(self) -> builtins.list[dict[str, Any]]:
        """All pods, for planning."""

    def labeled_pods(self, selector: str) -> builtins.list[dict[str, Any]]:
        """Pods of all namespaces that a label selector in Kubernetes' own text form selects."""

    def custom(self, api_version: str, plural: str) -> builtins.list[dict[str, Any]]:
        """All objects of a custom kind, of all namespaces, such as Volcano's podgroups.

        Raises NotFound where the cluster does not serve it, Forbidden.
        """

    def through(
        self,
        to: Backend,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        limit: int,
        timeout: float = 0,
    ) -> Reply:
        """GET of a pod or service through the API server's proxy; `limit` in bytes, `timeout` in seconds (0: as ever).

        Raises Forbidden, NotFound, Untrusted when the answer is longer, FleetUnavailable when the backend is not
        reached or does not end in time. What the backend itself says is no error here.
        """

    def budgets(self) -> builtins.list[dict[str, Any]]:
        """All PodDisruptionBudgets, with status.disruptionsAllowed."""

    # ── pods of our own ───────────────────────────────────────────────────────────────────────────────────────────
    def run_pod(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create it; where one of its name is there already, that one is the answer. Raises NotFound, Forbidden."""

    def pod_log(self, pod: PodRef, *, limit: int) -> bytes:
        """Return the output of its only container, cut off after `limit` bytes. Raises NotFound, Forbidden."""

    def remove_pod(self, pod: PodRef) -> None:
        """Delete it, if it is still the one of this UID. Nothing happens when it is gone. Raises Conflict."""

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────
    def cordon(self, node: str, uid: str, owner: str, *, instead_of: str = "") -> dict[str, Any]:
        """Unschedulable and the owner annotation in one patch, at the version that was read. Raises Replaced.

        A node that another party cordoned, however shortly before, is returned as it is: look whose cordon it is. Only
        one whose owner begins with `instead_of` changes its owner.
        """

    def uncordon(self, node: str, uid: str, owner: str) -> dict[str, Any]:
        """Remove cordon and annotations in one patch, if the annotation still names `owner`.

        A node marked by an operator (`setpoint.dev/keep-cordoned`) stays cordoned, without our annotations: from then
        on the cordon is the operator's. Raises Conflict, Replaced.
        """

    def keep_cordoned(self, node: str, uid: str, owner: str) -> dict[str, Any]:
        """Marks that a person wants this cordon of `owner` kept when the step is done (`setpoint.dev/keep-cordoned`).

        Raises Conflict where it is not `owner`'s cordon any more, Replaced.
        """

    def evict(self, pod: PodRef, *, grace_seconds: int | None = None) -> Eviction:
        """Eviction API with the pod's UID as precondition."""

    def decorate(
        self, node: str, uid: str, *, labels: Mapping[str, str | None], annotations: Mapping[str, str | None]
    ) -> dict[str, Any]:
        """Server-side apply of the complete set Setpoint wants on this node, field manager `setpoint`, never forced.

        What an earlier apply owned and this one lacks is removed by the API server. None values are left out. Raises
        Conflict naming the owner.
        """

    def relabel(
        self, node: str, uid: str, change: Callable[[Mapping[str, str]], Mapping[str, str | None]]
    ) -> dict[str, Any]:
        """Write what `change` answers to the node's labels, None to take one away, at the version that was read.

        Called again where another party was faster. Where it answers nothing, nothing is written. What it writes
        belongs to no one's apply, so a later `decorate` leaves it. Raises Conflict, Replaced.
        """

    def taint(
        self, node: str, uid: str, *, add: Iterable[Taint], remove: Iterable[Taint], where: str = ""
    ) -> dict[str, Any]:
        """Read, change, write with the resourceVersion; retries a few conflicts. Raises Conflict, Replaced.

        With `where`, a node that has no taint of this key is left as it is.
        """

    # ── policy objects ────────────────────────────────────────────────────────────────────────────────────────────
    def policy(self, ref: ObjectRef) -> dict[str, Any]:
        """One object, uncached, with its managedFields. Raises NotFound, for its kind, too."""

    def apply_policy(self, manifest: Mapping[str, Any], *, dry_run: bool = False, force_at: str = "") -> dict[str, Any]:
        """Server-side apply of all that Setpoint wants of this object, field manager `setpoint`.

        Answers with the object as it is then, or would be. What an earlier apply owned and this one lacks is removed
        by the API server. Never forced without `force_at`: the resourceVersion that was looked at. Only while the
        object is still at it, what others hold of the manifest is taken from them.

        Raises Conflict naming field and owner, or for another version; NotFound where the namespace or kind is
        missing; FleetRefused for what the API server's validation refuses.
        """

    def remove_policy(self, ref: ObjectRef, uid: str, version: str = "") -> None:
        """Delete it, if it is still the object of this UID, and at this version where one is given.

        Nothing happens when it is gone. Raises Conflict.
        """

    # ── tunings ───────────────────────────────────────────────────────────────────────────────────────────────────
    def observe(self, node: str, uid: str, spec: Spec) -> dict[str, Any]:
        """Create the NodeTuning in mode observe, owned by the Node; returns the one there if it exists."""

    def tune(self, node: str, spec: Spec, *, version: str = "") -> dict[str, Any]:
        """Replace `spec` of the NodeTuning by merge patch; returns it with its new generation.

        With `version`, only while the object is still at this resourceVersion. Raises NotFound, Conflict.
        """

    def close(self) -> None:
        """Close pooled connections."""
