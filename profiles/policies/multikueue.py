"""Checks of what sends Kueue's jobs to other clusters. Source: Kueue's API v1beta2 and v1beta1 (v0.19)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common import yaml
from profiles.policies.kubernetes import Judge

CONTROLLER = "kueue.x-k8s.io/multikueue"
MAX_CLUSTERS = 20
_CONFIG = "MultiKueueConfig"


def cluster(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    is_old = str(raw.get("apiVersion")).endswith("/v1beta1")
    judge.known(("spec",), spec, ("kubeConfig",) if is_old else ("clusterSource",))
    at: yaml.Path = ("spec",) if is_old else ("spec", "clusterSource")
    source = spec if is_old else judge.mapping(at, spec.get("clusterSource"), required=bool(spec))
    if not is_old:
        judge.known(at, source, ("kubeConfig", "clusterProfileRef"))
        if source and ("kubeConfig" in source) == ("clusterProfileRef" in source):
            judge.refuse(at, "must have kubeConfig, or clusterProfileRef, and not both")
    if "kubeConfig" not in source:
        return
    path: yaml.Path = (*at, "kubeConfig")
    config = judge.mapping(path, source["kubeConfig"], required=True)
    judge.known(path, config, ("location", "locationType"))
    if config and (not isinstance(config.get("location"), str) or not 0 < len(config["location"]) <= 256):
        judge.refuse((*path, "location"), "must be the name of a Secret in Kueue's namespace")
    if config.get("locationType") not in (None, "Secret"):
        judge.refuse((*path, "locationType"), "must be Secret: a path is a file of Kueue's own pod")


def config(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, ("clusters",))
    clusters = judge.items(("spec", "clusters"), spec.get("clusters"), required=bool(spec))
    if len(clusters) > MAX_CLUSTERS:
        judge.refuse(("spec", "clusters"), f"names {len(clusters)}; at most {MAX_CLUSTERS} are accepted")
    for index, name in enumerate(clusters):
        if not isinstance(name, str) or not name or name in clusters[:index]:
            judge.refuse(("spec", "clusters", index), "must be the name of a MultiKueueCluster, once")


def admission_check(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, ("controllerName", "parameters"))
    if spec and spec.get("controllerName") != CONTROLLER:
        judge.refuse(("spec", "controllerName"), f"must be {CONTROLLER}; other checks are their controllers' own")
    parameters = judge.mapping(("spec", "parameters"), spec.get("parameters"), required=bool(spec))
    judge.known(("spec", "parameters"), parameters, ("apiGroup", "kind", "name"))
    wanted = {"apiGroup": "kueue.x-k8s.io", "kind": _CONFIG}
    for name, value in wanted.items():
        if parameters and parameters.get(name) != value:
            judge.refuse(("spec", "parameters", name), f"must be {value}")
    if parameters and (not isinstance(parameters.get("name"), str) or not parameters["name"]):
        judge.refuse(("spec", "parameters", "name"), f"must be the name of a {_CONFIG}")
