"""Names that appear in clusters: API group, annotations, labels, namespaces, field managers.

They are part of the contract: a cluster may hold objects written by an older version, so a name is never reused for
another meaning.
"""

from __future__ import annotations

RELEASE = "0.3.0"
"""Of Setpoint: the control plane, the agent and their images."""

GROUP = "setpoint.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "NodeTuning"
PLURAL = "nodetunings"

PROTOCOL = 1
"""Version of this contract. Control plane and agent work together when they differ by at most MAX_SKEW."""
MAX_SKEW = 1

NAMESPACE = "setpoint-system"
CHECKS_NAMESPACE = "setpoint-checks"
"""Of deploy/setpoint-checks.yaml: where the pods of active checks run, without any rights."""
CHECKS_PRIORITY_CLASS = "setpoint-checks"
"""Below every other, and without the right to displace: any pod that wants the GPUs of a check gets them."""
CHECK_LABEL = "setpoint.dev/check-run"
"""Of such a pod: the id of its run."""
CHECK_NETWORK_LABEL = "setpoint.dev/check-network"
"""Of the pod of a check that tests the pods' network: it may send, as deploy/setpoint-checks.yaml says."""
AGENT_SERVICE_ACCOUNT = "setpoint-agent"
CONTROLLER_SERVICE_ACCOUNT = "setpoint-controller"
HELM_SERVICE_ACCOUNT = "setpoint-helm"
HELM_ISSUER_SERVICE_ACCOUNT = "setpoint-helm-issuer"
"""The account whose token is kept for helm: it may only ask for tokens of HELM_SERVICE_ACCOUNT and its own."""
HELM_ADMIN_SERVICE_ACCOUNT = "setpoint-helm-admin"
"""A cluster administrator for a while: its one token is made by the customer's administrator, and ends by itself."""
AGENT_DAEMONSET = "setpoint-agent"
AGENT_LABELS = {"app.kubernetes.io/name": "setpoint-agent"}
AGENT_POLICY = "setpoint-agent-own-node"
SPEC_POLICY = "setpoint-spec-writer"
HOLD_POLICY = "setpoint-agent-hold"
"""Of deploy/setpoint-holds.yaml, with which agents may remove their own node's UNTUNED_TAINT."""

INSTALLATION_CONFIGMAP = "setpoint-installation"
"""In NAMESPACE; data.installation is the id of the one installation that may write here (law 12)."""

FIELD_MANAGER = "setpoint"
"""Server-side-apply owner of labels and annotations that a profile wants."""

CORDONED_BY = "setpoint.dev/cordoned-by"
"""Node annotation `<installation>/<step id>`, the step that may uncordon (law 5)."""
UNTUNED_TAINT = "setpoint.dev/untuned"
"""Node taint (NoSchedule) with which a kubelet registers; Setpoint removes it once the node is compliant.

Its value is the longest time that it stays (contract.holds)."""
KEEP_CORDONED = "setpoint.dev/keep-cordoned"
"""Node annotation set by a person while Setpoint holds a cordon: do not uncordon afterwards."""

AGENT_USERNAME = f"system:serviceaccount:{NAMESPACE}:{AGENT_SERVICE_ACCOUNT}"
CONTROLLER_USERNAME = f"system:serviceaccount:{NAMESPACE}:{CONTROLLER_SERVICE_ACCOUNT}"
HELM_USERNAME = f"system:serviceaccount:{NAMESPACE}:{HELM_SERVICE_ACCOUNT}"
HELM_ADMIN_USERNAME = f"system:serviceaccount:{NAMESPACE}:{HELM_ADMIN_SERVICE_ACCOUNT}"
HELM_ISSUER_USERNAME = f"system:serviceaccount:{NAMESPACE}:{HELM_ISSUER_SERVICE_ACCOUNT}"


def lease_name(node: str) -> str:
    """Name of the agent's Lease in NAMESPACE: the node's own name, so the admission policy can compare it."""
    return node
