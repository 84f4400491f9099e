"""Checks of Rook's objects of Ceph: a cluster takes raw disks, so each of them is named, and nothing erases data.

Source: the definitions of Rook 1.20.6 (ceph.rook.io/v1), and its CephCluster documentation on `storage` and
`cleanupPolicy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common import yaml
from profiles.policies import nested
from profiles.policies.components.fluid import is_local
from profiles.policies.kubernetes import Judge

_CLUSTER = (
    "annotations", "cephConfig", "cephConfigFromSecret", "cephVersion", "cleanupPolicy",
    "continueUpgradeAfterChecksEvenIfNotHealthy", "crashCollector", "csi", "dashboard", "dataDirHostPath",
    "disruptionManagement", "external", "healthCheck", "labels", "logCollector", "mgr", "mon", "monitoring", "network",
    "placement", "priorityClassNames", "removeOSDsIfOutAndSafeToRemove", "resources", "security", "skipUpgradeChecks",
    "storage", "upgradeOSDRequiresHealthyPGs", "waitTimeoutForHealthyOSDInMinutes",
)  # fmt: skip
_POOL = (
    "application", "compressionMode", "crushRoot", "deviceClass", "enableCrushUpdates", "enableRBDStats",
    "erasureCoded", "failureDomain", "mirroring", "name", "parameters", "quotas", "replicated", "statusCheck",
)  # fmt: skip
_FILESYSTEM = (
    "dataPools", "metadataPool", "metadataServer", "mirroring", "preserveFilesystemOnDelete", "preservePoolNames",
    "preservePoolsOnDelete", "statusCheck",
)  # fmt: skip
_OBJECT_STORE = (
    "allowUsersInNamespaces", "auth", "dataPool", "defaultRealm", "gateway", "healthCheck", "hosting", "metadataPool",
    "preservePoolsOnDelete", "protocols", "security", "sharedPools", "zone",
)  # fmt: skip
DATA_FOLDER = "/var/lib/rook"
"""Where Rook's documentation has the monitors keep their state; below it, or where local volumes may be."""
_ERASES = {
    ("cleanupPolicy", "confirmation"): "has Rook destroy all data once the object is deleted",
    ("cleanupPolicy", "wipeDevicesFromOtherClusters"): "wipes disks that another Ceph cluster uses",
    ("storage", "migration", "confirmation"): "destroys every OSD and makes it again on its disk",
    ("storage", "store", "updateStore"): "destroys every OSD and makes it again on its disk",
}
_TAKES_ALL = "formats disks that are not named, those with a site's own data too: name each under nodes[].devices"


def ceph_cluster(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _CLUSTER)
    for path, why in _ERASES.items():
        value: Any = spec
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        if value:
            judge.refuse(("spec", *path), f"{why}: do it by hand, where it is meant", code="destroys-data")
    storage = judge.mapping(("spec", "storage"), spec.get("storage"))
    for at, value in nested.entries(storage, ("spec", "storage")):
        if (at[-1] == "useAllDevices" and value not in (None, False)) or (
            at[-1] in ("deviceFilter", "devicePathFilter") and value
        ):
            judge.refuse(at, _TAKES_ALL, code="destroys-data")
    _disks(judge, storage)
    folder = spec.get("dataDirHostPath")
    is_rooks = isinstance(folder, str) and (folder == DATA_FOLDER or folder.startswith(f"{DATA_FOLDER}/"))
    if folder is not None and not (is_local(folder) or (is_rooks and ".." not in folder.split("/"))):
        where = f"must be {DATA_FOLDER} or below /mnt, /media or /srv: elsewhere are the node's own files"
        judge.refuse(("spec", "dataDirHostPath"), where, code="host-path")
    mon = judge.mapping(("spec", "mon"), spec.get("mon"))
    count = judge.whole(("spec", "mon", "count"), mon.get("count"), 0, 9)
    if count is not None and count and count % 2 == 0:
        judge.warn(
            ("spec", "mon", "count"), "an even number of monitors bears no more failures than one less", "quorum"
        )
    if spec.get("removeOSDsIfOutAndSafeToRemove"):
        message = "Rook removes OSDs by itself then, outside of any plan"
        judge.warn(("spec", "removeOSDsIfOutAndSafeToRemove"), message, "own-removals")
    nested.refuse_secrets(judge, ("spec",), spec)


