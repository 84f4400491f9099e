"""Objects that components bring kinds for: what a profile may hold of each, and what it must never."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from components.catalog import catalog
from profiles.document import schema
from profiles.document.document import InvalidProfile
from profiles.policies.components.rows import ROWS
from tests.profiles.policies.wishes import accepted, refused, warnings_of

EXAMPLES: dict[str, dict[str, Any]] = {
    example.body["kind"]: json.loads(json.dumps(example.body))
    for component in catalog.all()
    for example in component.examples
    if example.body["kind"] in {row.name for row in ROWS}
}
RUBBISH: tuple[Any, ...] = (None, True, 0, -1, "", "x", [], [1], [None], [[]], {}, {"a": 1}, [{"a": []}], {"a": [{}]})


def like(kind: str, path: str, value: Any) -> dict[str, Any]:
    """The example of the kind with one field of its own: `spec.storage.nodes.0.name`."""
    raw = copy.deepcopy(EXAMPLES[kind])
    *way, last = path.split(".")
    here: Any = raw
    for step in way:
        here = here[int(step)] if isinstance(here, list) else here.setdefault(step, {})
    here[int(last) if isinstance(here, list) else last] = value
    return raw


def places(raw: Any, path: str = "") -> Iterator[str]:
    pairs = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    for key, value in pairs:
        if "." in str(key):
            continue
        yield f"{path}{key}"
        yield from places(value, f"{path}{key}.")


def test_each_kind_has_an_example_that_a_profile_accepts():
    assert EXAMPLES.keys() == {row.name for row in ROWS}
    for kind, raw in EXAMPLES.items():
        assert [policy.kind for policy in accepted(raw).policies] == [kind]


def fields(kind: str) -> list[str]:
    """All that its spec may have, as a refusal names them."""
    return refused(like(kind, "spec.surprise", 1))["spec.surprise"].partition("there are ")[2].split(", ")


def reasons(raw: dict[str, Any]) -> list[tuple[str, str]]:
    """Path and message of each reason to refuse it; empty: it is accepted."""
    try:
        schema.flatten(schema.parse(json.dumps({"policies": [raw]})), None, origin="mine r1")
    except InvalidProfile as refusal:
        return [(note.path, note.message) for note in refusal.problems] or [("", "")]
    return []


@pytest.mark.parametrize("kind", sorted(EXAMPLES))
def test_rubbish_anywhere_is_accepted_or_refused_in_words(kind):
    everywhere = {"spec", *(f"spec.{name}" for name in fields(kind)), *places(EXAMPLES[kind]["spec"], "spec.")}
    for path in sorted(everywhere):
        for value in RUBBISH:
            assert all(where and why for where, why in reasons(like(kind, path, value))), (path, value)


@pytest.mark.parametrize("kind", sorted(EXAMPLES))
def test_no_field_that_is_not_known_is_let_through(kind):
    assert "is not known here" in refused(like(kind, "spec.surprise", 1))["spec.surprise"]
    assert "is written by the cluster" in refused({**EXAMPLES[kind], "status": {}})["status"]
    if "namespace" in EXAMPLES[kind]["metadata"]:
        for space in ("kube-system", "setpoint-system"):
            assert "metadata.namespace" in refused(like(kind, "metadata.namespace", space))


HOST = [{"name": "a", "hostPath": {"path": "/"}}]
OPTIONS = "spec.mounts.0.options"


@pytest.mark.parametrize(
    ("kind", "path", "value", "where"),
    [
        ("Dataset", OPTIONS, {"aws.secretKey": "hunter2"}, "spec.mounts[0].options.aws.secretKey"),
        ("Dataset", OPTIONS, {"access-key": "A"}, "spec.mounts[0].options.access-key"),
        ("Dataset", OPTIONS, {"fs.oss.accessKeySecret": "a"}, "spec.mounts[0].options.fs.oss.accessKeySecret"),
        ("Dataset", OPTIONS, {"metaurl": "redis://:word@r/1"}, "spec.mounts[0].options.metaurl"),
        ("Dataset", "spec.sharedOptions", {"token": "a"}, "spec.sharedOptions.token"),
        ("Dataset", "spec.mounts.0.mountPoint", "local:///etc", "spec.mounts[0].mountPoint"),
        ("Dataset", "spec.mounts.0.mountPoint", "local:///mnt/../etc", "spec.mounts[0].mountPoint"),
        ("Dataset", "spec.mounts.0.mountPoint", "/etc", "spec.mounts[0].mountPoint"),
        ("Dataset", "spec.mounts", [], "spec.mounts"),
        ("Dataset", "spec.dataRestoreLocation", {"path": "local:///"}, "spec.dataRestoreLocation"),
        ("AlluxioRuntime", "spec.tieredstore.levels.0.path", "/var/lib/kubelet", "spec.tieredstore.levels[0].path"),
        ("AlluxioRuntime", "spec.tieredstore.levels.0.path", "/mnt/a,/etc", "spec.tieredstore.levels[0].path"),
        ("AlluxioRuntime", "spec.tieredstore.levels.0.path", None, "spec.tieredstore.levels[0].path"),
        ("AlluxioRuntime", "spec.tieredstore.levels.0.quota", "lots", "spec.tieredstore.levels[0].quota"),
        ("AlluxioRuntime", "spec.volumes", HOST, "spec.volumes[0].hostPath"),
        ("AlluxioRuntime", "spec.properties", {"s3a.secretKey": "a"}, "spec.properties.s3a.secretKey"),
        ("AlluxioRuntime", "spec.replicas", -1, "spec.replicas"),
        ("JuiceFSRuntime", "spec.fuse", {"env": [{"name": "TOKEN", "value": "a"}]}, "spec.fuse.env[0].value"),
        ("JuiceFSRuntime", "spec.configs", ["secret-key=a"], "spec.configs"),
        ("DataLoad", "spec.ttlSecondsAfterFinished", 60, "spec.ttlSecondsAfterFinished"),
        ("DataLoad", "spec.dataset.namespace", "team-b", "spec.dataset.namespace"),
        ("DataLoad", "spec.policy", "Cron", "spec.schedule"),
        ("DataLoad", "spec.schedule", "* * * * *", "spec.schedule"),
        ("DataLoad", "spec.target.0.path", "llm", "spec.target[0].path"),
        ("SecretStore", "spec.provider", {"fake": {"data": [{"key": "a", "value": "b"}]}}, "spec.provider.fake"),
        ("SecretStore", "spec.provider.aws", {"service": "SecretsManager"}, "spec.provider"),
        ("SecretStore", "spec.provider", {"webhook": {"url": "https://v", "headers": {"Authorization": "Bearer a"}}},
         "spec.provider.webhook.headers.Authorization"),
        ("SecretStore", "spec.provider", {"webhook": {"url": "https://v", "body": '{"password": "a"}'}},
         "spec.provider.webhook.body"),
        ("SecretStore", "spec.provider", {"webhook": {"url": "https://me:word@v"}}, "spec.provider.webhook.url"),
        ("SecretStore", "spec.provider.vault.headers", {"X-Vault-Token": "a"},
         "spec.provider.vault.headers.X-Vault-Token"),
        ("SecretStore", "spec.provider", {"delinea": {"clientSecret": {"value": "a"}}},
         "spec.provider.delinea.clientSecret.value"),
        ("SecretStore", "spec.provider", {"secretserver": {"password": {"value": "a"}}},
         "spec.provider.secretserver.password.value"),
        ("SecretStore", "spec.provider", {"kubernetes": {"remoteNamespace": "kube-system"}},
         "spec.provider.kubernetes.remoteNamespace"),
        ("ClusterSecretStore", "spec.provider.vault.auth.kubernetes.serviceAccountRef.namespace", "setpoint-system",
         "spec.provider.vault.auth.kubernetes.serviceAccountRef.namespace"),
        ("ExternalSecret", "spec.target.manifest", {"apiVersion": "v1", "kind": "Pod"}, "spec.target.manifest"),
        ("ExternalSecret", "spec.target.template", {"type": "kubernetes.io/service-account-token"},
         "spec.target.template.type"),
        ("ExternalSecret", "spec.target.template", {"data": {"password": "hunter2"}},
         "spec.target.template.data.password"),
        ("ExternalSecret", "spec.target.template", {"data": {"a.ini": "user=me\npassword = hunter2"}},
         "spec.target.template.data.a.ini"),
        ("ExternalSecret", "spec.target.template", {"templateFrom": [{"literal": "token: abc"}]},
         "spec.target.template.templateFrom[0].literal"),
        ("ExternalSecret", "spec.secretStoreRef", None, "spec.secretStoreRef"),
        ("ExternalSecret", "spec.data", [], "spec"),
        ("ClusterExternalSecret", "spec.namespaceSelectors", [{}], "spec.namespaceSelectors[0]"),
        ("ClusterExternalSecret", "spec.namespaceSelectors", [], "spec.namespaceSelectors"),
        ("ClusterExternalSecret", "spec.namespaces", ["kube-system"], "spec.namespaces[0]"),
        ("ClusterExternalSecret", "spec.namespaceSelectors",
         [{"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}],
         "spec.namespaceSelectors[0].matchLabels.kubernetes.io/metadata.name"),
        ("ClusterExternalSecret", "spec.namespaceSelectors",
         [{"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}],
         "spec.namespaceSelectors[0].matchExpressions[0].operator"),
        ("ClusterExternalSecret", "spec.externalSecretSpec.secretStoreRef.kind", "SecretStore",
         "spec.externalSecretSpec.secretStoreRef.kind"),
        ("CephCluster", "spec.storage.useAllDevices", True, "spec.storage.useAllDevices"),
        ("CephCluster", "spec.storage.nodes.0.useAllDevices", True, "spec.storage.nodes[0].useAllDevices"),
        ("CephCluster", "spec.storage.deviceFilter", "^nvme", "spec.storage.deviceFilter"),
        ("CephCluster", "spec.storage.nodes.0.devicePathFilter", ".*", "spec.storage.nodes[0].devicePathFilter"),
        ("CephCluster", "spec.storage", {"useAllNodes": True, "devices": [{"name": "sdb"}]},
         "spec.storage.useAllNodes"),
        ("CephCluster", "spec.cleanupPolicy.confirmation", "yes-really-destroy-data",
         "spec.cleanupPolicy.confirmation"),
        ("CephCluster", "spec.cleanupPolicy.wipeDevicesFromOtherClusters", True,
         "spec.cleanupPolicy.wipeDevicesFromOtherClusters"),
        ("CephCluster", "spec.storage.store.updateStore", "yes-really-update-store",
         "spec.storage.store.updateStore"),
        ("CephCluster", "spec.storage.migration.confirmation", "yes-really-migrate-osds",
         "spec.storage.migration.confirmation"),
        ("CephCluster", "spec.dataDirHostPath", "/var/lib/rook/../kubelet", "spec.dataDirHostPath"),
        ("CephCluster", "spec.dataDirHostPath", "/etc", "spec.dataDirHostPath"),
        ("CephCluster", "spec.mon.count", 10, "spec.mon.count"),
        ("CephBlockPool", "spec.erasureCoded", {"dataChunks": 2, "codingChunks": 1}, "spec"),
        ("CephBlockPool", "spec.replicated", None, "spec"),
        ("CephFilesystem", "spec.dataPools", [], "spec.dataPools"),
        ("CephFilesystem", "spec.metadataServer", {"activeStandby": True}, "spec.metadataServer.activeCount"),
        ("CephObjectStore", "spec.dataPool", None, "spec"),
        ("CephObjectStore", "spec.gateway.additionalVolumeMounts",
         [{"subPath": "a", "volumeSource": {"hostPath": {"path": "/"}}}],
         "spec.gateway.additionalVolumeMounts[0].volumeSource.hostPath"),
        ("VirtualService", "spec.http.0.route.0.destination", {}, "spec.http[0].route[0].destination"),
        ("VirtualService", "spec.http.0.route.0.weight", -1, "spec.http[0].route[0].weight"),
        ("VirtualService", "spec.http", [], "spec"),
        ("DestinationRule", "spec.subsets.1.name", "v1", "spec.subsets[1].name"),
        ("DestinationRule", "spec.host", "", "spec.host"),
        ("Gateway", "spec.selector", {}, "spec.selector"),
        ("Gateway", "spec.servers.0.port.number", 70_000, "spec.servers[0].port.number"),
        ("PeerAuthentication", "spec.mtls.mode", "OFF", "spec.mtls.mode"),
        ("PeerAuthentication", "spec.portLevelMtls", {"80": {"mode": "DISABLE"}}, "spec.selector"),
        ("AuthorizationPolicy", "spec.action", "CUSTOM", "spec.provider"),
        ("AuthorizationPolicy", "spec.targetRef", {"kind": "Service", "name": "a"}, "spec"),
        ("Controller", "spec.jwtKeyRef", None, "spec.jwtKeyRef"),
        ("Controller", "spec.slurmKeyRef", {"name": "a"}, "spec.slurmKeyRef.key"),
        ("Controller", "spec.template", {"spec": {"volumes": HOST}}, "spec.template.spec.volumes[0].hostPath"),
        ("NodeSet", "spec.template", {"spec": {"hostPID": True}}, "spec.template.spec.hostPID"),
        ("NodeSet", "spec.template", {"spec": {"serviceAccountName": "admin"}},
         "spec.template.spec.serviceAccountName"),
        ("NodeSet", "spec.slurmd.securityContext", {"privileged": True}, "spec.slurmd.securityContext.privileged"),
        ("NodeSet", "spec.slurmd.securityContext", {"capabilities": {"add": ["SYS_ADMIN"]}},
         "spec.slurmd.securityContext.capabilities.add"),
        ("NodeSet", "spec.slurmd.env", [{"name": "API_KEY", "value": "a"}], "spec.slurmd.env[0].value"),
        ("NodeSet", "spec.partition.config", "MaxTime=1\nSlurmUser=root", "spec.partition.config"),
        ("NodeSet", "spec.controllerRef", {}, "spec.controllerRef"),
        ("LoginSet", "spec.sssdConfRef", None, "spec.sssdConfRef"),
        ("LoginSet", "spec.controllerRef.namespace", "other", "spec.controllerRef.namespace"),
        ("ServiceMonitor", "spec.endpoints.0.bearerTokenFile", "/var/run/secrets/kubernetes.io/serviceaccount/token",
         "spec.endpoints[0].bearerTokenFile"),
        ("ServiceMonitor", "spec.endpoints.0.tlsConfig", {"keyFile": "/a"}, "spec.endpoints[0].tlsConfig.keyFile"),
        ("ServiceMonitor", "spec.endpoints.0.proxyUrl", "http://me:word@p", "spec.endpoints[0].proxyUrl"),
        ("ServiceMonitor", "spec.selector", None, "spec.selector"),
        ("PodMonitor", "spec.podMetricsEndpoints", [], "spec.podMetricsEndpoints"),
        ("PrometheusRule", "spec.groups.0.rules.0", {"expr": "up"}, "spec.groups[0].rules[0]"),
        ("PrometheusRule", "spec.groups.0.rules.0", {"alert": "A", "record": "b", "expr": "up"},
         "spec.groups[0].rules[0]"),
        ("PrometheusRule", "spec.groups.0.rules.0.expr", True, "spec.groups[0].rules[0].expr"),
    ],
)  # fmt: skip
def test_what_is_not_for_a_profile_is_refused_with_its_place(kind, path, value, where):
    assert where in refused(like(kind, path, value))


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("Dataset", "spec.mounts.0.mountPoint", "local:///mnt/nvme0/models"),
        ("Dataset", "spec.mounts.0.mountPoint", "pvc://models"),
        ("AlluxioRuntime", "spec.tieredstore.levels.0", {"mediumtype": "SSD", "path": "/mnt/a,/mnt/b",
                                                         "quotaList": "1Gi,2Gi"}),
        ("AlluxioRuntime", "spec.volumes", [{"name": "a", "secret": {"secretName": "b"}}]),
        ("DataLoad", "spec", {"dataset": {"name": "models"}, "policy": "Cron", "schedule": "@daily"}),
        ("SecretStore", "spec.provider", {"webhook": {
            "url": "https://v", "headers": {"Authorization": "Bearer {{ .a.token }}", "Accept": "application/json"},
            "body": '{"password": "{{ .a.password }}"}',
            "secrets": [{"name": "a", "secretRef": {"name": "vault"}}]}}),
        ("SecretStore", "spec.provider", {"secretserver": {"username": {"value": "me"},
                                                           "password": {"secretRef": {"name": "a", "key": "b"}}}}),
        ("ExternalSecret", "spec.target.template", {"data": {"password": "{{ .token }}"}}),
        ("CephCluster", "spec.storage", {"storageClassDeviceSets": []}),
        ("CephCluster", "spec.dataDirHostPath", "/mnt/rook"),
        ("CephObjectStore", "spec", {"sharedPools": {"metadataPoolName": "a", "dataPoolName": "b"}}),
        ("AuthorizationPolicy", "spec", {}),
        ("Controller", "spec", {"external": True, "externalConfig": {"host": "slurm.example.org"}}),
        ("NodeSet", "spec.slurmd.securityContext", {"capabilities": {"add": ["IPC_LOCK"]}}),
    ],
)  # fmt: skip
def test_what_a_site_needs_is_accepted(kind, path, value):
    assert accepted(like(kind, path, value)).policies


@pytest.mark.parametrize(
    ("kind", "path", "value", "code"),
    [
        ("AlluxioRuntime", "spec.fuse", {"image": "example.org/mine"}, "own-image"),
        ("ClusterSecretStore", "spec.conditions", [], "every-namespace"),
        ("CephCluster", "spec.mon.count", 3, "takes-disks"),
        ("CephCluster", "spec.mon.count", 4, "quorum"),
        ("CephCluster", "spec.removeOSDsIfOutAndSafeToRemove", True, "own-removals"),
        ("CephBlockPool", "spec.replicated", {"size": 1}, "one-copy"),
        ("VirtualService", "spec.http.0.fault", {"abort": {"httpStatus": 500}}, "own-faults"),
        ("DestinationRule", "spec.trafficPolicy", {"tls": {"mode": "DISABLE"}}, "plain-text"),
        ("DestinationRule", "spec.trafficPolicy", {"tls": {"insecureSkipVerify": True}}, "unverified"),
        ("PeerAuthentication", "spec.mtls.mode", "STRICT", "strict-mtls"),
        ("AuthorizationPolicy", "spec", {"action": "ALLOW"}, "lets-nothing-in"),
        ("AuthorizationPolicy", "spec", {"action": "DENY", "rules": [{}]}, "lets-nothing-in"),
        ("NodeSet", "spec.workloadDisruptionProtection", False, "ends-jobs"),
        ("LoginSet", "spec.rootSshAuthorizedKeys", "ssh-ed25519 AAAA", "root-access"),
    ],
)
def test_what_a_person_should_think_of_is_told(kind, path, value, code):
    assert code in warnings_of(like(kind, path, value))


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("AlluxioRuntime", "Dataset models/models"),
        ("DataLoad", "Dataset models/models"),
        ("ExternalSecret", "SecretStore team-a/vault"),
        ("ClusterExternalSecret", "ClusterSecretStore vault"),
        ("VirtualService", "Gateway inference/inference"),
        ("NodeSet", "Controller slurm/slurm"),
        ("LoginSet", "Controller slurm/slurm"),
    ],
)
def test_what_it_names_is_said_to_be_elsewhere(kind, named):
    assert f"{named} is not in this profile" in warnings_of(EXAMPLES[kind])["not-here"]
