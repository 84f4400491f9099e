"""ConfigMaps of a profile: never the cluster's own, and no secret in plain text."""

from __future__ import annotations

import pytest

from tests.profiles.policies.wishes import accepted, refused, wish

SLICES = """version: v1
sharing:
  timeSlicing:
    resources:
      - {name: nvidia.com/gpu, replicas: 4}
"""
SCHEDULER = """actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: gang
    enablePreemptable: false
  - {name: conformance, arguments: {tokens: 5}}
"""


def config(data: object = None, name: str = "a", namespace: str = "gpu-operator", **body: object):
    return wish("ConfigMap", "v1", name=name, namespace=namespace, data=data or {"any": SLICES}, **body)


@pytest.mark.parametrize(
    "data",
    [
        {"any": SLICES},
        {"volcano-scheduler.conf": SCHEDULER},
        {"env": "PASSWORD=${DB_PASSWORD}\nexport TOKEN=$(cat /run/token)\napi_token:\n"},
        {"conf": "bearer_token_file: /var/run/secrets/token\npasswordSecretRef: {name: a, key: b}\n"},
        {"conf": "url: https://example.org:8443/a@b\ntoken: {{ .Values.token }}"},
    ],
)
def test_slices_and_scheduler_configurations_are_accepted(data):
    assert accepted(config(data)).policies


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("tls.key", "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n"),
        ("id", "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n"),
        ("aws", "aws_access_key_id = AKIAIOSFODNN7EXAMPLE"),
        ("jwt", "use eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlMTIz here"),
        ("git", "ghp_" + "a" * 36),
        ("url", "postgres://user:hunter2@db.example.org/x"),
        ("kubeconfig", "users:\n- user:\n    client-key-data: LS0t\n"),
        ("password", "hunter2"),
        ("app.yaml", "db:\n  password: hunter2\n"),
        ("app.json", '{"a": 1, "clientSecret": "abc"}'),
        ("app.ini", "[db]\nuser=a\ndb_password = hunter2"),
        ("list", "- token: abcdef"),
    ],
)
def test_what_looks_like_a_secret_is_refused(key, text):
    assert "looks like" in refused(config({key: text}))[f"data.{key}"]


@pytest.mark.parametrize(
    "name", ["kube-root-ca.crt", "coredns", "kubeadm-config", "extension-apiserver-authentication"]
)
def test_the_clusters_own_are_left_alone_in_any_namespace(name):
    assert "cluster's own" in refused(config(name=name))["metadata.name"]


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-node-lease", "setpoint-system"])
def test_none_is_written_where_kubernetes_and_setpoint_keep_theirs(namespace):
    assert "belongs to" in refused(config(namespace=namespace))["metadata.namespace"]


@pytest.mark.parametrize(
    ("wanted", "where"),
    [
        (config(binaryData={"a": "AAAA"}), "binaryData"),
        (config({"a/b": "x"}), "data.a/b"),
        (config({"..": "x"}), "data..."),
        (config({"a": 1}), "data.a"),
        (config({f"k{n}": "x" for n in range(65)}), "data"),
        (config({"a": "x" * 33_000}), ""),
        (config(immutable="yes"), "immutable"),
    ],
)
def test_what_nobody_could_read_or_bound_is_refused(wanted, where):
    refusal = refused(wanted)
    assert not where or where in refusal, refusal
