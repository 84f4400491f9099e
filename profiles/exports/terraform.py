"""Terraform: what is wanted of the cluster, and of its nodes as Kubernetes knows them, in Terraform's JSON syntax.

JSON, because what is written can be proven: `json.loads` reads it back, and of HCL only the templates in strings are
left to escape (`$${`, `%%{`). Terraform reads `.tf.json` beside `.tf` files and ignores names of `//`, which hold the
comments. Resources: hashicorp/kubernetes, docs/resources/{manifest,labels,annotations,node_taint}.md; hashicorp/helm,
docs/resources/release.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from common.hooks import ComponentRelease
from profiles.content.cluster import WantedObject
from profiles.content.content import Content
from profiles.exports import releases
from profiles.exports.parts import ExportDraft

_TEMPLATE = re.compile(r"[$%](?=\{)")
_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_WORDS = releases.ToolWords("Terraform removes only what its own state has", "give it set")
EACH_NODE = {"for_each": "${var.nodes}"}
_PROVIDERS = {
    "kubernetes": {"source": "hashicorp/kubernetes"},
    "helm": {"source": "hashicorp/helm"},
}


def write(content: Content, draft: ExportDraft) -> str:
    for setting in content.settings:
        draft.miss(setting, "no provider of Terraform's writes a running kernel's values and reads them back")
    resources: dict[str, dict[str, Any]] = {}
    _marks(content, resources)
    namespaces = {policy.name: _name(policy) for policy in content.policies if policy.kind == "Namespace"}
    if manifests := _manifests(content.policies, namespaces):
        resources["kubernetes_manifest"] = manifests
        draft.remark(
            "The kinds of kubernetes_manifest must exist when Terraform plans: where a component brings them, apply "
            "that first, with -target."
        )
    if helm_releases := _releases(content, draft, namespaces):
        resources["helm_release"] = helm_releases
    document: dict[str, Any] = {"terraform": {"required_providers": _PROVIDERS}}
    if any("for_each" in resource for kind in resources.values() for resource in kind.values()):
        draft.remark("Labels, annotations and taints are those of the nodes named in the variable nodes.")
        description = "Names of the nodes that have the profile's labels, annotations and taints"
        document["variable"] = {"nodes": {"type": "set(string)", "description": description}}
    if resources:
        document["resource"] = resources
    return dumps(document)


def with_comments(head: Sequence[str], body: str) -> str:
    """Return the file with its first lines as what Terraform ignores."""
    return dumps({"//": list(head), **json.loads(body)})


def dumps(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def literal(value: Any) -> Any:
    """Return a value with its strings, names of mappings too, escaped so that Terraform reads this very text."""
    if isinstance(value, str):
        return _TEMPLATE.sub(lambda match: match[0] * 2, value)
    if isinstance(value, Mapping):
        return {literal(name): literal(item) for name, item in value.items()}
    return [literal(item) for item in value] if isinstance(value, list | tuple) else value


def _marks(content: Content, resources: dict[str, dict[str, Any]]) -> None:
    """One resource for each kind of mark and node; others' labels stay as they are."""
    for part in ("labels", "annotations"):
        if marks := {mark.key: mark.value for mark in getattr(content, part)}:
            node = {"api_version": "v1", "kind": "Node", "metadata": {"name": "${each.value}"}}
            resources[f"kubernetes_{part}"] = {"nodes": {**EACH_NODE, **node, part: literal(marks)}}
    if content.taints:
        taints = [literal({"key": t.key, "value": t.value, "effect": t.effect}) for t in content.taints]
        node = {"metadata": {"name": "${each.value}"}}
        resources["kubernetes_node_taint"] = {"nodes": {**EACH_NODE, **node, "taint": taints}}


def _manifests(policies: Sequence[WantedObject], namespaces: Mapping[str, str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for policy in policies:
        resource: dict[str, Any] = {"manifest": literal(policy.manifest)}
        if within := namespaces.get(policy.namespace):
            resource["depends_on"] = [f"kubernetes_manifest.{within}"]
        out[_name(policy)] = resource
    return out


def _name(policy: WantedObject) -> str:
    """Return a name for Terraform's state: letters, digits, _ and -, and each title another.

    Kinds and names of Kubernetes have no _, so that `a.b` and `a_b` cannot meet.
    """
    group = policy.api_version.rpartition("/")[0]
    return "_".join(_OTHER.sub("_", part) for part in (policy.kind, group, policy.namespace, policy.name) if part)


def _releases(content: Content, draft: ExportDraft, namespaces: Mapping[str, str]) -> dict[str, Any]:
    known = {release.name: release for release in releases.of(content, draft, _WORDS)}
    return {name: _release(release, known, namespaces) for name, release in known.items()}


def _release(
    release: ComponentRelease, known: Mapping[str, ComponentRelease], namespaces: Mapping[str, str]
) -> dict[str, Any]:
    within = namespaces.get(release.namespace)
    after = [f"helm_release.{name}" for name in release.requires if name in known]
    after += [f"kubernetes_manifest.{within}"] if within else []
    out = literal(
        {
            "name": release.name,
            "repository": release.repository,
            "chart": release.chart,
            "version": release.version,
            "namespace": release.namespace,
        }
    ) | {"create_namespace": within is None}
    if release.values:  # JSON is YAML, and needs no more than its quotes
        out["values"] = [literal(json.dumps(release.values, ensure_ascii=False, allow_nan=False))]
    return {**out, **({"depends_on": after} if after else {})}