def _disks(judge: Judge, storage: Mapping[str, Any]) -> None:
    named = judge.items(("spec", "storage", "devices"), storage.get("devices"))
    judge.boolean(("spec", "storage", "useAllNodes"), storage.get("useAllNodes"))
    nodes = judge.items(("spec", "storage", "nodes"), storage.get("nodes"))
    if storage.get("useAllNodes") and named:
        message = "a disk of such a name is formatted on every node, also on those that join later"
        judge.refuse(("spec", "storage", "useAllNodes"), f"{message}: name the nodes", code="destroys-data")
    for index, item in enumerate(nodes):
        path: yaml.Path = ("spec", "storage", "nodes", index)
        node = judge.mapping(path, item, required=True)
        if node and not isinstance(node.get("name"), str):
            judge.refuse((*path, "name"), "must be the node's name")
    if named or any(isinstance(node, dict) and node.get("devices") for node in nodes):
        message = "Rook makes OSDs of the named disks, which takes those that are empty, for good"
        judge.warn(("spec", "storage"), message, "takes-disks")


def block_pool(judge: Judge, raw: Mapping[str, Any]) -> None:
    _pool(judge, ("spec",), raw.get("spec"))


def _pool(judge: Judge, path: yaml.Path, raw: Any) -> None:
    spec = judge.mapping(path, raw, required=True)
    judge.known(path, spec, _POOL)
    copies = judge.mapping((*path, "replicated"), spec.get("replicated"))
    coded = judge.mapping((*path, "erasureCoded"), spec.get("erasureCoded"))
    if spec and bool(copies.get("size")) == bool(coded.get("dataChunks")):
        judge.refuse(path, "must have replicated.size, or erasureCoded, and not both")
    judge.whole((*path, "replicated", "size"), copies.get("size"), 0, 100)
    judge.boolean((*path, "replicated", "requireSafeReplicaSize"), copies.get("requireSafeReplicaSize"))
    if copies.get("size") == 1:
        judge.warn((*path, "replicated", "size"), "one copy: a disk that fails takes its data along", "one-copy")
    judge.whole((*path, "erasureCoded", "dataChunks"), coded.get("dataChunks"), 0, 100)
    judge.whole((*path, "erasureCoded", "codingChunks"), coded.get("codingChunks"), 0, 100)


def filesystem(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _FILESYSTEM)
    if not spec:
        return
    _pool(judge, ("spec", "metadataPool"), spec.get("metadataPool"))
    for index, pool in enumerate(judge.items(("spec", "dataPools"), spec.get("dataPools"), required=True)):
        _pool(judge, ("spec", "dataPools", index), pool)
    server = judge.mapping(("spec", "metadataServer"), spec.get("metadataServer"), required=True)
    if server and server.get("activeCount") is None:
        judge.refuse(("spec", "metadataServer", "activeCount"), "must be a whole number: metadata servers at work")
    judge.whole(("spec", "metadataServer", "activeCount"), server.get("activeCount"), 1, 50)
    nested.refuse_secrets(judge, ("spec",), spec)


def object_store(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _OBJECT_STORE)
    for name in ("metadataPool", "dataPool"):
        if spec.get(name):
            _pool(judge, ("spec", name), spec[name])
    has_pools = bool(spec.get("metadataPool")) and bool(spec.get("dataPool"))
    if spec and not (has_pools or spec.get("sharedPools") or spec.get("zone")):
        judge.refuse(("spec",), "must have metadataPool and dataPool, or sharedPools, or a zone")
    gateway = judge.mapping(("spec", "gateway"), spec.get("gateway"))
    judge.whole(("spec", "gateway", "instances"), gateway.get("instances"), 0, 1000)
    for name in ("port", "securePort"):
        judge.whole(("spec", "gateway", name), gateway.get(name), 0, 65535)
    nested.refuse_node_access(judge, ("spec", "gateway"), gateway)
    nested.refuse_secrets(judge, ("spec",), spec)
