"""Differences in the cluster: each object of a rendered chart compared with the live one, by dry run.

Nothing is written. The API server itself answers what an object would be afterwards, defaults and admission included;
how it is asked is `components.helm.patches`. Secrets and generated fields are covered before texts are compared.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import yaml

from clusters import objects
from clusters.fleet import Conflict, FleetRefused, FleetUnavailable, Forbidden, NotFound, Untrusted
from clusters.kube import paging
from clusters.kube.apiserver import APPLY, MERGE, ApiServer, Call
from clusters.kube.discovery import Resource, ServedApis
from components.helm import patches
from components.helm.rendering import Manifest, with_masks
from components.plans import field_managers
from components.plans.prepared import BLOCK, WARN, ObjectDifference, PlanNote
from components.values.secrets import spellings, without

PARALLEL = 8
MAX_DIFF = 64 * 1024
"""Characters of one object's difference; a plan's page shows hundreds."""
HIDDEN, HIDDEN_NEW, GENERATED = "(hidden)", "(hidden, changed)", "(regenerated)"
_DRY = {"dryRun": "All", "fieldManager": "helm"}
_NOISE = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink")
_NOISE_NOTES = ("kubectl.kubernetes.io/last-applied-configuration", "deprecated.daemonset.template.generation")
"""Annotations that follow from everything else: the second is counted up with each change of a DaemonSet's pods."""
_BUILT_IN = frozenset(
    (
        *("", "apps", "batch", "autoscaling", "policy", "extensions", "rbac.authorization.k8s.io", "storage.k8s.io"),
        *("networking.k8s.io", "scheduling.k8s.io", "node.k8s.io", "admissionregistration.k8s.io", "events.k8s.io"),
        *("apiregistration.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "flowcontrol.apiserver.k8s.io"),
        *("certificates.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "resource.k8s.io"),
    )
)
"""Groups that helm knows the types of; all others, and CRDs, are custom to it."""
_WEIGHTS = {
    "CustomResourceDefinition": 0,
    "Namespace": 1,
    "PersistentVolumeClaim": 2,
    "PersistentVolume": 2,
    "ValidatingWebhookConfiguration": 3,
    "MutatingWebhookConfiguration": 3,
    "DaemonSet": 4,
}
_UNDECLARED = "field not declared in schema"
"""An API server answers 500 with it, where an apply has what an older definition lacks."""
_WANT = (
    " cannot ",
    "attempting to grant RBAC permissions not currently held",
    "must have cluster-admin privileges to use the aggregationRule",
)
"""An API server's words where an account lacks a right, or the right to give it (pkg/registry/rbac)."""
_DumperBase: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass(frozen=True, slots=True)
class Compared:
    """One object: as it is, and as it would be."""

    wanted: Manifest
    """For a deletion: as the release's old manifest has it."""
    change: str
    """created, changed, deleted, unvalidated, or same"""
    namespace: str
    live: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    note: PlanNote | None = None


@dataclass(frozen=True)
class Comparison:
    """Comparison of one release. `old` is what its newest revision in force recorded; nothing for a first one."""

    server: ApiServer
    served: ServedApis
    release: str
    namespace: str
    is_server_side: bool = False
    hidden: tuple[str, ...] = ()
    """Secrets, which no text may hold."""
    is_whole: bool = False
    """Custom resources, too, are compared in full. helm v3 does not read their live state, so a manual change is
    reverted only by a patch of the whole object (`components.release.applying`)."""
    spares_definitions: bool = False
    """But not CRDs: an operator may have brought newer ones, and a step back can lose what is stored."""
    is_tried_as_far_as_allowed: bool = False
    """What this identity may not even try is told as such: helm is another, which is asked for its own rights."""

    def compare(self, wanted: Sequence[Manifest], old: Sequence[Manifest] = ()) -> list[Compared]:
        """Compare in the order of the manifest; deletions come last. Raises FleetUnavailable, Forbidden, Untrusted."""
        before = {self.identity(manifest): manifest for manifest in old}
        kept = {self.identity(manifest) for manifest in wanted}
        _ = self._namespaces  # read once, before there are threads
        roles = frozenset(
            (manifest.kind, manifest.name) for manifest in wanted if manifest.kind in ("Role", "ClusterRole")
        )
        with ThreadPoolExecutor(PARALLEL, thread_name_prefix="compare") as pool:
            changed = list(
                pool.map(lambda manifest: self._allowed(manifest, before.get(self.identity(manifest)), roles), wanted)
            )
            gone = [manifest for key, manifest in before.items() if key not in kept and not manifest.is_kept]
            deleted = list(pool.map(self._unwanted, gone))
        return changed + [compared for compared in deleted if compared.live is not None]

    def absent(self, definitions: Sequence[Manifest]) -> list[Compared]:
        """List the chart's `crds/` that are missing, or being deleted: Setpoint creates them as they are written.

        Those that exist it leaves as they are.
        """
        out = []
        for manifest in definitions:
            resource = self.served.find(manifest.api_version, manifest.kind)
            if resource is None:
                continue
            live = self._live(resource, manifest)
            if live is None or objects.meta(live).get("deletionTimestamp"):
                out.append(Compared(manifest, "created", self.place(manifest), None, manifest.raw))
        return out

    def identity(self, manifest: Manifest) -> tuple[str, str, str, str]:
        """Group, kind, namespace, name: an object under another version of its API is the same."""
        return manifest.api_version.rpartition("/")[0], manifest.kind, self.place(manifest), manifest.name

    def place(self, manifest: Manifest) -> str:
        resource = self.served.find(manifest.api_version, manifest.kind)
        if resource and not resource.is_namespaced:
            return ""
        return manifest.namespace or self.namespace

    def _allowed(self, manifest: Manifest, old: Manifest | None, roles: Set[tuple[str, str]]) -> Compared:
        try:
            return self._wanted(manifest, old, roles)
        except Forbidden as error:
            if not (self.is_tried_as_far_as_allowed and is_for_want_of_a_right(str(error))):
                raise
            title = (
                f"What becomes of {manifest.kind} {manifest.name} could not be tried: the identity that plans may not"
            )
            note = PlanNote(WARN, "not-tried", title, str(error)[:500])
            return Compared(manifest, "unvalidated", self.place(manifest), None, manifest.raw, note)

    def _wanted(self, manifest: Manifest, old: Manifest | None, roles: Set[tuple[str, str]]) -> Compared:
        resource, place = self.served.find(manifest.api_version, manifest.kind), self.place(manifest)
        if resource is None or (place and place not in self._namespaces):
            return Compared(manifest, "unvalidated", place, result=manifest.raw)
        live = self._live(resource, manifest)
        new = self._complete(manifest, place)
        note: PlanNote | None
        lost: list[PlanNote] = []
        try:
            if live is None:
                result: Mapping[str, Any] = self._created(resource, new, place)
            else:
                result = self._changed(resource, old, new, live, lost)
        except (Forbidden, Untrusted):
            raise
        except FleetUnavailable as error:
            if _UNDECLARED not in str(error):
                raise
            named = f"{manifest.kind} {manifest.name}"
            title = f"{named} has fields that its definition in the cluster lacks: it could not be tried"
            detail = f"helm v4 is refused it unless a hook of the chart renews the definition before. {error}"
            return Compared(
                manifest, "unvalidated", place, None, manifest.raw, PlanNote(WARN, "not-tried", title, detail[:500])
            )
        except FleetRefused as error:
            if isinstance(error, NotFound) and live is None and _role_of(manifest) in roles:
                # Its role comes with it, and the API server looks for that before it judges the binding.
                return Compared(manifest, "unvalidated", place, result=manifest.raw)
            title = f"{manifest.kind} {manifest.name} would be refused"
            note = PlanNote(BLOCK, "refused", title, str(error)[:500])
            return Compared(manifest, "changed" if live else "created", place, live, new, note)
        if live is None:
            return Compared(manifest, "created", place, None, result, self._undeclared(resource, new, result))
        note = (None if old else self._foreign(manifest, live)) or next(iter(lost), None)
        is_same = cleaned(live) == cleaned(result)
        return Compared(manifest, "same" if is_same else "changed", place, live, result, note)

    def _unwanted(self, manifest: Manifest) -> Compared:
        resource = self.served.find(manifest.api_version, manifest.kind)
        return Compared(manifest, "deleted", self.place(manifest), self._live(resource, manifest) if resource else None)

    def _live(self, resource: Resource, manifest: Manifest) -> dict[str, Any] | None:
        try:
            call = Call("get", resource.plural, manifest.name)
            return self.server.get(call, resource.path(self.place(manifest), manifest.name), manifest.kind)
        except NotFound:
            return None

    def _complete(self, manifest: Manifest, place: str) -> dict[str, Any]:
        raw = patches.marked(manifest.raw, self.release, self.namespace)
        return {**raw, "metadata": {**raw["metadata"], "namespace": place}} if place else raw

    def _created(self, resource: Resource, new: Mapping[str, Any], place: str) -> dict[str, Any]:
        call = Call("create", resource.plural, str(new["metadata"].get("name")))
        return self.server.ask(call, "POST", resource.path(place), query=_DRY, body=new).object()

    def _undeclared(self, resource: Resource, new: Mapping[str, Any], made: Mapping[str, Any]) -> PlanNote | None:
        """Warn of fields that an older definition lacks: creating leaves them out without a word; helm v4 applies."""
        if not self.is_server_side or resource.api_version.rpartition("/")[0] in _BUILT_IN:
            return None
        fields = field_managers.within(cleaned(new), cleaned(made))
        gone = [field_managers.text(path) for path, want, have in fields if have is field_managers.ABSENT and want]
        if not gone:
            return None
        kind, name = new["kind"], new["metadata"]["name"]
        title = f"{kind} {name} has fields that its definition in the cluster lacks: {', '.join(gone[:6])}"
        detail = "helm v4 is refused it unless a hook of the chart renews the definition before."
        return PlanNote(WARN, "undeclared", title[:300], detail)

    def _changed(
        self,
        resource: Resource,
        old: Manifest | None,
        new: Mapping[str, Any],
        live: Mapping[str, Any],
        lost: list[PlanNote],
    ) -> Mapping[str, Any]:
        """Return the object as it would be; add to `lost` the fields that are taken over.

        Raises FleetError.
        """
        name, place = str(new["metadata"]["name"]), str(new["metadata"].get("namespace") or "")
        call, path = Call("patch", resource.plural, name), resource.path(place, name)
        if self.is_server_side:
            how: dict[str, Any] = {"body": new, "content_type": APPLY}
            try:
                return self.server.ask(call, "PATCH", path, query=_DRY, **how).object()
            except Conflict as error:
                title = f"Another party set fields of {new['kind']} {name}, and they are taken over"
                lost.append(PlanNote(WARN, "conflict", title, str(error)[:500]))
            return self.server.ask(call, "PATCH", path, query=_DRY | {"force": "true"}, **how).object()
        group = resource.api_version.rpartition("/")[0]
        before = self._complete(old, place) if old else None
        is_custom = group not in _BUILT_IN
        before = None if is_custom and self._asks_whole(group) else before
        patch, content_type = patches.client_side(before, new, is_custom=is_custom, live=live)
        if not patch:
            return live
        return self.server.ask(call, "PATCH", path, query=_DRY, body=patch, content_type=content_type).object()

    def _asks_whole(self, group: str) -> bool:
        return self.is_whole and not (self.spares_definitions and group == "apiextensions.k8s.io")

    def put_back(self, manifests: Sequence[Manifest]) -> list[str]:
        """Custom resources that are not as these say are made so, as helm; which they were. Raises FleetError."""
        custom = [manifest for manifest in manifests if manifest.api_version.rpartition("/")[0] not in _BUILT_IN]
        out = []
        for compared in self.compare(custom, custom):
            resource = self.served.find(compared.wanted.api_version, compared.wanted.kind)
            if compared.change != "changed" or resource is None or compared.note is not None:
                continue
            call, path = (
                Call("patch", resource.plural, compared.wanted.name),
                resource.path(compared.namespace, compared.wanted.name),
            )
            body = self._complete(compared.wanted, compared.namespace)
            self.server.ask(call, "PATCH", path, query={"fieldManager": "helm"}, body=body, content_type=MERGE)
            out.append(f"{compared.wanted.kind} {compared.wanted.name}")
        return out

    def _foreign(self, manifest: Manifest, live: Mapping[str, Any]) -> PlanNote | None:
        if patches.is_owned(live, self.release, self.namespace):
            return None
        marks = (live.get("metadata") or {}).get("annotations") or {}
        whose = marks.get(patches.RELEASE_NAME)
        detail = (
            f"It belongs to the release {marks.get(patches.RELEASE_NAMESPACE)}/{whose}."
            if whose
            else (
                "No release made it. Remove it, or give it to this one with the label "
                f"{patches.MANAGED_BY}=Helm and the annotations {patches.RELEASE_NAME}={self.release} and "
                f"{patches.RELEASE_NAMESPACE}={self.namespace}."
            )
        )
        return PlanNote(
            BLOCK, "not-ours", f"{manifest.kind} {manifest.name} is there already, and helm would not touch it", detail
        )

    @cached_property
    def _namespaces(self) -> frozenset[str]:
        page = paging.listed(self.server, Call("list", "namespaces"), "/api/v1/namespaces", limit=500)
        return frozenset(str((item.get("metadata") or {}).get("name")) for item in page.items)

    # ── For people ────────────────────────────────────────────────────────────────────────────────────────────────
    def shown(self, compared: Iterable[Compared]) -> list[ObjectDifference]:
        """List the changes, each with a readable difference, in the order in which a person should read them."""
        out = [self._shown(compared_object) for compared_object in compared if compared_object.change != "same"]
        return sorted(
            out, key=lambda difference: (difference.weight, difference.kind, difference.namespace, difference.name)
        )

    def _shown(self, compared: Compared) -> ObjectDifference:
        before, after = cleaned(compared.live), {} if compared.change == "deleted" else cleaned(compared.result)
        if compared.wanted.kind == "Secret":
            before, after = covered(before, after)
        after = with_masks(after, compared.wanted.generated, GENERATED)
        diff = unified(before, after, self.hidden)
        weight = _WEIGHTS.get(compared.wanted.kind, 10) * 10 + {"deleted": 0, "changed": 1}.get(compared.change, 2)
        name, kind, version = compared.wanted.name, compared.wanted.kind, compared.wanted.api_version
        return ObjectDifference(compared.change, version, kind, compared.namespace, name, diff, weight)


def unified(before: Mapping[str, Any], after: Mapping[str, Any], hidden: Iterable[str] = ()) -> str:
    """Return a unified diff of two objects as YAML, three lines of context; cut beyond what a page can show."""
    written = spellings(hidden)
    # Before YAML quotes and wraps them, which would write them in yet another way.
    left, right = (_text(without(side, written, HIDDEN)).splitlines() if side else [] for side in (before, after))
    text = "\n".join(list(difflib.unified_diff(left, right, lineterm="", n=3))[2:])
    return text if len(text) <= MAX_DIFF else text[:MAX_DIFF].rpartition("\n")[0] + "\n… and more"


def is_for_want_of_a_right(message: str) -> bool:
    """Return whether a refusal has the words of the authorizer, or of the check that guards roles.

    Admission uses others.
    """
    return any(words in message for words in _WANT)


class _DiffDumper(_DumperBase):  # type: ignore[misc]  # its base is chosen when the module loads
    """Long texts as blocks, so that one changed line of a ConfigMap is one changed line of the difference."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _written(dumper: Any, text: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_DiffDumper.add_representer(str, _written)


def _text(raw: Mapping[str, Any]) -> str:
    return str(
        yaml.dump(raw, Dumper=_DiffDumper, sort_keys=True, allow_unicode=True, width=160, default_flow_style=False)
    )


def cleaned(raw: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy without the fields that the API server keeps for itself."""
    copy: dict[str, Any] = json.loads(json.dumps(raw or {}))
    copy.pop("status", None)
    meta = copy.get("metadata")
    if isinstance(meta, dict):
        for name in _NOISE:
            meta.pop(name, None)
        if isinstance(notes := meta.get("annotations"), dict):
            for name in _NOISE_NOTES:
                notes.pop(name, None)
    return copy


def covered(before: dict[str, Any], after: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A Secret's keys without their values, and still with the fact that one changes."""
    for part in ("data", "stringData"):
        old: dict[str, Any] = before.get(part) or {}
        new: dict[str, Any] = after.get(part) or {}
        if new:
            after[part] = {k: HIDDEN if k not in old or old[k] == v else HIDDEN_NEW for k, v in new.items()}
        if old:
            before[part] = dict.fromkeys(old, HIDDEN)
    return before, after


def _role_of(binding: Manifest) -> tuple[str, str]:
    """Kind and name of the role that a binding gives; empty for what is no binding."""
    named = binding.raw.get("roleRef")
    return (str(named.get("kind")), str(named.get("name"))) if isinstance(named, Mapping) else ("", "")
