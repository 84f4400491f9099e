"""Laws between what the catalog says of a component and what its real chart makes, rendered without a cluster.

No third party's chart is committed: see tests/components/charts/test_real_archives.py.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any
from unittest.mock import patch

import pytest

from components.catalog import catalog
from components.catalog.effects import rank
from components.catalog.entry import Component
from components.catalog.layering import layered
from components.helm import client, rendering
from components.values import chart_yaml
from tests.components.charts.test_real_archives import (
    ALL,
    ARCHIVES,
    COMPONENTS,
    DEEP,
    IS_ALL,
    MADE_BY_OPERATORS,
    answered,
    archive_of,
)
from tests.controlplane import helm4

pytestmark = pytest.mark.skipif(not ALL, reason=f"needs charts: there are no archives in {ARCHIVES}")

OFFERED = (
    *("monitoring.coreos.com/v1", "monitoring.coreos.com/v1/ServiceMonitor", "cert-manager.io/v1"),
    *("apiregistration.k8s.io/v1", "policy/v1"),
)
"""APIs of components that presets need first: charts leave out what a cluster does not serve."""
Object = tuple[Mapping[str, Any], bool]
"""An object, and whether it is of the chart's `crds/`."""


_documents = chart_yaml.documents


@functools.cache
def documents(part: bytes) -> tuple[Any, ...]:
    """Parse each text once: with another preset a chart renders mostly the same ones. The tests only read them."""
    return tuple(_documents(part))


@functools.cache
def rendered(name: str, presets: tuple[str, ...]) -> tuple[Object, ...]:
    component = catalog.get(name)
    content = archive_of(component)
    made = layered(component, presets=presets, cluster_values=answered(component, presets))
    job = client.HelmJob(name, component.namespace, deadline=time.monotonic() + 120)
    text = client.program().template(job, content, made.values, kube_version="v1.35.0", api_versions=OFFERED)
    with patch.object(chart_yaml, "documents", documents):
        return tuple(rendering.split(text, content))


def alone(component: Component) -> list[tuple[str, ...]]:
    """No preset, and each with those that it does not work without."""
    return [(), *(tuple(dict.fromkeys((*preset.needs, preset.name))) for preset in component.presets.values())]


EVERY = [(component.name, presets) for component in COMPONENTS for presets in alone(component)]
named = pytest.mark.parametrize("component", COMPONENTS, ids=lambda component: component.name)


def annotations_of(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    return raw["metadata"].get("annotations") or {}


# ── Definitions ───────────────────────────────────────────────────────────────────────────────────────────────────────
def definitions(component: Component) -> dict[str, bool]:
    """Map each to whether an uninstall leaves it. With every preset: some definitions come with one only."""
    rendered_objects = [
        rendered_object for presets in alone(component) for rendered_object in rendered(component.name, presets)
    ]
    hooks = [raw for raw, _ in rendered_objects if "-delete" in str(annotations_of(raw).get(rendering.HOOK))]
    removed_by_hooks = " ".join(map(str, hooks)).split()
    return {
        raw["metadata"]["name"]: (is_crd or annotations_of(raw).get(rendering.KEEP) == "keep")
        and raw["metadata"]["name"] not in removed_by_hooks
        for raw, is_crd in rendered_objects
        if raw["kind"] == "CustomResourceDefinition"
    }


@named
def test_definitions_that_are_named_come_with_the_chart_and_stay_as_the_catalog_says(component):
    stay_by_name = definitions(component)

    if stay_by_name:
        assert component.crds, "of a chart with definitions some are named"
        assert {*component.crds} <= {*stay_by_name}
        assert {stay_by_name[name] for name in component.crds} == {component.crds_stay}
    else:  # what an operator defines when it starts, as Cilium's does, no uninstall deletes
        assert component.crds_stay
    for test in component.readiness:
        if test.kind == "crds":
            assert {*test.what["names"]} <= {*component.crds}


@named
def test_what_is_read_of_an_object_is_of_one_that_the_chart_makes_or_defines(component):
    objects = [raw for presets in alone(component) for raw, _ in rendered(component.name, presets)]
    known = {(raw["apiVersion"], raw["kind"]) for raw in objects}
    for raw in objects:
        if raw["kind"] == "CustomResourceDefinition":
            spec = raw["spec"]
            known |= {(f"{spec['group']}/{version['name']}", spec["names"]["kind"]) for version in spec["versions"]}

    tested = [test.what for test in component.readiness if test.kind == "field"]

    assert {(what["apiVersion"], what["kind"]) for what in tested} <= known


# ── Readiness ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def readiness_workloads(component: Component, presets: tuple[str, ...], *, optional: bool) -> set[tuple[str, str]]:
    made = layered(component, presets=presets, cluster_values=answered(component, presets))
    return {
        (test.what.get("kind", ""), workload)
        for test in component.tests(component.name, made.values)
        if test.kind == "workloads" and test.is_optional is optional
        for workload in test.what.get("names") or ()
        if not MADE_BY_OPERATORS.fullmatch(workload)
    }


def workloads(name: str, presets: tuple[str, ...]) -> set[tuple[str, str]]:
    return {(raw["kind"], raw["metadata"]["name"]) for raw, _ in rendered(name, presets)}


@pytest.mark.parametrize(("name", "presets"), EVERY, ids=str)
def test_readiness_waits_for_no_workload_that_a_preset_leaves_out(name, presets):
    assert readiness_workloads(catalog.get(name), presets, optional=False) <= workloads(name, presets)


@named
def test_a_workload_that_need_not_be_there_comes_with_a_preset(component):
    with_presets = [workloads(component.name, presets) for presets in alone(component)]
    assert readiness_workloads(component, (), optional=True) <= set().union(*with_presets)


# ── Pod Security ──────────────────────────────────────────────────────────────────────────────────────────────────────
# https://kubernetes.io/docs/concepts/security/pod-security-standards
BASELINE_CAPABILITIES = {
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
    *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
}
RESTRICTED_VOLUMES = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"),
}
LEVELS = ("restricted", "baseline", "privileged")


