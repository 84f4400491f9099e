"""What a plan's reader must know of a component's objects, in words: what is lost, what restarts, what may block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clusters.apiserver import ApiServer, Call
from clusters.discovery import Served
from clusters.fleet import FleetRefused
from components.difference import Compared
from components.prepared import BLOCK, INFO, WARN, Note
from components.rendering import HOOK, Manifest

_WEBHOOKS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
_SHOWN = 6


def notes(server: ApiServer, served: Served, compared: Sequence[Compared], crds: Sequence[Manifest]) -> list[Note]:
    """The worst first. Raises FleetUnavailable."""
    found = [one.note for one in compared if one.note]
    found += _removed_crds(server, served, compared)
    found += _removed(compared)
    found += _restarts(compared)
    found += _webhooks(compared)
    found += _changed_crds(server, served, compared, crds)
    found += _generated(compared)
    return sorted(found, key=lambda note: (BLOCK, WARN, INFO).index(note.severity))


def hooks(found: Sequence[Manifest], *, is_upgrade: bool) -> list[Note]:
    """What helm runs besides, and waits for, before and after."""
    moments = ("pre-upgrade", "post-upgrade") if is_upgrade else ("pre-install", "post-install")
    shown = []
    for one in found:
        told = [moment.strip() for moment in str(one.annotations.get(HOOK)).split(",")]
        if moment := next((moment for moment in told if moment in moments), ""):
            shown.append(f"{one.kind} {one.name} ({moment})")
    if not shown:
        return []
    title = f"helm runs hooks of the chart: {', '.join(shown[:_SHOWN])}{' and more' if len(shown) > _SHOWN else ''}"
    return [Note(INFO, "hooks", title, "They are no part of the release: what they make stays where they leave it.")]


def not_created(absent: Sequence[Compared]) -> list[Note]:
    """Definitions of `crds/` that an upgrade would need and helm does not create."""
    if not absent:
        return []
    names = ", ".join(one.wanted.name for one in absent[:_SHOWN]) + (" and more" if len(absent) > _SHOWN else "")
    title = (
        f"{len(absent)} definitions of the chart's crds/ are not there, and helm creates them with a first install only"
    )
    return [Note(WARN, "crd-absent", title, f"Apply them by hand if their kinds are needed: {names}.")]


def _removed_crds(server: ApiServer, served: Served, compared: Sequence[Compared]) -> Iterator[Note]:
    for one in compared:
        if one.change != "deleted" or one.wanted.kind != "CustomResourceDefinition" or one.live is None:
            continue
        spec = one.live.get("spec") or {}
        kind = str((spec.get("names") or {}).get("kind"))
        count = _count(server, served, str(spec.get("group")), kind)
        if count:
            title = f"The kind {kind} is removed, and with it all its objects: {count}"
            yield Note(
                BLOCK, "crd-removal", title, f"{one.wanted.name} is deleted; Kubernetes deletes its objects too."
            )
        else:
            yield Note(WARN, "crd-removal", f"The kind {kind} is removed; it has no objects")


def _count(server: ApiServer, served: Served, group: str, kind: str) -> str:
    """How many objects there are, in words; empty: none."""
    for resource in served.resources.values():
        if resource.kind == kind and resource.api_version.rpartition("/")[0] == group:
            try:
                page = server.ask(Call("list", resource.plural), "GET", resource.path(), query={"limit": "1"}).object()
            except FleetRefused as error:
                return f"how many cannot be read ({error})"
            first = len(page.get("items") or ())
            return str(first + int((page.get("metadata") or {}).get("remainingItemCount") or 0)) if first else ""
    return ""


def _removed(compared: Sequence[Compared]) -> Iterator[Note]:
    for kind, code, words in (
        ("Namespace", "namespace-removal", "is deleted with everything in it"),
        (
            "PersistentVolumeClaim",
            "volume-removal",
            "is deleted; what its volume's reclaim policy says happens to data",
        ),
        ("DaemonSet", "daemonset-removal", "is deleted"),
    ):
        for one in compared:
            if one.change == "deleted" and one.wanted.kind == kind:
                nodes = f" on {_nodes(one.live)}" if kind == "DaemonSet" else ""
                yield Note(WARN, code, f"{kind} {_name(one)} {words}{nodes}")


def _restarts(compared: Sequence[Compared]) -> Iterator[Note]:
    for one in compared:
        if one.change != "changed" or one.wanted.kind not in ("DaemonSet", "Deployment", "StatefulSet"):
            continue
        before, after = (_template(side) for side in (one.live, one.result))
        if before == after:
            continue
        spec = (one.result or {}).get("spec") or {}
        if one.wanted.kind != "DaemonSet":
            yield Note(INFO, "restart", f"{one.wanted.kind} {_name(one)} restarts: {spec.get('replicas', 1)} pods")
        elif (spec.get("updateStrategy") or {}).get("type") == "OnDelete":
            title = f"DaemonSet {_name(one)} changes on {_nodes(one.live)}, and its pods do not restart by themselves"
            yield Note(WARN, "restart", title, "Its update strategy is OnDelete.")
        else:
            yield Note(WARN, "restart", f"DaemonSet {_name(one)} restarts on {_nodes(one.live)}")


def _webhooks(compared: Sequence[Compared]) -> Iterator[Note]:
    for one in compared:
        if one.wanted.kind not in _WEBHOOKS or one.change not in ("created", "changed", "deleted"):
            continue
        hooks = [hook for hook in (one.wanted.raw.get("webhooks") or []) if isinstance(hook, Mapping)]
        strict = [str(hook.get("name")) for hook in hooks if hook.get("failurePolicy", "Fail") == "Fail"]
        if one.change == "deleted":
            yield Note(
                WARN, "webhook", f"Webhooks of {one.wanted.name} are removed: what they checked is checked no more"
            )
        elif strict:
            title = f"Webhooks of {one.wanted.name} are {one.change}, and refuse what they cannot check"
            detail = f"While their server is away, requests fail: {', '.join(strict[:_SHOWN])}."
            yield Note(WARN, "webhook", title, detail)


def _changed_crds(
    server: ApiServer, served: Served, compared: Sequence[Compared], crds: Sequence[Manifest]
) -> Iterator[Note]:
    for one in compared:
        if one.wanted.kind == "CustomResourceDefinition" and one.change == "changed":
            yield Note(WARN, "crd-change", f"The definition of {one.wanted.name} changes")
    stale = [crd.name for crd in crds if _differs(server, served, crd)]
    if stale:
        shown = ", ".join(stale[:_SHOWN]) + (f" and {len(stale) - _SHOWN} more" if len(stale) > _SHOWN else "")
        title = f"{len(stale)} definitions in crds/ differ from the cluster's, and helm leaves those as they are"
        yield Note(WARN, "crd-stale", title, f"helm creates what is in crds/ once and never changes it: {shown}.")


def _differs(server: ApiServer, served: Served, crd: Manifest) -> bool:
    resource = served.find(crd.api_version, crd.kind)
    if resource is None:
        return False
    try:
        live = server.get(Call("get", resource.plural, crd.name), resource.path("", crd.name))
    except FleetRefused:
        return False
    served_now, wanted = (_versions(raw) for raw in (live, crd.raw))
    return served_now != wanted


def _versions(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Schema by version; the API server fills in the rest."""
    versions = (raw.get("spec") or {}).get("versions") or []
    return {str(one.get("name")): one.get("schema") for one in versions if isinstance(one, Mapping)}


def _generated(compared: Sequence[Compared]) -> Iterator[Note]:
    changed = [_name(one) for one in compared if one.wanted.generated and one.change == "changed"]
    if changed:
        title = f"Passwords or certificates are made anew in {', '.join(changed[:_SHOWN])}"
        yield Note(WARN, "generated", title, "The chart makes them while it renders, each time.")


def _template(raw: Mapping[str, Any] | None) -> Any:
    return ((raw or {}).get("spec") or {}).get("template")


def _nodes(raw: Mapping[str, Any] | None) -> str:
    number = int(((raw or {}).get("status") or {}).get("desiredNumberScheduled") or 0)
    return "1 node" if number == 1 else f"{number:,} nodes"


def _name(one: Compared) -> str:
    return f"{one.namespace}/{one.wanted.name}" if one.namespace else one.wanted.name
