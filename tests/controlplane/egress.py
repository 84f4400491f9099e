"""The API server's way to webhooks, API services and kubelets where their addresses lead nowhere from this computer.

An HTTP CONNECT proxy at a loopback port, which knows the API server by a certificate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.controlplane.pki import Authority

SELECTOR = """\
apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
  - name: cluster
    connection:
      proxyProtocol: HTTPConnect
      transport:
        tcp:
          url: https://127.0.0.1:{port}
          tlsConfig: {{caBundle: {folder}/ca.crt, clientCert: {folder}/egress.crt, clientKey: {folder}/egress.key}}
"""


def files(port: int, folder: Path, authority: Authority) -> Mapping[str, str]:
    """Return what the flags refer to, by file names in that folder; nothing without a port."""
    if not port:
        return {}
    certificate, key = authority.client("egress")
    return {
        "egress.yaml": SELECTOR.format(port=port, folder=folder),
        "egress.crt": certificate,
        "egress.key": key,
    }


def flags(port: int, folder: Path) -> Sequence[str]:
    """Return the API server's flags, those that API services know it by among them, as kubeadm sets them."""
    if not port:
        return []
    return [
        f"--egress-selector-config-file={folder}/egress.yaml",
        f"--requestheader-client-ca-file={folder}/ca.crt",
        "--requestheader-allowed-names=egress",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={folder}/egress.crt",
        f"--proxy-client-key-file={folder}/egress.key",
    ]
