"""Checks of the rules of Istio's mesh: where requests go, by which door, encrypted and permitted how.

Source: the definitions of Istio 1.30.3 (networking.istio.io/v1, security.istio.io/v1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common import yaml
from profiles.policies import nested
from profiles.policies.kubernetes import Judge

_VIRTUAL_SERVICE = ("exportTo", "gateways", "hosts", "http", "tcp", "tls")
_DESTINATION = ("exportTo", "host", "subsets", "trafficPolicy", "workloadSelector")
_GATEWAY = ("selector", "servers")
_SERVER = ("bind", "defaultEndpoint", "hosts", "name", "port", "tls")
_AUTHENTICATION = ("mtls", "portLevelMtls", "selector")
_AUTHORIZATION = ("action", "provider", "rules", "selector", "targetRef", "targetRefs")
_MODES = ("UNSET", "DISABLE", "PERMISSIVE", "STRICT")
_ACTIONS = ("ALLOW", "DENY", "AUDIT", "CUSTOM")
MAX_WEIGHT = 2**31 - 1


def virtual_service(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _VIRTUAL_SERVICE)
    _texts(judge, ("spec", "hosts"), spec.get("hosts"))
    _texts(judge, ("spec", "gateways"), spec.get("gateways"))
    kinds = [name for name in ("http", "tcp", "tls") if spec.get(name)]
    if spec and not kinds:
        judge.refuse(("spec",), "must have routes: http, tcp or tls")
    for kind in kinds:
        for index, item in enumerate(judge.items(("spec", kind), spec[kind])):
            _route(judge, ("spec", kind, index), judge.mapping(("spec", kind, index), item, required=True))


def _route(judge: Judge, path: yaml.Path, route: Mapping[str, Any]) -> None:
    shares = []
    for index, item in enumerate(judge.items((*path, "route"), route.get("route"))):
        at: yaml.Path = (*path, "route", index)
        target = judge.mapping(at, item, required=True)
        destination = judge.mapping((*at, "destination"), target.get("destination"), required=bool(target))
        if destination and (not isinstance(destination.get("host"), str) or not destination["host"]):
            judge.refuse((*at, "destination", "host"), "must be the host of a service")
        shares.append(judge.whole((*at, "weight"), target.get("weight"), 0, MAX_WEIGHT))
    if len(shares) > 1 and not any(shares):
        judge.refuse((*path, "route"), "must have weights: of several without any, none gets a request")
    if route.get("fault"):
        judge.warn((*path, "fault"), "delays or fails requests on purpose, also of users", "own-faults")


def destination_rule(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _DESTINATION)
    if spec and (not isinstance(spec.get("host"), str) or not spec["host"]):
        judge.refuse(("spec", "host"), "must be the host of a service")
    seen: set[str] = set()
    for index, item in enumerate(judge.items(("spec", "subsets"), spec.get("subsets"))):
        path: yaml.Path = ("spec", "subsets", index)
        subset = judge.mapping(path, item, required=True)
        name = subset.get("name")
        if subset and (not isinstance(name, str) or not name or name in seen):
            judge.refuse((*path, "name"), "must be a name, once")
        seen.add(str(name))
        judge.marks((*path, "labels"), subset.get("labels"))
    for at, value in nested.entries(spec, ("spec",)):
        if at[-2:] == ("tls", "mode") and value == "DISABLE":
            judge.warn(at, "requests to this host are not encrypted", "plain-text")
        elif at[-1] == "insecureSkipVerify" and value:
            judge.warn(at, "the certificate of this host is not verified", "unverified")


def gateway(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _GATEWAY)
    judge.marks(("spec", "selector"), spec.get("selector"))
    if spec and not spec.get("selector"):
        judge.refuse(("spec", "selector"), "must name labels of pods: without one it opens every gateway of the mesh")
    for index, item in enumerate(judge.items(("spec", "servers"), spec.get("servers"), required=bool(spec))):
        path: yaml.Path = ("spec", "servers", index)
        server = judge.mapping(path, item, required=True)
        judge.known(path, server, _SERVER)
        _texts(judge, (*path, "hosts"), server.get("hosts"), required=bool(server))
        port = judge.mapping((*path, "port"), server.get("port"), required=bool(server))
        judge.whole((*path, "port", "number"), port.get("number"), 1, 65535)
        judge.mapping((*path, "tls"), server.get("tls"))


def peer_authentication(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _AUTHENTICATION)
    _selector(judge, spec)
    mtls = judge.mapping(("spec", "mtls"), spec.get("mtls"))
    judge.one_of(("spec", "mtls", "mode"), mtls.get("mode"), _MODES)
    ports = judge.mapping(("spec", "portLevelMtls"), spec.get("portLevelMtls"))
    for port, item in ports.items():
        level = judge.mapping(("spec", "portLevelMtls", port), item)
        judge.one_of(("spec", "portLevelMtls", port, "mode"), level.get("mode"), _MODES)
    if ports and not spec.get("selector"):
        judge.refuse(("spec", "selector"), "must name labels of pods: ports are those of some pods")
    if mtls.get("mode") == "STRICT":
        judge.warn(
            ("spec", "mtls", "mode"), "clients without a proxy of the mesh are refused from then on", "strict-mtls"
        )


def authorization_policy(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"))
    judge.known(("spec",), spec, _AUTHORIZATION)
    _selector(judge, spec)
    action = spec.get("action", "ALLOW")
    judge.one_of(("spec", "action"), action if isinstance(action, str) else "", _ACTIONS)
    if (action == "CUSTOM") != bool(spec.get("provider")):
        judge.refuse(("spec", "provider"), "belongs to action CUSTOM, which needs it")
    rules = judge.items(("spec", "rules"), spec.get("rules"))
    if len([name for name in ("selector", "targetRef", "targetRefs") if spec.get(name)]) > 1:
        judge.refuse(("spec",), "must have one of selector, targetRef and targetRefs")
    if action == "ALLOW" and not rules:
        judge.warn(("spec",), "permits nothing: every request to what it selects is refused", "lets-nothing-in")
    if action == "DENY" and {} in rules:
        judge.warn(("spec", "rules"), "an empty rule fits every request, so all are refused", "lets-nothing-in")


def _selector(judge: Judge, spec: Mapping[str, Any]) -> None:
    selector = judge.mapping(("spec", "selector"), spec.get("selector"))
    judge.known(("spec", "selector"), selector, ("matchLabels",))
    judge.marks(("spec", "selector", "matchLabels"), selector.get("matchLabels"))


def _texts(judge: Judge, path: yaml.Path, raw: Any, *, required: bool = False) -> None:
    for index, item in enumerate(judge.items(path, raw, required=required)):
        if not isinstance(item, str) or not item:
            judge.refuse((*path, index), "must be text")
