"""Checks of storage: classes, volumes on NFS or a node's own disks, and claims; none may reach a node's own files.

Sources: kubernetes.io (storage-classes, persistent-volumes), Kubernetes' validation of updates (pkg/apis/storage and
pkg/apis/core, v1.35).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from common import yaml
from common.secret_names import looks_secret
from profiles.policies.kubernetes import Judge

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
"""An annotation; `true`: claims without a class get this one."""
RECLAIM = ("Retain", "Delete")
"""Recycle, which Kubernetes deprecates, runs `rm -rf` over a volume that is given back."""
_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_VOLUME_MODES = ("Filesystem", "Block")
LOCAL_ROOTS = ("/mnt/", "/media/", "/srv/")
"""Where a local volume may be: what the Filesystem Hierarchy Standard keeps for mounts and a site's data. Everywhere
else it would give a pod the node's own files, as hostPath does."""
_OPTION = re.compile(r"[A-Za-z0-9_.:/=-]{1,128}")
_BAD_OPTIONS = frozenset(("bind", "rbind", "move", "remount", "suid", "dev", "loop"))
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?")
_VOLUME = (
    "capacity", "accessModes", "persistentVolumeReclaimPolicy", "storageClassName", "mountOptions", "volumeMode", "nfs",
    "local", "nodeAffinity", "claimRef",
)  # fmt: skip
_CLAIM = ("accessModes", "resources", "storageClassName", "volumeMode", "volumeName", "selector")


def storage_class(judge: Judge, raw: Mapping[str, Any]) -> None:
    _text(judge, ("provisioner",), raw.get("provisioner"), "the provisioner's name, such as nfs.csi.k8s.io")
    judge.one_of(("reclaimPolicy",), raw.get("reclaimPolicy"), RECLAIM)
    judge.one_of(("volumeBindingMode",), raw.get("volumeBindingMode"), ("Immediate", "WaitForFirstConsumer"))
    judge.boolean(("allowVolumeExpansion",), raw.get("allowVolumeExpansion"))
    _options(judge, ("mountOptions",), raw.get("mountOptions"))
    judge.items(("allowedTopologies",), raw.get("allowedTopologies"))
    for name, value in judge.mapping(("parameters",), raw.get("parameters")).items():
        if not isinstance(value, str):
            judge.refuse(("parameters", name), "must be text; put it in quotes")
        elif looks_secret(name, value):
            message = "looks like a secret in plain text: name a Secret of the cluster instead"
            judge.refuse(("parameters", name), message, code="plain-secret")
    marks = raw["metadata"].get("annotations")
    default = marks.get(DEFAULT_CLASS) if isinstance(marks, dict) else None
    judge.one_of(("metadata", "annotations", DEFAULT_CLASS), default, ("true", "false"))


def is_default(storage_class: Mapping[str, Any]) -> bool:
    """Return whether claims that name no class get this one. `storage_class`: a manifest, or the body of one."""
    return ((storage_class.get("metadata") or {}).get("annotations") or {}).get(DEFAULT_CLASS) == "true"


