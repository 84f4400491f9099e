"""Checks of Fluid's objects: datasets, the caches that hold them, and what loads them.

Source: the definitions of Fluid 1.0.8 (data.fluid.io/v1alpha1). A cache's pods run as root and mount into the kubelet's
folder, so what names a folder of the node is held to where local volumes may be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from common import yaml
from profiles.policies import nested
from profiles.policies.kubernetes import Judge, tolerations
from profiles.policies.storage import LOCAL_ROOTS

_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_DATASET = (
    "accessModes", "mounts", "nodeAffinity", "owner", "placement", "sharedEncryptOptions", "sharedOptions",
    "tolerations",
)  # fmt: skip
_MOUNT = ("encryptOptions", "mountPoint", "name", "options", "path", "readOnly", "shared")
_RUNTIME = (
    "disablePrometheus", "fuse", "initUsers", "jobWorker", "management", "master", "podMetadata", "replicas", "runAs",
    "tieredstore", "volumes", "worker",
)  # fmt: skip
_ALLUXIO = (
    *_RUNTIME, "alluxioVersion", "apiGateway", "data", "hadoopConfig", "imagePullSecrets", "jobMaster", "jvmOptions",
    "properties",
)  # fmt: skip
_JUICEFS = (*_RUNTIME, "juicefsVersion")
_LEVEL = ("high", "low", "mediumtype", "path", "quota", "quotaList", "volumeType")
_MEDIA = ("MEM", "SSD", "HDD")
_MEMORY = "/dev/shm"  # noqa: S108 -- the cache keeps its data in the node's memory there
_LOAD = (
    "affinity", "dataset", "loadMetadata", "nodeSelector", "options", "podMetadata", "policy", "resources", "runAfter",
    "schedule", "schedulerName", "target", "tolerations",
)  # fmt: skip
_WHEN = ("Once", "Cron", "OnEvent")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://\S+")
MAX_REPLICAS = 10_000


def dataset(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _DATASET)
    for index, item in enumerate(judge.items(("spec", "mounts"), spec.get("mounts"), required=bool(spec))):
        path: yaml.Path = ("spec", "mounts", index)
        mount = judge.mapping(path, item, required=True)
        judge.known(path, mount, _MOUNT)
        _mount_point(judge, (*path, "mountPoint"), mount.get("mountPoint"))
        judge.boolean((*path, "readOnly"), mount.get("readOnly"))
        _encrypted(judge, (*path, "encryptOptions"), mount.get("encryptOptions"))
    for index, mode in enumerate(judge.items(("spec", "accessModes"), spec.get("accessModes"))):
        judge.one_of(("spec", "accessModes", index), mode if isinstance(mode, str) else "", _MODES)
    judge.one_of(("spec", "placement"), spec.get("placement"), ("Exclusive", "Shared", ""))
    _encrypted(judge, ("spec", "sharedEncryptOptions"), spec.get("sharedEncryptOptions"))
    tolerations(judge, ("spec", "tolerations"), spec.get("tolerations"))
    nested.refuse_secrets(judge, ("spec",), spec)


def _mount_point(judge: Judge, path: yaml.Path, raw: Any) -> None:
    """`local://` is a folder of the node, which the cache's pods mount as root."""
    if not isinstance(raw, str) or not _SCHEME.fullmatch(raw):
        judge.refuse(path, "must be an address such as s3://bucket/models, juicefs:///models or pvc://models")
    elif raw.startswith("local://") and not is_local(raw.removeprefix("local://")):
        judge.refuse(path, _ELSEWHERE, code="host-path")


_ELSEWHERE = f"must be below {', '.join(LOCAL_ROOTS)}: elsewhere are the node's own files"


def is_local(path: Any) -> bool:
    """Return whether a folder of the node may be a local volume."""
    below = isinstance(path, str) and any(path.startswith(root) and len(path) > len(root) for root in LOCAL_ROOTS)
    return below and ".." not in str(path).split("/")


def _encrypted(judge: Judge, path: yaml.Path, raw: Any) -> None:
    for index, item in enumerate(judge.items(path, raw)):
        option = judge.mapping((*path, index), item, required=True)
        judge.known((*path, index), option, ("name", "valueFrom"))
        source = judge.mapping((*path, index, "valueFrom"), option.get("valueFrom"), required=bool(option))
        judge.known((*path, index, "valueFrom"), source, ("secretKeyRef",))
        at: yaml.Path = (*path, index, "valueFrom", "secretKeyRef")
        named = judge.mapping(at, source.get("secretKeyRef"), required=bool(source))
        judge.known(at, named, ("key", "name"))


