"""Dynamic resource allocation, backups and other clusters' queues of a profile."""

from __future__ import annotations

from typing import Any

import pytest

from tests.profiles.policies.wishes import accepted, refused, warnings_of, wish

DRA, KUEUE = "resource.k8s.io/v1", "kueue.x-k8s.io/v1beta2"
EXPRESSION = {"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}


def device_class(**spec: Any) -> dict[str, Any]:
    return wish("DeviceClass", DRA, name="gpu", spec={"selectors": [EXPRESSION], **spec})


def template(namespace: str = "team", request: Any = None, **exactly: Any) -> dict[str, Any]:
    request = request or {"name": "gpu", "exactly": {"deviceClassName": "gpu", **exactly}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    return wish("ResourceClaimTemplate", DRA, namespace=namespace, spec=spec)


def schedule(when: Any = "0 2 * * *", namespace: str = "velero", **template_: Any) -> dict[str, Any]:
    spec = {"schedule": when, "template": {"includedNamespaces": ["team"], "ttl": "720h0m0s", **template_}}
    return wish("Schedule", "velero.io/v1", namespace=namespace, spec=spec)


def remote(version: str = KUEUE, **spec: Any) -> dict[str, Any]:
    return wish("MultiKueueCluster", version, name="west", spec=spec)


def config(*clusters: Any) -> dict[str, Any]:
    return wish("MultiKueueConfig", KUEUE, spec={"clusters": list(clusters)})


def check(controller: str = "kueue.x-k8s.io/multikueue", **parameters: Any) -> dict[str, Any]:
    named = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "a", **parameters}
    return wish("AdmissionCheck", KUEUE, spec={"controllerName": controller, "parameters": named})


@pytest.mark.parametrize(
    "good",
    [
        device_class(),
        template(count=2, allocationMode="ExactCount"),
        template(request={"name": "g", "firstAvailable": [{"name": "a", "deviceClassName": "gpu"}]}),
        *(
            schedule(when)
            for when in ("0 2 * * *", "*/15 0 1,15 * 1-5", "@daily", "@every 6h", "CRON_TZ=UTC 0 2 * * *")
        ),
        remote(clusterSource={"kubeConfig": {"location": "west", "locationType": "Secret"}}),
        remote(clusterSource={"clusterProfileRef": {"name": "west"}}),
        remote("kueue.x-k8s.io/v1beta1", kubeConfig={"location": "west"}),
        config("west", "east"),
        check(),
    ],
)
def test_what_a_site_needs_is_accepted(good):
    assert accepted(good).policies


@pytest.mark.parametrize(
    ("wanted", "where"),
    [
        (device_class(selectors=[]), "spec.selectors"),
        (device_class(selectors=[{"cel": {"expression": "x" * 10_241}}]), "spec.selectors[0]"),
        (wish("DeviceClass", "resource.k8s.io/v1beta1"), "apiVersion"),
        (template("kube-system"), "metadata.namespace"),
        (template(adminAccess=True), "spec.spec.devices.requests[0].exactly.adminAccess"),
        (template(adminAccess=False), "spec.spec.devices.requests[0].exactly.adminAccess"),
        (template(request={"name": "g", "firstAvailable": [{"deviceClassName": "gpu", "adminAccess": True}]}),
         "spec.spec.devices.requests[0].firstAvailable[0].adminAccess"),
        (template(deviceClassName=""), "spec.spec.devices.requests[0].exactly.deviceClassName"),
        (template(count=0), "spec.spec.devices.requests[0].exactly.count"),
        (template(request={"name": "g"}), "spec.spec.devices.requests[0]"),
        (schedule("at night"), "spec.schedule"),
        (schedule(None), "spec.schedule"),
        (schedule(hooks={"resources": [{"name": "a", "pre": [{"exec": {"command": ["sh"]}}]}]}), "spec.template.hooks"),
        (schedule(namespace="kube-system"), "metadata.namespace"),
        (remote(clusterSource={"kubeConfig": {"location": "/etc/kubernetes/admin.conf", "locationType": "Path"}}),
         "spec.clusterSource.kubeConfig.locationType"),
        (remote("kueue.x-k8s.io/v1beta1", kubeConfig={"location": "/a", "locationType": "Path"}),
         "spec.kubeConfig.locationType"),
        (remote(clusterSource={}), "spec.clusterSource"),
        (remote(kubeConfig={"location": "a"}), "spec.kubeConfig"),
        (config(), "spec.clusters"),
        (config("a", "a"), "spec.clusters[1]"),
        (config(*(f"c{n}" for n in range(21))), "spec.clusters"),
        (check("example.org/other"), "spec.controllerName"),
        (check(kind="Secret"), "spec.parameters.kind"),
    ],
)  # fmt: skip
def test_what_is_not_for_a_profile_is_refused_with_its_place(wanted, where):
    assert where in refused(wanted)


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        (template(), "DeviceClass gpu"),
        (config("west"), "MultiKueueCluster west"),
        (check(), "MultiKueueConfig a"),
    ],
)
def test_what_it_names_is_said_to_be_elsewhere(wanted, named):
    assert f"{named} is not in this profile" in warnings_of(wanted)["not-here"]
