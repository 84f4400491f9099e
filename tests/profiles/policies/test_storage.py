"""Storage of a profile: what could reach a node's own files or lose data unsaid is refused, with its place."""

from __future__ import annotations

from typing import Any

import pytest

from tests.profiles.policies.wishes import accepted, refused, warnings_of, wish

NODE = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}


def storage_class(**body: Any) -> dict[str, Any]:
    return wish("StorageClass", "storage.k8s.io/v1", **{"provisioner": "nfs.csi.k8s.io", **body})


def volume(**spec: Any) -> dict[str, Any]:
    base = {"capacity": {"storage": "1Ti"}, "accessModes": ["ReadWriteMany"]}
    return wish("PersistentVolume", "v1", spec=base | spec)


def local(path: str, **spec: Any) -> dict[str, Any]:
    return volume(**{"local": {"path": path}, "nodeAffinity": NODE, **spec})


def nfs(**spec: Any) -> dict[str, Any]:
    return volume(**{"nfs": {"server": "10.0.0.9", "path": "/export"}, **spec})


def claim(namespace: str = "team", **spec: Any) -> dict[str, Any]:
    base = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Ti"}}}
    return wish("PersistentVolumeClaim", "v1", namespace=namespace, spec=base | spec)


@pytest.mark.parametrize(
    "good",
    [
        storage_class(
            parameters={"server": "10.0.0.9", "share": "/export"}, mountOptions=["nfsvers=4.1", "nconnect=8"]
        ),
        storage_class(metadata={"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}),
        storage_class(parameters={"csi.storage.k8s.io/provisioner-secret-name": "ceph"}),
        local("/mnt/nvme0/models"),
        nfs(claimRef={"name": "a", "namespace": "team"}, mountOptions=["hard"]),
        claim(storageClassName="", volumeName="a"),
    ],
)
def test_what_a_site_needs_is_accepted(good):
    assert accepted(good).policies


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/etc/kubernetes",
        "/var/lib/kubelet",
        "/mnt",
        "/mnt/",
        "/mnt/../etc",
        "/mntx/a",
        "mnt/a",
        "/root",
        "/mnt/a/..",
    ],
)
def test_a_local_volume_is_no_way_to_the_nodes_own_files(path):
    assert "own files" in refused(local(path))["spec.local.path"]


@pytest.mark.parametrize(
    ("wanted", "where", "words"),
    [
        (volume(hostPath={"path": "/mnt/a"}), "spec.hostPath", "node's own files"),
        (volume(csi={"driver": "x", "volumeHandle": "y"}), "spec.csi", "not known here"),
        (volume(), "spec", "nfs or local"),
        (local("/mnt/a", nodeAffinity=None), "spec.nodeAffinity", "which node"),
        (local("/mnt/a", nodeAffinity={"required": {"nodeSelectorTerms": []}}), "spec.nodeAffinity", "which node"),
        (local("/mnt/a", volumeMode="Block"), "spec.volumeMode", "raw disk"),
        (nfs(persistentVolumeReclaimPolicy="Recycle"), "spec.persistentVolumeReclaimPolicy", "Retain, Delete"),
        (nfs(mountOptions=["bind"]), "spec.mountOptions[0]", "opens more"),
        (nfs(mountOptions=["ro,bind"]), "spec.mountOptions[0]", "one mount option"),
        (nfs(nfs={"server": "a b", "path": "/x"}), "spec.nfs.server", "name or address"),
        (nfs(nfs={"server": "a", "path": "x"}), "spec.nfs.path", "beginning with /"),
        (nfs(capacity={"cpu": "1"}), "spec.capacity", "storage"),
        (nfs(claimRef={"name": "a"}), "spec.claimRef", "name and namespace"),
        (nfs(accessModes=["Any"]), "spec.accessModes[0]", "ReadWriteOnce"),
        (storage_class(reclaimPolicy="Recycle"), "reclaimPolicy", "Retain, Delete"),
        (storage_class(parameters={"adminPassword": "x"}), "parameters.adminPassword", "plain text"),
        (storage_class(provisioner=""), "provisioner", "provisioner's name"),
        (claim("kube-system"), "metadata.namespace", "belongs to Kubernetes"),
        (claim("setpoint-system"), "metadata.namespace", "belongs to Setpoint"),
        (claim(dataSource={"kind": "VolumeSnapshot", "name": "a"}), "spec.dataSource", "not known here"),
    ],
)  # fmt: skip
def test_what_is_not_for_a_profile_is_refused_with_its_place(wanted, where, words):
    assert words in refused(wanted)[where]


def test_the_controllers_annotations_are_not_written():
    by = {"annotations": {"pv.kubernetes.io/provisioned-by": "local-volume-provisioner-n1"}}
    raw = nfs()
    raw["metadata"] |= by
    assert "volume controller" in refused(raw)["metadata.annotations.pv.kubernetes.io/provisioned-by"]


def test_a_second_default_class_of_one_profile_is_refused():
    default = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    two = [storage_class(name=name, metadata=default) for name in ("fast", "slow")]
    assert any("default for all claims" in message for message in refused(*two).values())


def test_data_that_goes_with_its_claim_is_told():
    assert "takes the volume's data along" in warnings_of(nfs(persistentVolumeReclaimPolicy="Delete"))["deletes-data"]
    assert "deletes-data" not in warnings_of(nfs(persistentVolumeReclaimPolicy="Retain"))


def test_a_claim_says_what_it_waits_for():
    assert "StorageClass fast is not in this profile" in warnings_of(claim(storageClassName="fast"))["not-here"]
    assert "not-here" not in warnings_of(claim(volumeName="a"), nfs())
