"""Reading one policy object of a profile: its kind, its names, its metadata, and then the checks of its kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from contract import names
from profiles.content.cluster import WantedObject
from profiles.policies import node_labels
from profiles.policies.kind import PolicyKind
from profiles.policies.kinds import KINDS
from profiles.policies.kubernetes import Judge

_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
_BINDER = "pv.kubernetes.io"
"""Annotations below it are the volume controller's: they would have a provisioner delete what it never made."""
_CLUSTERS_OWN = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")


def read(raw: Any, judge: Judge) -> WantedObject | None:
    """One manifest; None where it is none that can be kept, with the reasons told to `judge`."""
    if not isinstance(raw, dict):
        judge.refuse((), "must be a Kubernetes object with apiVersion, kind and metadata")
        return None
    kind = _kind(raw, judge)
    metadata = raw.get("metadata")
    if not isinstance(metadata, dict):
        judge.refuse(("metadata",), "must be a mapping with name, and namespace where the kind has one")
        return None
    name, namespace = _names(kind, metadata, judge)
    if kind is None or not name:
        return None
    extra = _metadata(metadata, judge)
    for field in raw.keys() - {"apiVersion", "kind", "metadata"} - kind.fields:
        judge.refuse((field,), _stray(kind, field), code="unknown-field")
    before = len(judge.problems)
    kind.check(judge, raw)
    if len(judge.problems) > before:
        return None
    body = {field: raw[field] for field in sorted(kind.fields & raw.keys()) if raw[field] is not None}
    if extra:
        body["metadata"] = extra
    return WantedObject(raw["apiVersion"], kind.name, name, namespace, body)


def _kind(raw: Mapping[str, Any], judge: Judge) -> PolicyKind | None:
    written, version = raw.get("kind"), raw.get("apiVersion")
    kind = KINDS.get(written) if isinstance(written, str) else None
    if kind is None:
        shown = ascii(written)[:60] if written is not None else "an object without kind"
        judge.refuse(("kind",), f"{shown} cannot be wanted here; there are {', '.join(KINDS)}", code="unknown-kind")
        return None
    if version not in kind.versions:
        judge.refuse(("apiVersion",), f"{kind.name} is understood as {' or '.join(kind.versions)}", code="bad-version")
        return None
    return kind


def _names(kind: PolicyKind | None, metadata: Mapping[str, Any], judge: Judge) -> tuple[str, str]:
    name, namespace = metadata.get("name"), metadata.get("namespace")
    is_label = kind is not None and kind.name == "Namespace"
    if not isinstance(name, str) or not (_LABEL.fullmatch(name) if is_label else is_subdomain(name)):
        form = "1 to 63 lower-case letters, digits and '-'" if is_label else "a DNS name in lower-case letters"
        judge.refuse(("metadata", "name"), f"must be {form}, beginning and ending with a letter or digit")
        name = ""
    if kind is None:
        return name, ""
    if not kind.is_namespaced:
        if namespace is not None:
            judge.refuse(
                ("metadata", "namespace"), f"{kind.name} belongs to the whole cluster: leave the namespace out"
            )
        return name, ""
    if namespace is None:
        judge.refuse(("metadata",), f"{kind.name} needs a namespace", code="no-namespace")
        return "", ""
    if not isinstance(namespace, str) or not _LABEL.fullmatch(namespace):
        judge.refuse(("metadata", "namespace"), "must be 1 to 63 lower-case letters, digits and '-'")
        return "", ""
    if kind.is_kept_out and (namespace.startswith("kube-") or namespace == names.NAMESPACE):
        whose = "Setpoint" if namespace == names.NAMESPACE else "Kubernetes"
        message = f"{namespace} belongs to {whose}: a profile puts no {kind.name} there"
        judge.refuse(("metadata", "namespace"), message, code="reserved")
        return "", ""
    return name, namespace


def is_subdomain(name: str) -> bool:
    return len(name) <= 253 and bool(_SUBDOMAIN.fullmatch(name))


def _metadata(metadata: Mapping[str, Any], judge: Judge) -> dict[str, Any]:
    """Labels and annotations, the only other things that a person may say there."""
    out: dict[str, Any] = {}
    for field in metadata.keys() - {"name", "namespace", "labels", "annotations"}:
        why = (
            "is written by the cluster"
            if field in _CLUSTERS_OWN
            else "cannot be wanted; there are labels and annotations"
        )
        judge.refuse(("metadata", field), why, code="unknown-field")
    for part, bad_value in (("labels", node_labels.bad_value), ("annotations", _bad_annotation)):
        marks = metadata.get(part)
        if marks is None:
            continue
        if not isinstance(marks, dict):
            judge.refuse(("metadata", part), "must be a mapping from names to text")
            continue
        for key, value in marks.items():
            if reason := node_labels.bad_key(key) or node_labels.ours(key) or _binders(key) or bad_value(value):
                judge.refuse(("metadata", part, key), reason, code="bad-mark")
        if marks:
            out[part] = marks
    return out


def _binders(key: str) -> str | None:
    return f"{_BINDER}/ is the volume controller's own" if key.startswith(f"{_BINDER}/") else None


def _bad_annotation(value: Any) -> str | None:
    return None if isinstance(value, str) else "its value must be text; put it in quotes"


def _stray(kind: PolicyKind, field: str) -> str:
    if field == "status":
        return "is written by the cluster"
    if not kind.fields:
        return f"{kind.name} has nothing but metadata here"
    are = "is" if len(kind.fields) == 1 else "are"
    return f"is not a field of {kind.name}; there {are} {', '.join(sorted(kind.fields))}"
