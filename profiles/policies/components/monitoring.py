"""Checks of the Prometheus Operator's objects: what is scraped, and by which rules it is judged.

Source: the definitions of kube-prometheus-stack 88.5.3 (monitoring.coreos.com/v1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common import yaml
from profiles.policies import nested
from profiles.policies.kubernetes import Judge

_COMMON = (
    "attachMetadata", "bodySizeLimit", "convertClassicHistogramsToNHCB", "fallbackScrapeProtocol", "jobLabel",
    "keepDroppedTargets", "labelLimit", "labelNameLengthLimit", "labelValueLengthLimit", "namespaceSelector",
    "nativeHistogramBucketLimit", "nativeHistogramMinBucketFactor", "podTargetLabels", "sampleLimit", "scrapeClass",
    "scrapeClassicHistograms", "scrapeNativeHistograms", "scrapeProtocols", "selector", "selectorMechanism",
    "targetLimit",
)  # fmt: skip
_SERVICE_MONITOR = (*_COMMON, "endpoints", "serviceDiscoveryRole", "targetLabels")
_POD_MONITOR = (*_COMMON, "podMetricsEndpoints")
_FILES = frozenset(("bearerTokenFile", "caFile", "certFile", "keyFile"))
"""Settings that name a file of Prometheus' own pod, its token among them, and send what is in it to the target."""
_GROUP = ("interval", "labels", "limit", "name", "partial_response_strategy", "query_offset", "rules")
_RULE = ("alert", "annotations", "expr", "for", "keep_firing_for", "labels", "record")


def service_monitor(judge: Judge, raw: Mapping[str, Any]) -> None:
    _monitor(judge, raw, _SERVICE_MONITOR, "endpoints")


def pod_monitor(judge: Judge, raw: Mapping[str, Any]) -> None:
    _monitor(judge, raw, _POD_MONITOR, "podMetricsEndpoints")


def _monitor(judge: Judge, raw: Mapping[str, Any], fields: tuple[str, ...], endpoints: str) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, fields)
    if spec and not isinstance(spec.get("selector"), dict):
        judge.refuse(("spec", "selector"), "must be a label selector; {} selects everything of the chosen namespaces")
    for index, item in enumerate(judge.items(("spec", endpoints), spec.get(endpoints), required=bool(spec))):
        path: yaml.Path = ("spec", endpoints, index)
        endpoint = judge.mapping(path, item, required=True)
        for at, value in nested.entries(endpoint, path):
            if at[-1] in _FILES and value:
                message = "sends a file of Prometheus' own pod to what is scraped: name a Secret instead"
                judge.refuse(at, message, code="host-path")
    nested.refuse_secrets(judge, ("spec",), spec)


def prometheus_rule(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, ("groups",))
    seen: set[str] = set()
    for index, item in enumerate(judge.items(("spec", "groups"), spec.get("groups"), required=bool(spec))):
        path: yaml.Path = ("spec", "groups", index)
        group = judge.mapping(path, item, required=True)
        judge.known(path, group, _GROUP)
        name = group.get("name")
        if group and (not isinstance(name, str) or not name or name in seen):
            judge.refuse((*path, "name"), "must be a name, once")
        seen.add(str(name))
        for number, each in enumerate(judge.items((*path, "rules"), group.get("rules"))):
            _rule(judge, (*path, "rules", number), each)


def _rule(judge: Judge, path: yaml.Path, raw: Any) -> None:
    rule = judge.mapping(path, raw, required=True)
    judge.known(path, rule, _RULE)
    if rule and bool(rule.get("alert")) == bool(rule.get("record")):
        judge.refuse(path, "must have alert, or record, and not both")
    expression = rule.get("expr")
    if rule and (isinstance(expression, bool) or not isinstance(expression, str | int) or expression == ""):
        judge.refuse((*path, "expr"), "must be an expression of PromQL; put it in quotes")
    for name in ("labels", "annotations"):
        for key, value in judge.mapping((*path, name), rule.get(name)).items():
            if not isinstance(value, str):
                judge.refuse((*path, name, key), "must be text; put it in quotes")
