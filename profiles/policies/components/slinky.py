"""Checks of Slinky's Slurm clusters: their controller, nodes and logins, all of them pods of the cluster.

Source: the definitions of slurm-operator 1.2.1 (slinky.slurm.net/v1beta1). A profile may start no pod that it could not
start otherwise with the node's own files, so their templates are held to that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common import yaml
from profiles.policies import nested
from profiles.policies.kubernetes import Judge

_CONTROLLER = (
    "accountingRef", "clusterName", "configFileRefs", "epilogScriptRefs", "epilogSlurmctldScriptRefs", "external",
    "externalConfig", "extraConf", "inplaceReconfigure", "jwksKeyRef", "jwtHs256KeyRef", "jwtKeyRef", "logfile",
    "metrics", "persistence", "prologScriptRefs", "prologSlurmctldScriptRefs", "reconfigure", "service", "slurmKeyRef",
    "slurmctld", "template",
)  # fmt: skip
_NODE_SET = (
    "controllerRef", "extraConf", "logfile", "minReadySeconds", "ordinalPadding", "oversubscribeNode", "partition",
    "persistentVolumeClaimRetentionPolicy", "pinToNode", "pruneSlurmNodeRecords", "replicas", "revisionHistoryLimit",
    "scalingMode", "slurmd", "ssh", "template", "updateStrategy", "volumeClaimTemplates",
    "workloadDisruptionProtection",
)  # fmt: skip
_LOGIN_SET = (
    "controllerRef", "extraSshdConfig", "initconf", "login", "replicas", "rootSshAuthorizedKeys", "service",
    "sssdConfRef", "strategy", "template",
)  # fmt: skip
_POD_PARTS = ("template", "slurmctld", "slurmd", "login", "logfile", "reconfigure", "initconf", "service")
MAX_REPLICAS = 10_000


def controller(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _CONTROLLER)
    judge.boolean(("spec", "external"), spec.get("external"))
    if spec and not spec.get("external"):
        _key(judge, ("spec", "slurmKeyRef"), spec.get("slurmKeyRef"), required=True)
        if not spec.get("jwtKeyRef") and not spec.get("jwtHs256KeyRef"):
            judge.refuse(("spec", "jwtKeyRef"), "must name a Secret and its key, for the operator's tokens")
    for name in ("jwtKeyRef", "jwtHs256KeyRef", "jwksKeyRef"):
        _key(judge, ("spec", name), spec.get(name))
    _pods(judge, spec)


def node_set(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _NODE_SET)
    _controller_ref(judge, spec)
    judge.whole(("spec", "replicas"), spec.get("replicas"), 0, MAX_REPLICAS)
    judge.one_of(("spec", "scalingMode"), spec.get("scalingMode"), ("DaemonSet", "StatefulSet"))
    partition = judge.mapping(("spec", "partition"), spec.get("partition"))
    if "\n" in str(partition.get("config") or ""):
        judge.refuse(("spec", "partition", "config"), "must be one line of slurm.conf")
    strategy = judge.mapping(("spec", "updateStrategy"), spec.get("updateStrategy"))
    kinds = ("RollingUpdate", "OnDelete", "ScheduledUpdate")
    judge.one_of(("spec", "updateStrategy", "type"), strategy.get("type"), kinds)
    if spec.get("workloadDisruptionProtection") is False:
        message = "a change ends pods whose jobs run: nothing protects them from an eviction"
        judge.warn(("spec", "workloadDisruptionProtection"), message, "ends-jobs")
    _pods(judge, spec)


def login_set(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _LOGIN_SET)
    _controller_ref(judge, spec)
    judge.whole(("spec", "replicas"), spec.get("replicas"), 0, MAX_REPLICAS)
    _key(judge, ("spec", "sssdConfRef"), spec.get("sssdConfRef"), required=bool(spec))
    if spec.get("rootSshAuthorizedKeys"):
        message = "whose key this is, is root in the login pods, and reaches every job of the cluster"
        judge.warn(("spec", "rootSshAuthorizedKeys"), message, "root-access")
    _pods(judge, spec)


def _controller_ref(judge: Judge, spec: Mapping[str, Any]) -> None:
    reference = judge.mapping(("spec", "controllerRef"), spec.get("controllerRef"), required=bool(spec))
    judge.known(("spec", "controllerRef"), reference, ("name",))
    if reference and (not isinstance(reference.get("name"), str) or not reference["name"]):
        judge.refuse(("spec", "controllerRef", "name"), "must be the name of a Controller of its namespace")


def _key(judge: Judge, path: yaml.Path, raw: Any, *, required: bool = False) -> None:
    key = judge.mapping(path, raw, required=required)
    judge.known(path, key, ("key", "name", "optional"))
    for name in ("key", "name"):
        if key and (not isinstance(key.get(name), str) or not key[name]):
            judge.refuse((*path, name), "must name a Secret and its key")


def _pods(judge: Judge, spec: Mapping[str, Any]) -> None:
    for part in _POD_PARTS:
        nested.refuse_node_access(judge, ("spec", part), spec.get(part))
    nested.refuse_secrets(judge, ("spec",), spec)