def level(spec: Mapping[str, Any]) -> str:
    """The strictest Pod Security level that admits a pod with this spec."""
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    contexts = [container.get("securityContext") or {} for container in containers]
    volumes = list(spec.get("volumes") or ())
    added = {name for context in contexts for name in (context.get("capabilities") or {}).get("add") or ()}
    is_privileged = (
        any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC"))
        or any("hostPath" in volume for volume in volumes)
        or any(
            context.get("privileged") or (context.get("seccompProfile") or {}).get("type") == "Unconfined"
            for context in contexts
        )
        or any(port.get("hostPort") for container in containers for port in container.get("ports") or ())
        or bool(added - BASELINE_CAPABILITIES)
    )
    if is_privileged:
        return "privileged"
    whole = spec.get("securityContext") or {}
    is_restricted = all(
        context.get("allowPrivilegeEscalation") is False
        and context.get("runAsNonRoot", whole.get("runAsNonRoot")) is True
        and context.get("runAsUser", whole.get("runAsUser")) != 0
        and "ALL" in ((context.get("capabilities") or {}).get("drop") or ())
        and (context.get("seccompProfile") or whole.get("seccompProfile") or {}).get("type")
        in ("RuntimeDefault", "Localhost")
        for context in contexts
    ) and all({*volume} - {"name"} <= RESTRICTED_VOLUMES for volume in volumes)
    return "restricted" if is_restricted else "baseline"


def pods(raw: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if raw["kind"] == "Pod":
        yield raw["spec"]
    elif raw["kind"] == "CronJob":
        yield raw["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    elif raw["kind"] in ("Deployment", "DaemonSet", "StatefulSet", "Job", "ReplicaSet"):
        yield raw["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [{"name": "a"}]}, "baseline"),
        ({"containers": [{"name": "a"}], "hostNetwork": True}, "privileged"),
        ({"containers": [{"name": "a"}], "volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "privileged"),
        ({"containers": [{"name": "a", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]}, "privileged"),
        (
            {
                "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [
                    {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}
                ],
            },
            "restricted",
        ),
    ],
)
def test_levels_are_those_of_the_pod_security_standards(spec, expected):
    assert level(spec) == expected


@pytest.mark.parametrize(("name", "presets"), EVERY, ids=str)
def test_the_namespaces_pod_security_level_admits_every_pod_of_the_chart(name, presets):
    """helm's tests are no part of a release's work, and are never run."""
    component = catalog.get(name)
    wanted = {
        f"{raw['kind']} {raw['metadata']['name']}": level(spec)
        for raw, _ in rendered(name, presets)
        if raw["metadata"].get("namespace", component.namespace) == component.namespace
        and "test" not in str(annotations_of(raw).get(rendering.HOOK, ""))
        for spec in pods(raw)
    }

    allowed = LEVELS.index(component.pod_security)
    assert {what: needs for what, needs in wanted.items() if LEVELS.index(needs) > allowed} == {}


# ── What a chart does to others ───────────────────────────────────────────────────────────────────────────────────────
@named
def test_a_webhook_that_refuses_pods_while_it_is_away_makes_an_install_hold_new_pods(component):
    hooks = [
        hook
        for presets in alone(component)
        for raw, _ in rendered(component.name, presets)
        if raw["kind"] in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        for hook in raw.get("webhooks") or ()
        if hook.get("failurePolicy", "Fail") == "Fail"
        and any("pods" in rule["resources"] or "*" in rule["resources"] for rule in hook.get("rules") or ())
    ]
    if hooks:
        assert rank(component.effects.install.worst) >= rank("new-pods")
        assert rank(component.effects.unknown) >= rank("new-pods")


SHARED = ("APIService", "CustomResourceDefinition", "CSIDriver", "IngressClass", "PriorityClass", "RuntimeClass")
"""Kinds of which a cluster has one of a name: the second chart that brings it takes it from the first, or fails."""


def test_two_components_that_bring_the_same_object_say_that_they_conflict():
    untold = {}
    for component, other in itertools.combinations(COMPONENTS, 2):
        declared = {conflict.other for conflict in (*component.conflicts, *other.conflicts)}
        if (both := shared(component.name) & shared(other.name)) and not declared & {component.name, other.name}:
            untold[component.name, other.name] = both
    assert untold == {}


@functools.cache
def shared(name: str) -> frozenset[tuple[str, str]]:
    return frozenset((raw["kind"], raw["metadata"]["name"]) for raw, _ in rendered(name, ()) if raw["kind"] in SHARED)


# ── helm v4 ───────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.full
@pytest.mark.parametrize(("name", "presets"), [way for way in EVERY if not way[1] or way[0] in DEEP or IS_ALL], ids=str)
def test_every_preset_renders_the_same_objects_with_helm_v4(name, presets, settings):
    """The fast tests above render them with helm v3."""
    settings.SETPOINT_HELM = helm4.program()
    assert client.program().is_v4

    with_v4 = rendered.__wrapped__(name, presets)

    def names(objects: tuple[Object, ...]) -> list[tuple[str, str, str]]:
        return sorted(
            (raw["kind"], raw["metadata"].get("namespace", ""), raw["metadata"]["name"]) for raw, _ in objects
        )

    settings.SETPOINT_HELM = ""
    assert names(with_v4) == names(rendered(name, presets))
