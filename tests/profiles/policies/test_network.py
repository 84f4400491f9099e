"""Network policies and autoscalers of a profile."""

from __future__ import annotations

from typing import Any

import pytest

from tests.profiles.policies.wishes import accepted, refused, warnings_of, wish

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llm"}


def policy(namespace: str = "team", **spec: Any) -> dict[str, Any]:
    return wish("NetworkPolicy", "networking.k8s.io/v1", namespace=namespace, spec={"podSelector": {}, **spec})


def cilium(namespace: str = "team", **spec: Any) -> dict[str, Any]:
    spec = {"endpointSelector": {}, **spec}
    return wish("CiliumNetworkPolicy", "cilium.io/v2", namespace=namespace, spec=spec)


def horizontal(**spec: Any) -> dict[str, Any]:
    base = {"scaleTargetRef": TARGET, "minReplicas": 1, "maxReplicas": 4}
    return wish("HorizontalPodAutoscaler", "autoscaling/v2", namespace="team", spec=base | spec)


def vertical(mode: str | None = "Off", **spec: Any) -> dict[str, Any]:
    base = {"targetRef": TARGET, "updatePolicy": {} if mode is None else {"updateMode": mode}}
    return wish("VerticalPodAutoscaler", "autoscaling.k8s.io/v1", namespace="team", spec=base | spec)


@pytest.mark.parametrize(
    "good",
    [
        policy(policyTypes=["Ingress", "Egress"], egress=[{}]),
        policy(ingress=[{"from": [{"namespaceSelector": {}}], "ports": [{"port": 80}]}]),
        cilium(egress=[{"toFQDNs": [{"matchName": "example.org"}]}]),
        wish("CiliumNetworkPolicy", "cilium.io/v2", namespace="team", specs=[{"endpointSelector": {}}]),
        horizontal(metrics=[{"type": "Resource", "resource": {"name": "cpu"}}]),
        *(vertical(mode) for mode in ("Off", "Initial", "Recreate", "InPlaceOrRecreate")),
    ],
)
def test_what_a_site_needs_is_accepted(good):
    assert accepted(good).policies


@pytest.mark.parametrize(
    ("wanted", "where"),
    [
        (policy("kube-system"), "metadata.namespace"),
        (policy("setpoint-system"), "metadata.namespace"),
        (policy(podSelector=None), "spec.podSelector"),
        (policy(policyTypes=["Both"]), "spec.policyTypes[0]"),
        (policy(ingress={}), "spec.ingress"),
        (policy(egress=[{}] * 101), "spec.egress"),
        (policy(nodeSelector={}), "spec.nodeSelector"),
        (cilium("kube-system"), "metadata.namespace"),
        (cilium(nodeSelector={}), "spec.nodeSelector"),
        (cilium(endpointSelector=None), "spec.endpointSelector"),
        (wish("CiliumNetworkPolicy", "cilium.io/v2", namespace="team"), ""),
        (wish("CiliumClusterwideNetworkPolicy", "cilium.io/v2"), "kind"),
        (cilium(egress=[{"toPorts": [{"terminatingTLS": {"secret": {"namespace": "kube-system", "name": "a"}}}]}]),
         "spec.egress[0].toPorts[0].terminatingTLS.secret"),
        (horizontal(maxReplicas=None), "spec.maxReplicas"),
        (horizontal(minReplicas=5), "spec.maxReplicas"),
        (horizontal(minReplicas=0), "spec.minReplicas"),
        (horizontal(scaleTargetRef={"kind": "Deployment"}), "spec.scaleTargetRef.name"),
        (vertical(None), "spec.updatePolicy.updateMode"),
        (vertical("Sometimes"), "spec.updatePolicy.updateMode"),
        (vertical(targetRef=None), "spec.targetRef"),
    ],
)  # fmt: skip
def test_what_is_not_for_a_profile_is_refused_with_its_place(wanted, where):
    refusal = refused(wanted)
    assert where in refusal or (not where and refusal), refusal


def test_a_policy_that_lets_nothing_out_says_that_names_are_not_resolved():
    assert "name servers" in warnings_of(policy(policyTypes=["Egress"]))["denies-all"]
    assert "denies-all" not in warnings_of(policy(policyTypes=["Egress"], egress=[{}]))
