"""The API server's verbs over the store, for both doors: preconditions, admission, field ownership, faults, audit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simfleet.apiserver import admission, ownership, selectors, watching
from simfleet.apiserver.audit import AuditEntry
from simfleet.apiserver.callers import Caller
from simfleet.apiserver.faults import Faults, Outage
from simfleet.apiserver.store import ApiError, Change, Raw, Stored
from simfleet.apiserver.strategic import patched
from simfleet.clock import stamp

if TYPE_CHECKING:
    from simfleet.core import SimCluster


@dataclass(frozen=True, slots=True)
class ListPage:
    items: list[Stored]
    rv: int
    next: str = ""
    remaining: int = 0


class Api:
    """Every method raises ApiError, or Outage where faults say so. Answers are stored versions: do not change them."""

    SNAPSHOTS = 64

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster, self._store = cluster, cluster.store
        self._snapshots: dict[str, tuple[list[Stored], int]] = {}
        self._tokens = itertools.count(1)
        self._serials = itertools.count(0x2B0)
        self.forbidden: set[tuple[str, str]] = set()
        """(verb, resource or resource/subresource) that RBAC does not give to Setpoint."""

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────
    def get(self, caller: Caller, plural: str, name: str, namespace: str = "") -> Stored:
        with self._call(caller, "get", plural, name=name, namespace=namespace):
            return self._store.get(plural, name, namespace)

    def proxied(self, caller: Caller, plural: str, name: str, namespace: str) -> Stored:
        """The pod or service that a caller may speak to; `simfleet.apiserver.proxies` does the speaking."""
        with self._call(caller, "get", plural, subresource="proxy", name=name, namespace=namespace):
            return self._store.get(plural, name, namespace)

    def list(
        self,
        caller: Caller,
        plural: str,
        namespace: str | None = None,
        *,
        fields: str = "",
        labels: str = "",
        limit: int = 0,
        token: str = "",
    ) -> ListPage:
        """One page. Later pages come from the first one's snapshot; a forgotten snapshot is 410."""
        with self._call(caller, "list", plural, namespace=namespace or ""):
            self._cluster.settle()
            if token:
                key, _, offset = token.partition(".")
                if key not in self._snapshots:
                    raise ApiError(410, "Expired", "The provided continue parameter is too old")
                (items, rv), start = self._snapshots[key], int(offset)
            else:
                wanted = selectors.compile_filter(fields, labels)
                node = selectors.only_node(fields) if plural == "pods" else ""
                source = self._store.on_node(node) if node else self._store.all(plural, namespace)
                items = [s for s in source if namespace in (None, s.key[0]) and wanted(s.raw)]
                rv, start, key = self._store.rv, 0, ""
            end = start + limit if limit else len(items)
            if end >= len(items):
                return ListPage(items[start:], rv)
            if not key:
                key = str(next(self._tokens))
                self._snapshots[key] = (items, rv)
                while len(self._snapshots) > self.SNAPSHOTS:
                    del self._snapshots[next(iter(self._snapshots))]
            return ListPage(items[start:end], rv, f"{key}.{end}", len(items) - end)

    def forget_snapshots(self) -> None:
        """Continue tokens given out so far answer 410 from now on."""
        self._snapshots.clear()

    def review(self, caller: Caller, verb: str, resource: str, plural: str = "selfsubjectaccessreviews") -> bool:
        """SelfSubjectAccessReview, which everyone may ask, and the same about others."""
        with self._call(caller, "create", plural):
            if "*" in (verb, resource):
                return caller.inside or not self.forbidden  # the right to all verbs includes each
            return self.allowed(caller, verb, resource)

    def watch(
        self,
        caller: Caller,
        plural: str,
        rv: int,
        namespace: str | None = None,
        *,
        timeout: float,
        bookmarks: bool = True,
        fields: str = "",
        labels: str = "",
    ) -> Iterator[Change | int]:
        """Changes after `rv`, and as bookmarks the bare resource version reached. Iterating raises ApiError 410.

        Ends after `timeout` seconds of the wall's time, when faults cut it, and in a cluster that is not live as
        soon as it has told everything. An object that leaves the selection is DELETED, one that enters it ADDED.
        """
        with self._call(caller, "watch", plural, namespace=namespace or ""):
            wanted = selectors.compile_filter(fields, labels)
        return watching.follow(self._cluster, plural, rv, namespace, wanted, timeout=timeout, bookmarks=bookmarks)

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────
    def create(
        self,
        caller: Caller,
        plural: str,
        raw: Raw,
        namespace: str = "",
        *,
        manager: str = "",
        dry_run: bool = False,
    ) -> Stored:
        name = str((raw.get("metadata") or {}).get("name", ""))
        with self._call(caller, "create", plural, name=name, namespace=namespace, body=raw, dry_run=dry_run):
            raw = admission.prepared(self._store, caller, plural, raw, namespace, suffix=f"{next(self._serials):05x}")
            admission.check(self._store, caller, plural, None, raw)
            of = self._store.resources[plural]
            new = ownership.claimed(raw, None, manager or caller.manager, of, self._now())
            return self._store.create(plural, new, is_dry=dry_run)

    def replace(
        self,
        caller: Caller,
        plural: str,
        raw: Raw,
        *,
        subresource: str = "",
        manager: str = "",
        dry_run: bool = False,
    ) -> Stored:
        metadata = raw["metadata"]
        where = {"name": metadata["name"], "namespace": metadata.get("namespace", "")}
        with self._call(caller, "update", plural, subresource=subresource, body=raw, dry_run=dry_run, **where):
            new = admission.defaulted(plural, _without_type(raw))
            return self._update(caller, plural, new, subresource, manager or caller.manager, dry_run=dry_run)

    def patch(
        self,
        caller: Caller,
        plural: str,
        name: str,
        patch: Mapping[str, Any],
        namespace: str = "",
        *,
        subresource: str = "",
        manager: str = "",
        is_strategic: bool = False,
        dry_run: bool = False,
    ) -> Stored:
        """Merge patch, or a strategic one. Preconditions are metadata.uid and metadata.resourceVersion inside it."""
        where = {"name": name, "namespace": namespace}
        with self._call(caller, "patch", plural, subresource=subresource, body=patch, dry_run=dry_run, **where):
            if is_strategic and self._store.resources[plural].custom:
                message = "the body of the request was in an unknown format - accepted media types include: "
                raise ApiError(
                    415,
                    "UnsupportedMediaType",
                    f"{message}application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                )
            old = self._store.get(plural, name, namespace).raw
            uid = (patch.get("metadata") or {}).get("uid")
            if uid and uid != old["metadata"]["uid"] and not self._store.resources[plural].custom:
                # A merged patch of a built-in object fails validation before the precondition is looked at.
                raise ApiError(
                    422,
                    "Invalid",
                    f'{self._store.resources[plural].kind} "{name}" is invalid: metadata.uid: Invalid value: "{uid}": '
                    "field is immutable",
                )
            new = admission.defaulted(plural, patched(old, patch, is_strategic=is_strategic))
            return self._update(caller, plural, new, subresource, manager or caller.manager, dry_run=dry_run)

    def apply(
        self,
        caller: Caller,
        plural: str,
        name: str,
        wanted: Raw,
        namespace: str = "",
        *,
        manager: str,
        force: bool = False,
        dry_run: bool = False,
    ) -> Stored:
        """Server-side apply; see `ownership` for what it does not do."""
        with self._call(caller, "patch", plural, name=name, namespace=namespace, body=wanted, dry_run=dry_run):
            of, at = self._store.resources[plural], self._now()
            old = self._store.find(plural, name, namespace)
            if old is None:
                if uid := (wanted.get("metadata") or {}).get("uid"):
                    raise ApiError(
                        409,
                        "Conflict",
                        f'Operation cannot be fulfilled on {self._store.resources[plural].qualified} "{name}": uid '
                        f"mismatch: the provided object specified uid {uid}, and no existing object was found",
                    )
                named = wanted | {"metadata": {**(wanted.get("metadata") or {}), "name": name}}
                raw = admission.prepared(self._store, caller, plural, named, namespace, suffix="")
                admission.check(self._store, caller, plural, None, raw)
                # Owned is what was applied: defaults and what admission adds are no one's.
                encoded = admission.encoded(named) if plural == "secrets" else named
                owners = ownership.applied({}, encoded, manager, of, at, force=True)["metadata"].get(
                    "managedFields", []
                )
                new = raw | {"metadata": raw["metadata"] | {"managedFields": owners}}
                return self._store.create(plural, new, is_dry=dry_run)
            wanted = admission.encoded(wanted) if plural == "secrets" else wanted
            new = ownership.applied(old.raw, wanted, manager, of, at, force=force)
            admission.check(self._store, caller, plural, old, new)
            return self._store.update(plural, new, is_dry=dry_run)

    def delete(
        self,
        caller: Caller,
        plural: str,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        version: str = "",
        grace: int | None = None,
        policy: str = "",
        dry_run: bool = False,
    ) -> Stored:
        """`uid` and `version` are preconditions, `policy` is the propagation's."""
        with self._call(caller, "delete", plural, name=name, namespace=namespace, dry_run=dry_run):
            stored = self._store.check(plural, name, namespace, uid=uid, version=version)
            return stored if dry_run else self._cluster.garbage.delete(plural, stored, policy=policy, grace=grace)

    def evict(self, caller: Caller, name: str, namespace: str, body: Raw) -> None:
        """POST pods/eviction. Raises ApiError 404, 409, 429 (a budget), 500 (several budgets)."""
        with self._call(caller, "create", "pods", subresource="eviction", name=name, namespace=namespace, body=body):
            options = body.get("deleteOptions") or {}
            self._cluster.pods.evict(
                self._store.get("pods", name, namespace),
                uid=(options.get("preconditions") or {}).get("uid", ""),
                grace=options.get("gracePeriodSeconds"),
            )

    def log(self, caller: Caller, name: str, namespace: str) -> bytes:
        """Return what the pod's program printed so far: all of it once it has ended. Raises ApiError 404."""
        with self._call(caller, "get", "pods", subresource="log", name=name, namespace=namespace):
            pod = self._store.get("pods", name, namespace).raw
            printed = self._cluster.programs.of(pod["spec"]["containers"][0]["image"]).prints
            phase = (pod.get("status") or {}).get("phase")
            return printed(pod).encode() if printed and phase in ("Succeeded", "Failed") else b""

    def allowed(self, caller: Caller, verb: str, resource: str) -> bool:
        return caller.inside or (verb, resource) not in self.forbidden

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────
    def _update(
        self, caller: Caller, plural: str, new: Raw, subresource: str, manager: str, *, dry_run: bool = False
    ) -> Stored:
        metadata = new["metadata"]
        old = self._store.get(plural, metadata["name"], metadata.get("namespace", ""))
        admission.check(self._store, caller, plural, old, new, subresource=subresource)
        if subresource == "status":
            return self._store.update(plural, new, status_only=True, is_dry=dry_run)
        of = self._store.resources[plural]
        return self._store.update(plural, ownership.claimed(new, old.raw, manager, of, self._now()), is_dry=dry_run)

    def _now(self) -> str:
        return stamp(self._cluster.clock.now())

    @contextmanager
    def _call(
        self,
        caller: Caller,
        verb: str,
        plural: str,
        *,
        subresource: str = "",
        name: str = "",
        namespace: str = "",
        body: Mapping[str, Any] | None = None,
        dry_run: bool = False,
    ) -> Iterator[None]:
        """Hold the cluster's lock, let faults and RBAC speak, and write the audit log, however the call ends."""
        with self._cluster.lock:
            faults, rule, code = self._cluster.faults, None, 201 if verb == "create" else 200
            if not caller.inside:
                self._cluster.audit.count(verb, plural, subresource)
            try:
                if not caller.inside or faults.hit_agents:
                    if faults.outage:
                        code = 0
                        raise Outage("simulated outage")
                    if rule := faults.pick(verb, plural, subresource, name):
                        if rule.outcome == "vanish" and rule.outage_seconds:
                            self._cluster.after(rule.outage_seconds, faults.recover)
                        faults.before(rule)
                qualified = f"{plural}/{subresource}" if subresource else plural
                if not self.allowed(caller, verb, qualified):
                    raise ApiError(
                        403, "Forbidden", f'User "{caller.user}" cannot {verb} resource "{qualified}": simulated RBAC'
                    )
                yield
                if rule:
                    Faults.after(rule)
            except ApiError as error:
                code = error.code
                raise
            except Outage:
                code = code if rule and rule.outcome == "lose" else 0
                raise
            finally:
                if code and not dry_run:  # what never reached the server is not in its log
                    now, kept = self._cluster.clock.now(), None if caller.node else body
                    of = self._store.resources.get(plural)
                    entry = AuditEntry(verb, plural, subresource, namespace, name, caller.user, now, code, kept, of)
                    self._cluster.audit.record(entry)


def _without_type(raw: Raw) -> Raw:
    return {k: v for k, v in raw.items() if k not in ("kind", "apiVersion")}