def alluxio_runtime(judge: Judge, raw: Mapping[str, Any]) -> None:
    _runtime(judge, raw, _ALLUXIO, "alluxioVersion")


def juicefs_runtime(judge: Judge, raw: Mapping[str, Any]) -> None:
    _runtime(judge, raw, _JUICEFS, "juicefsVersion")


def _runtime(judge: Judge, raw: Mapping[str, Any], fields: tuple[str, ...], version: str) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, fields)
    judge.whole(("spec", "replicas"), spec.get("replicas"), 0, MAX_REPLICAS)
    store = judge.mapping(("spec", "tieredstore"), spec.get("tieredstore"))
    judge.known(("spec", "tieredstore"), store, ("levels",))
    for index, item in enumerate(judge.items(("spec", "tieredstore", "levels"), store.get("levels"))):
        _level(judge, ("spec", "tieredstore", "levels", index), item)
    nested.refuse_secrets(judge, ("spec",), spec)
    nested.refuse_node_access(judge, ("spec",), spec)
    for part in (version, "fuse", "initUsers"):
        named = spec.get(part)
        if isinstance(named, dict) and named.get("image"):
            message = "this image runs as root on each node where the dataset is mounted"
            judge.warn(("spec", part, "image"), message, "own-image")


def _level(judge: Judge, path: yaml.Path, raw: Any) -> None:
    level = judge.mapping(path, raw, required=True)
    judge.known(path, level, _LEVEL)
    judge.one_of((*path, "mediumtype"), level.get("mediumtype") or "", _MEDIA)
    judge.one_of((*path, "volumeType"), level.get("volumeType"), ("hostPath", "emptyDir"))
    if level.get("quota") is not None:
        judge.amount((*path, "quota"), level["quota"])
    elif level and not level.get("quotaList"):
        judge.refuse((*path, "quota"), "must say how much of it the cache may take")
    where = level.get("path")
    folders = where.split(",") if isinstance(where, str) else []
    if not folders and level.get("volumeType") != "emptyDir":
        judge.refuse((*path, "path"), "must be the folder of the cache, such as /dev/shm or /mnt/nvme0/cache")
    for folder in folders:
        if folder != _MEMORY and not is_local(folder):
            judge.refuse((*path, "path"), f"must be /dev/shm, or {_ELSEWHERE.removeprefix('must be ')}", "host-path")


def data_load(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    if "ttlSecondsAfterFinished" in spec:
        message = "Fluid would delete the object then, which is drift from this profile: leave it out"
        judge.refuse(("spec", "ttlSecondsAfterFinished"), message)
    judge.known(("spec",), {name: None for name in spec if name != "ttlSecondsAfterFinished"}, _LOAD)
    of = judge.mapping(("spec", "dataset"), spec.get("dataset"), required=bool(spec))
    judge.known(("spec", "dataset"), of, ("name", "namespace"))
    if of and (not isinstance(of.get("name"), str) or not of["name"]):
        judge.refuse(("spec", "dataset", "name"), "must be the name of a Dataset")
    if of.get("namespace") not in (None, raw["metadata"].get("namespace")):
        judge.refuse(("spec", "dataset", "namespace"), "must be the namespace of the object itself")
    judge.one_of(("spec", "policy"), spec.get("policy"), _WHEN)
    for name, when in (("schedule", "Cron"), ("runAfter", "OnEvent")):
        if (spec.get("policy") == when) != bool(spec.get(name)):
            judge.refuse(("spec", name), f"belongs to policy {when}, which needs it")
    for index, item in enumerate(judge.items(("spec", "target"), spec.get("target"))):
        path: yaml.Path = ("spec", "target", index)
        target = judge.mapping(path, item, required=True)
        judge.known(path, target, ("path", "replicas"))
        if target and (not isinstance(target.get("path"), str) or not target["path"].startswith("/")):
            judge.refuse((*path, "path"), "must be a path within the dataset, beginning with /")
        judge.whole((*path, "replicas"), target.get("replicas"), 1, MAX_REPLICAS)
    nested.refuse_secrets(judge, ("spec",), spec)
