"""Setpoint's chart on a real API server, by helm v3 and v4: each object is valid there, and a release is installed,
upgraded, taken back and removed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane import helm4
from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.platform.chart.rendering import CHART, component, packaged, run, template
from tests.platform.chart.value_sets import EVERYTHING, MINIMAL, VALUE_SETS

pytestmark = pytest.mark.full

OF_OPERATORS = {"Cluster", "ExternalSecret", "HTTPRoute", "ServiceMonitor"}
"""Kinds that this API server does not serve; the operators that bring them are no part of Setpoint."""
SERVED: dict[str, Any] = {
    **EVERYTHING,
    "paused": False,
    "secrets": {"owner": {"existing": "setpoint-owner"}},
    "database": {},
    "gateway": {},
    "serviceMonitor": {},
    "ingress": {"enabled": True, "className": "nginx"},
    "service": {"port": 8080},
}
"""Everything on whose kinds are served."""
KINDS = (
    "deployments,services,serviceaccounts,poddisruptionbudgets,horizontalpodautoscalers,networkpolicies,ingresses,jobs,"
    "secrets,configmaps,pods,replicasets"
)
OF_EVERY_NAMESPACE = {("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")}


@pytest.fixture(params=["v3", "v4"])
def program(request: pytest.FixtureRequest, plane: Plane) -> str:
    """Both helms; the plane is built with v4, so a machine that has the one has the other."""
    return packaged() if request.param == "v3" else helm4.program()


@pytest.fixture
def namespace(plane: Plane, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace that admits only pods of the restricted Pod Security Standard."""
    name = f"chart-{abs(hash(request.node.name)) % 10**8}"
    plane.kubectl("create", "namespace", name)
    plane.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    yield name
    plane.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def helm(plane: Plane, namespace: str, program: str) -> Callable[..., str]:
    def call(*arguments: str, values: dict[str, Any] | None = None) -> str:
        verb, *rest = arguments
        own = [f"--namespace={namespace}", "--timeout=2m"] if verb != "list" else [f"--namespace={namespace}"]
        if values is None:
            done = subprocess.run(
                [program, verb, *rest, *own, f"--kubeconfig={plane.kubeconfig}"],
                capture_output=True,
                text=True,
                check=False,
                env={"HOME": str(plane.folder)},
                timeout=300,
            )
        else:
            done = run(verb, *rest, *own, values=values, program=program, kubeconfig=plane.kubeconfig)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


def objects(plane: Plane, namespace: str) -> dict[tuple[str, str], dict[str, Any]]:
    raw = json.loads(plane.kubectl("get", KINDS, "-n", namespace, "-o", "json"))
    return {(item["kind"], item["metadata"]["name"]): item for item in raw["items"]}


def deployments(plane: Plane, namespace: str) -> dict[str, dict[str, Any]]:
    return {component(raw): raw["spec"] for (kind, _), raw in objects(plane, namespace).items() if kind == "Deployment"}


@pytest.mark.parametrize("name", VALUE_SETS)
def test_the_api_server_takes_each_object_as_it_is_rendered(
    plane: Plane, namespace: str, name: str, tmp_path: Path
) -> None:
    """Validated strictly: a field that it does not know, and a pod that is not restricted, are refused."""
    rendered = template(VALUE_SETS[name], program=helm4.program())
    own = json.loads(json.dumps(rendered).replace('"namespace": "setpoint"', f'"namespace": "{namespace}"'))
    served = [raw for raw in own if raw["kind"] not in OF_OPERATORS]
    pods = [
        {"apiVersion": "v1", "kind": "Pod", **raw["spec"]["template"]}
        | {"metadata": {**raw["spec"]["template"]["metadata"], "name": raw["metadata"]["name"], "namespace": namespace}}
        for raw in served
        if raw["kind"] in ("Deployment", "Job")
    ]
    for pod in pods:
        pod["spec"].pop("serviceAccountName", None)  # an account must be there before its pod
        pod["spec"].pop("priorityClassName", None) if name != "minimal" else None
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all([*served, *pods], sort_keys=False))
    answer = plane.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", str(file))
    assert answer.count("serverside-applied") == len(served) + len(pods)
    assert "Warning" not in answer


