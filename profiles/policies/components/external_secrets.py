"""Checks of External Secrets: stores, and what is fetched from them. A profile names secrets and holds none.

Source: the definitions of External Secrets 2.9.0 (external-secrets.io/v1). Where a provider takes a secret as a plain
`value` beside a reference, only the reference is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from common import yaml
from profiles.policies import nested
from profiles.policies.kubernetes import Judge

_STORE = ("conditions", "controller", "provider", "refreshInterval", "retrySettings")
_SECRET = ("data", "dataFrom", "refreshInterval", "refreshPolicy", "secretStoreRef", "syncWindows", "target")
_TARGET = ("creationPolicy", "deletionPolicy", "immutable", "name", "template")
_CLUSTER_SECRET = (
    "externalSecretMetadata", "externalSecretName", "externalSecretSpec", "namespaceSelector", "namespaceSelectors",
    "namespaces", "refreshTime",
)  # fmt: skip
KINDS_OF_STORE = ("SecretStore", "ClusterSecretStore")
_CREATION = ("Owner", "Orphan", "Merge", "None", "CreateOrMerge")
_DELETION = ("Delete", "Merge", "Retain")
_TOKENS = ("kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token")
"""Types of Secret that the cluster fills with a token, or takes for one."""
_NAMES_ONLY = frozenset(("username", "clientId"))
"""Whose `value` is no secret."""
_TELLING = re.compile(r"auth|token|secret|key|cookie|passw|cred", re.IGNORECASE)
_IN_TEXT = re.compile(r"(passw\w*|token|secret|api_?key)[\"']?\s*[:=]\s*[\"']?[^\s\"'{]", re.IGNORECASE)
_TEMPLATE = "{{"
_PLAIN = "plain-secret"
_REFER = "would keep the secret in this profile for ever: refer to a Secret of the cluster"
_NAME = "kubernetes.io/metadata.name"


def secret_store(judge: Judge, raw: Mapping[str, Any]) -> None:
    _store(judge, raw)


def cluster_secret_store(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = _store(judge, raw)
    if spec and not spec.get("conditions"):
        message = "every namespace may read from it, as far as the store lets it; conditions name those that may"
        judge.warn(("spec",), message, "every-namespace")


def _store(judge: Judge, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _STORE)
    judge.items(("spec", "conditions"), spec.get("conditions"))
    at: yaml.Path = ("spec", "provider")
    provider = judge.mapping(at, spec.get("provider"), required=bool(spec))
    if len(provider) > 1:
        judge.refuse(at, "must have one provider")
    if "fake" in provider:
        judge.refuse((*at, "fake"), f"holds its values in plain text and {_REFER.removeprefix('would ')}", _PLAIN)
        return spec
    for path, value in nested.entries(provider, at):
        for where, reason in _objections(path, value):
            judge.refuse(where, reason, code=_PLAIN)
    nested.refuse_reserved(judge, at, provider)
    return spec


def _objections(path: yaml.Path, value: Any) -> Iterator[tuple[yaml.Path, str]]:
    """Yield what is a secret in plain text: a provider's `value`, a header, a body, or a password in an address."""
    if not isinstance(value, str):
        return
    name, above = path[-1], path[-2]
    if name == "value" and isinstance(above, str) and above not in _NAMES_ONLY:
        yield path, f"{_REFER}, by secretRef"
    elif above == "headers" and _TELLING.search(str(name)) and _TEMPLATE not in value:
        yield path, f"{_REFER}, and have the header be a template of it"
    elif name == "body" and _IN_TEXT.search(value):
        yield path, f"{_REFER}, and have the body be a template of it"
    elif nested.has_password(value):
        yield path, "has a password in an address: refer to a Secret of the cluster"


def external_secret(judge: Judge, raw: Mapping[str, Any]) -> None:
    _secret(judge, ("spec",), judge.mapping(("spec",), raw.get("spec"), required=True))


def cluster_external_secret(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _CLUSTER_SECRET)
    at: yaml.Path = ("spec", "externalSecretSpec")
    inner = judge.mapping(at, spec.get("externalSecretSpec"), required=bool(spec))
    _secret(judge, at, inner)
    store = inner.get("secretStoreRef")
    if isinstance(store, dict) and store.get("kind") != "ClusterSecretStore":
        message = "must be ClusterSecretStore: the chosen namespaces need not have one of their own"
        judge.refuse((*at, "secretStoreRef", "kind"), message)
    named = judge.items(("spec", "namespaces"), spec.get("namespaces"))
    for index, name in enumerate(named):
        if not isinstance(name, str) or nested.is_reserved(name):
            message = "must be the name of a namespace, and none of Kubernetes or of Setpoint"
            judge.refuse(("spec", "namespaces", index), message, code="reserved")
    selectors = judge.items(("spec", "namespaceSelectors"), spec.get("namespaceSelectors"))
    for index, selector in enumerate(selectors):
        _selector(judge, ("spec", "namespaceSelectors", index), selector)
    if "namespaceSelector" in spec:
        _selector(judge, ("spec", "namespaceSelector"), spec["namespaceSelector"])
    elif spec and not selectors and not named:
        judge.refuse(("spec", "namespaceSelectors"), "must choose namespaces, or name them in namespaces")