def persistent_volume(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    if "hostPath" in spec:
        message = "gives pods the node's own files; want a local volume or NFS"
        judge.refuse(("spec", "hostPath"), message, code="host-path")
    judge.known(("spec",), {name: None for name in spec if name != "hostPath"}, _VOLUME)
    sources = [name for name in ("nfs", "local") if name in spec]
    if spec and len(sources) != 1 and "hostPath" not in spec:
        judge.refuse(("spec",), "must have nfs or local: other volumes are made for a claim, by their provisioner")
    capacity = judge.amounts(("spec", "capacity"), spec.get("capacity"), required=bool(spec))
    if capacity and "storage" not in capacity:
        judge.refuse(("spec", "capacity"), "must have storage")
    _access(judge, spec)
    _reclaim(judge, spec.get("persistentVolumeReclaimPolicy"))
    judge.one_of(("spec", "volumeMode"), spec.get("volumeMode"), _VOLUME_MODES)
    _options(judge, ("spec", "mountOptions"), spec.get("mountOptions"))
    _nfs(judge, judge.mapping(("spec", "nfs"), spec.get("nfs"), required="nfs" in spec))
    if "local" in spec:
        _local(judge, judge.mapping(("spec", "local"), spec["local"], required=True), spec)
    claim = judge.mapping(("spec", "claimRef"), spec.get("claimRef"))
    judge.known(("spec", "claimRef"), claim, ("apiVersion", "kind", "name", "namespace"))
    if claim and not (claim.get("name") and claim.get("namespace")):
        judge.refuse(("spec", "claimRef"), "must have name and namespace of the claim")


def _reclaim(judge: Judge, raw: Any) -> None:
    path: yaml.Path = ("spec", "persistentVolumeReclaimPolicy")
    judge.one_of(path, raw, RECLAIM)
    if raw == "Delete":
        judge.warn(path, "a claim that is deleted takes the volume's data along; Retain keeps it", "deletes-data")


def _nfs(judge: Judge, nfs: Mapping[str, Any]) -> None:
    judge.known(("spec", "nfs"), nfs, ("server", "path", "readOnly"))
    if not nfs:
        return
    if not isinstance(nfs.get("server"), str) or not _HOST.fullmatch(nfs["server"]):
        judge.refuse(("spec", "nfs", "server"), "must be the server's name or address")
    if not _is_path(nfs.get("path")):
        judge.refuse(("spec", "nfs", "path"), "must be the exported path, beginning with / and without ..")
    judge.boolean(("spec", "nfs", "readOnly"), nfs.get("readOnly"))


def _local(judge: Judge, local: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
    judge.known(("spec", "local"), local, ("path", "fsType"))
    path = local.get("path")
    if not _is_path(path) or not any(str(path).startswith(root) and len(str(path)) > len(root) for root in LOCAL_ROOTS):
        where = ", ".join(LOCAL_ROOTS)
        judge.refuse(("spec", "local", "path"), f"must be below {where}: elsewhere are the node's own files")
    if spec.get("volumeMode") == "Block":
        judge.refuse(("spec", "volumeMode"), "a node's raw disk is no volume here; want a file system")
    required = judge.mapping(("spec", "nodeAffinity"), spec.get("nodeAffinity")).get("required")
    terms = required.get("nodeSelectorTerms") if isinstance(required, dict) else None
    if not isinstance(terms, list) or not terms:
        judge.refuse(("spec", "nodeAffinity"), "must say with required.nodeSelectorTerms which node has the disk")


def claim(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _CLAIM)
    _access(judge, spec)
    judge.one_of(("spec", "volumeMode"), spec.get("volumeMode"), _VOLUME_MODES)
    resources = judge.mapping(("spec", "resources"), spec.get("resources"), required=bool(spec))
    judge.known(("spec", "resources"), resources, ("requests",))
    requests = judge.amounts(("spec", "resources", "requests"), resources.get("requests"), required=bool(resources))
    if requests and "storage" not in requests:
        judge.refuse(("spec", "resources", "requests"), "must have storage")
    for name in ("storageClassName", "volumeName"):
        if spec.get(name) is not None and not isinstance(spec[name], str):
            judge.refuse(("spec", name), "must be a name")


def _access(judge: Judge, spec: Mapping[str, Any]) -> None:
    for index, mode in enumerate(judge.items(("spec", "accessModes"), spec.get("accessModes"), required=bool(spec))):
        judge.one_of(("spec", "accessModes", index), mode if isinstance(mode, str) else "", _MODES)


def _options(judge: Judge, path: yaml.Path, raw: Any) -> None:
    """Options are joined by commas on a root's command line, so each must be one of them and no other thing."""
    for index, option in enumerate(judge.items(path, raw)):
        if not isinstance(option, str) or not _OPTION.fullmatch(option):
            judge.refuse((*path, index), "must be one mount option, such as nfsvers=4.1")
        elif option.partition("=")[0].lower() in _BAD_OPTIONS:
            judge.refuse((*path, index), f"{option} opens more of the node than the volume")


def _is_path(raw: Any) -> bool:
    return isinstance(raw, str) and raw.startswith("/") and raw.isprintable() and ".." not in raw.split("/")


def _text(judge: Judge, path: yaml.Path, raw: Any, what: str) -> None:
    if not isinstance(raw, str) or not raw or not raw.isprintable():
        judge.refuse(path, f"must be {what}")
