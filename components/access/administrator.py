"""helm as a cluster administrator for a while: what the cluster's own administrator applies, and what ends it.

The end does not rest on Setpoint. The account's one token is made by a person and ends by the API server's own word;
neither Setpoint's issuer nor any other account of it may make another. An admission policy that is applied with it, and
that names the moment, refuses any caller a token of the account that would outlast it, and any pod or Secret that would
have one; so the binding that is left over is of no use. What a cluster administrator does *before* the end is
bounded by nothing in the cluster, policies least of all: a hostile one can make itself another way in.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import yaml

from clusters.models import Cluster
from common.clock import now
from contract import names

SHORTEST = timedelta(minutes=10)
TO_APPLY = timedelta(minutes=15)
"""Between printing it and making the token."""
NAME = names.HELM_ADMIN_SERVICE_ACCOUNT
ENDS = f"{NAME}-ends"
UNTIL = f"{names.GROUP}/until"
"""Annotation of the binding: when the last token ends, for people."""
_RBAC, _ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io/v1"


def text(cluster: Cluster, span: timedelta) -> str:
    """Return the YAML to apply, with the commands in front."""
    until, minutes = now() + span + TO_APPLY, int(span.total_seconds()) // 60
    lines = [
        f"# helm may be a cluster administrator in {cluster} for {minutes} min. DANGEROUS: until then nothing in the",
        "# cluster bounds what a chart does, or any holder of that token. Read it; then, within a quarter of an hour:",
        "#   kubectl apply -f THIS",
        f"#   kubectl create token {NAME} -n {names.NAMESPACE} --duration={minutes}m \\",
        f"#     | manage.py helm_credential {cluster} --admin",
        "# Plans made from then on name it, where they need it. It ends by itself; sooner, and to tidy up:",
        f"#   kubectl delete clusterrolebinding/{NAME} serviceaccount/{NAME} -n {names.NAMESPACE}",
    ]
    return "\n".join([*lines, yaml.safe_dump_all(objects(until), sort_keys=False, width=120)])


def objects(until: datetime) -> list[dict[str, Any]]:
    """The policy first: there is no moment in which the account is one without an end."""
    moment = until.strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {"app.kubernetes.io/part-of": "setpoint"}
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": names.NAMESPACE}
    return [
        _policy(moment, labels),
        {
            "apiVersion": _ADMISSION,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": ENDS, "labels": labels},
            "spec": {"policyName": ENDS, "validationActions": ["Deny"]},
        },
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": NAME, "namespace": names.NAMESPACE, "labels": labels},
            "automountServiceAccountToken": False,
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME, "labels": labels, "annotations": {UNTIL: moment}},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [account],
        },
    ]


def _policy(moment: str, labels: dict[str, str]) -> dict[str, Any]:
    """The API server writes when a token is asked for into the request itself, by its own clock."""
    rules = [
        {"apiGroups": [""], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["serviceaccounts/token"]},
        {"apiGroups": [""], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["pods", "secrets"]},
    ]
    in_time = (
        "request.resource.resource != 'serviceaccounts' || timestamp(object.metadata.creationTimestamp) "
        f"+ duration(string(object.spec.expirationSeconds) + 's') <= timestamp('{moment}')"
    )
    no_pod = f"request.resource.resource != 'pods' || object.spec.?serviceAccountName.orValue('') != '{NAME}'"
    no_secret = (
        "request.resource.resource != 'secrets' "
        f"|| object.metadata.?annotations[?'kubernetes.io/service-account.name'].orValue('') != '{NAME}'"
    )
    of_it = f"request.resource.resource != 'serviceaccounts' || request.name == '{NAME}'"
    return {
        "apiVersion": _ADMISSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": ENDS, "labels": labels},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": names.NAMESPACE}},
                "resourceRules": rules,
            },
            "matchConditions": [{"name": "is-of-the-administrator", "expression": of_it}],
            "validations": [
                {"expression": in_time, "message": f"{NAME} is an administrator until {moment}", "reason": "Forbidden"},
                {"expression": no_pod, "message": f"no pod runs as {NAME}", "reason": "Forbidden"},
                {"expression": no_secret, "message": f"no Secret holds a token of {NAME}", "reason": "Forbidden"},
            ],
        },
    }