def test_a_release_is_installed_changed_taken_back_and_removed(
    plane: Plane,
    namespace: str,
    program: str,
    helm: Callable[..., str],
    cluster_admin: Admin,
    a_node: Callable[..., Any],
) -> None:
    a_node()
    plane.kubectl("create", "secret", "generic", "setpoint", "-n", namespace, "--from-literal=SETPOINT_SECRET_KEY=x")
    before = set(objects(plane, namespace))

    notes = helm("install", "control", str(CHART), values=MINIMAL)
    assert f"--namespace {namespace} exec deployment/control-setpoint-web -- python manage.py setuptoken" in notes
    first = deployments(plane, namespace)
    assert {name: spec["replicas"] for name, spec in first.items()} == {
        "web": 2,
        "worker": 2,
        "helm": 2,
        "gpus": 2,
        "beat": 1,
        "watch": 2,
    }
    assert not [key for key in objects(plane, namespace) if key[0] == "Job"], "the hook's Job has ended and is gone"

    helm("upgrade", "control", str(CHART), values={**SERVED, "fullnameOverride": ""})
    second = deployments(plane, namespace)
    assert second["worker"]["replicas"] == 4
    assert "broker" in second
    made = objects(plane, namespace)
    assert ("HorizontalPodAutoscaler", "control-setpoint-web") in made
    assert ("Ingress", "control-setpoint") in made

    plane.kubectl("scale", "-n", namespace, "deployment/control-setpoint-web", "--replicas=5")
    helm("upgrade", "control", str(CHART), values={**SERVED, "fullnameOverride": "", "hosts": ["more.example.com"]})
    third = deployments(plane, namespace)
    assert third["web"]["replicas"] == 5, "an upgrade leaves what the autoscaler wrote"

    helm("upgrade", "control", str(CHART), values={**MINIMAL, "paused": True})
    assert {
        name: spec["replicas"] for name, spec in deployments(plane, namespace).items() if name != "web"
    } == dict.fromkeys(("worker", "helm", "gpus", "beat", "watch"), 0)

    # The autoscaler may have written the number of web processes meanwhile, which helm v4 takes back only by force.
    helm("rollback", "control", "1", *(["--force-conflicts"] if program == helm4.program() else []))
    fourth = deployments(plane, namespace)
    assert {name: spec["replicas"] for name, spec in fourth.items() if name != "web"} == {
        "worker": 2,
        "helm": 2,
        "gpus": 2,
        "beat": 1,
        "watch": 2,
    }
    assert {name: spec["template"] for name, spec in fourth.items()} == {
        name: spec["template"] for name, spec in first.items()
    }

    helm("uninstall", "control")
    left = {key for key in objects(plane, namespace) if key[0] not in ("Pod", "ReplicaSet")}
    assert left - OF_EVERY_NAMESPACE == before - OF_EVERY_NAMESPACE, "only what was there before"


def test_a_migration_that_fails_stops_an_upgrade_before_any_process_changes(
    plane: Plane, namespace: str, program: str
) -> None:
    """No Job ends without a node, as with one whose migration waits or fails: what runs is left as it was."""
    first = run("install", "control", str(CHART), f"--namespace={namespace}", "--no-hooks", values=MINIMAL,
                program=program, kubeconfig=plane.kubeconfig)  # fmt: skip
    assert first.returncode == 0, first.stderr
    before = deployments(plane, namespace)
    changed = {**MINIMAL, "worker": {"replicas": 7}, "pods": {"nodeSelector": {"no": "node"}}}
    done = run("upgrade", "control", str(CHART), f"--namespace={namespace}", "--timeout=5s", values=changed,
               program=program, kubeconfig=plane.kubeconfig)  # fmt: skip
    assert done.returncode != 0
    assert deployments(plane, namespace) == before
    (job,) = [raw for (kind, _), raw in objects(plane, namespace).items() if kind == "Job"]
    assert job["metadata"]["name"] == "control-setpoint-migrate", "it stays, with its log, until the next try"