def _selector(judge: Judge, path: yaml.Path, raw: Any) -> None:
    """A selector by labels that a namespace has: none that every namespace fits, those of Kubernetes too."""
    selector = judge.mapping(path, raw, required=True)
    judge.known(path, selector, ("matchLabels", "matchExpressions"))
    labels = selector.get("matchLabels")
    judge.marks((*path, "matchLabels"), labels)
    if isinstance(labels, dict) and nested.is_reserved(labels.get(_NAME)):
        judge.refuse((*path, "matchLabels", _NAME), "belongs to Kubernetes or to Setpoint", code="reserved")
    for index, item in enumerate(judge.items((*path, "matchExpressions"), selector.get("matchExpressions"))):
        at = (*path, "matchExpressions", index)
        expression = judge.mapping(at, item, required=True)
        judge.known(at, expression, ("key", "operator", "values"))
        if expression.get("operator") not in ("In", "Exists"):
            judge.refuse((*at, "operator"), "must be In or Exists: the namespaces of Kubernetes fit what is left out")
        values = expression.get("values")
        if expression.get("key") == _NAME and (
            not isinstance(values, list) or not values or any(nested.is_reserved(value) for value in values)
        ):
            judge.refuse((*at, "values"), "must be namespaces, and none of Kubernetes or of Setpoint", code="reserved")


def _secret(judge: Judge, at: yaml.Path, spec: Mapping[str, Any]) -> None:
    judge.known(at, spec, _SECRET)
    judge.one_of((*at, "refreshPolicy"), spec.get("refreshPolicy"), ("CreatedOnce", "Periodic", "OnChange"))
    store = judge.mapping((*at, "secretStoreRef"), spec.get("secretStoreRef"))
    judge.known((*at, "secretStoreRef"), store, ("kind", "name"))
    judge.one_of((*at, "secretStoreRef", "kind"), store.get("kind"), KINDS_OF_STORE)
    entries = [*judge.items((*at, "data"), spec.get("data")), *judge.items((*at, "dataFrom"), spec.get("dataFrom"))]
    if spec and not entries:
        judge.refuse(at, "must say in data or dataFrom what is fetched")
    if spec and not store and not all(isinstance(entry, dict) and entry.get("sourceRef") for entry in entries):
        judge.refuse((*at, "secretStoreRef"), "must name a store")
    target = judge.mapping((*at, "target"), spec.get("target"))
    if "manifest" in target:
        message = "would have the operator write an object of any kind with its own rights; a Secret is what is made"
        judge.refuse((*at, "target", "manifest"), message, code="escalation")
    judge.known((*at, "target"), {name: None for name in target if name != "manifest"}, _TARGET)
    judge.one_of((*at, "target", "creationPolicy"), target.get("creationPolicy"), _CREATION)
    judge.one_of((*at, "target", "deletionPolicy"), target.get("deletionPolicy"), _DELETION)
    judge.boolean((*at, "target", "immutable"), target.get("immutable"))
    _template(judge, (*at, "target", "template"), target.get("template"))


def _template(judge: Judge, path: yaml.Path, raw: Any) -> None:
    template = judge.mapping(path, raw)
    if template.get("type") in _TOKENS:
        judge.refuse((*path, "type"), "becomes the token of an account", code="escalation")
    for key, value in judge.mapping((*path, "data"), template.get("data")).items():
        is_plain = isinstance(value, str) and _TEMPLATE not in value
        if is_plain and (nested.is_secret(key, value) or _IN_TEXT.search(value)):
            judge.refuse((*path, "data", key), f"{_REFER}, by a template", code=_PLAIN)
    for index, item in enumerate(judge.items((*path, "templateFrom"), template.get("templateFrom"))):
        text = item.get("literal") if isinstance(item, dict) else None
        if isinstance(text, str) and _IN_TEXT.search(text):
            judge.refuse((*path, "templateFrom", index, "literal"), f"{_REFER}, by a template", code=_PLAIN)
