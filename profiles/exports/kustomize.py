"""Kustomize: the policy objects as resources, and the components as Helm charts that Kustomize renders.

A kustomization names its resources as files, so that there are two: `objects`, which is plain YAML for any tool that
applies it, and `kustomize`, which goes beside it. Fields: kubernetes-sigs/kustomize, api/types/kustomization.go and
api/types/helmchartargs.go; an address of a repository may begin with oci:// (api/internal/builtins,
HelmChartInflationGenerator).
"""

from __future__ import annotations

from typing import Any

from common.hooks import ComponentRelease
from profiles.content.content import Content
from profiles.exports import releases
from profiles.exports.parts import ExportDraft, dump

_WORDS = releases.ToolWords("Kustomize removes nothing from a cluster", "add it to valuesInline, or patch it in")
_NODES = "it is of nodes, and Kustomize applies objects"


def objects_file(name: str) -> str:
    return f"{name}-objects.yaml"


def objects(content: Content, draft: ExportDraft) -> str:
    """Return the policy objects, one document each, in the order in which a rollout makes them."""
    _miss_nodes(content, draft)
    for component in content.components:
        draft.miss_component(component, "a file of objects holds no release of Helm; the format kustomize does")
    return "---\n".join(dump(policy.manifest) for policy in content.policies)


def write(content: Content, draft: ExportDraft) -> str:
    _miss_nodes(content, draft)
    document: dict[str, Any] = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    if content.policies:
        document["resources"] = [objects_file(draft.name)]
        draft.remark(f"The policy objects are the format objects: put {objects_file(draft.name)} beside it.")
    made = {policy.name for policy in content.policies if policy.kind == "Namespace"}
    if charts := releases.of(content, draft, _WORDS):
        document["helmCharts"] = [_chart(release) for release in charts]
        draft.remark("Build it with --enable-helm and Helm 3: Kustomize 5.7 does not know Helm 4.")
        draft.remark("Apply it once more where a kind was not known yet. Hooks of charts are objects to it.")
        if absent := sorted({release.namespace for release in charts} - made):
            draft.remark(f"These namespaces must be there: {', '.join(absent)}.")
    return dump(document)


def _miss_nodes(content: Content, draft: ExportDraft) -> None:
    for setting in content.settings:
        draft.miss(setting, _NODES)
    draft.miss_marks(content, _NODES)


def _chart(release: ComponentRelease) -> dict[str, Any]:
    """Return a chart as Helm would install it: with its definitions, which a template leaves out unless told."""
    return {
        "name": release.chart,
        "repo": release.repository,
        "version": release.version,
        "releaseName": release.name,
        "namespace": release.namespace,
        "includeCRDs": True,
        **({"valuesInline": dict(release.values)} if release.values else {}),
    }
