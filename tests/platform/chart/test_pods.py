"""Laws of every pod of Setpoint's chart, in ten sets of values: rights, resources, secrets, variables, commands."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from config import oidc, saml
from tests.platform.chart.rendering import (
    CHART,
    PROCESSES,
    ROOT,
    component,
    containers,
    of_kind,
    pods,
    rendered,
    secret_files,
)
from tests.platform.chart.value_sets import VALUE_SETS
from tests.platform.test_compose import OURS, SERVICES, new_environment, parsed, variables_read

NEVER_HERE = {"hostNetwork", "hostPID", "hostIPC", "hostUsers", "serviceAccount"}
REQUIRED = {
    "SETPOINT_URL",
    "SETPOINT_HOSTS",
    "SETPOINT_DATABASE_URL",
    "SETPOINT_BROKER_URL",
    "SETPOINT_SECRET_KEY",
    "SETPOINT_TOKEN_PEPPER",
    "SETPOINT_AUDIT_KEY",
    "SETPOINT_CREDENTIAL_KEYS",
    "SETPOINT_INSTALLATION",
}
ALL = [*VALUE_SETS]


def environment(container: dict[str, Any]) -> dict[str, Any]:
    names = [entry["name"] for entry in container.get("env", ())]
    assert len(names) == len(set(names)), "a variable is given twice"
    return {entry["name"]: entry for entry in container.get("env", ())}


def ours(name: str) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return component, pod and container of all that runs the server's image and Setpoint's code."""
    return [
        (of, pod, container)
        for of, pod in pods(rendered(name))
        if of not in ("broker", "test")
        for container in containers(pod)
    ]


@pytest.mark.parametrize("name", ALL)
def test_no_pod_has_a_right_that_it_does_not_need(name: str) -> None:
    """The restricted Pod Security Standard, a read-only root, and no token of the cluster's API server."""
    for of, pod in pods(rendered(name)):
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False, of
        assert not NEVER_HERE & set(spec), of
        security = spec["securityContext"]
        assert security["runAsNonRoot"] is True, of
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, of
        assert security["runAsUser"] > 0, of
        for volume in spec.get("volumes", ()):
            kinds = {"emptyDir", "projected", "configMap", *(["persistentVolumeClaim"] if of == "backup" else [])}
            assert set(volume) - {"name"} <= kinds, of
        for container in containers(pod):
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is own["privileged"] is False, of
            assert own["readOnlyRootFilesystem"] is own["runAsNonRoot"] is True, of
            assert own["capabilities"] == {"drop": ["ALL"]}, of
            assert not {"runAsUser", "seccompProfile", "procMount"} & set(own), f"{of}: the pod's counts"
            resources = container["resources"]
            assert {"cpu", "memory"} <= set(resources["requests"]), of
            assert resources["limits"]["memory"], of
    for kind in ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "Secret", "ConfigMap"):
        assert not of_kind(rendered(name), kind), kind


def test_the_pods_run_as_the_user_of_the_image() -> None:
    (uid,) = re.findall(r"^USER (\d+)$", (ROOT / "deploy" / "server.Dockerfile").read_text(), re.MULTILINE)
    users = {of: pod["spec"]["securityContext"] for of, pod in pods(rendered("minimal"))}
    assert {(who["runAsUser"], who["runAsGroup"], who["fsGroup"]) for who in users.values()} == {(int(uid),) * 3}


def _of_providers(given: Mapping[str, dict[str, Any]]) -> set[str]:
    """Return the variables that config reads for the providers that are listed, whose names it composes."""
    out = set()
    for of in (oidc, saml):
        listed, own = given.get(of.LISTED, {}).get("value", ""), (*of.REQUIRED, *of.OPTIONAL)
        out |= {f"{of.PREFIX}{key.upper()}_{name}" for key in listed.split(",") if key for name in own}
    return out


@pytest.mark.parametrize("name", ALL)
def test_each_variable_is_one_that_is_read_and_each_that_is_required_is_given(name: str) -> None:
    for of, _, container in ours(name):
        given = set()
        for variable, entry in environment(container).items():
            if "valueFrom" in entry:
                assert entry == {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
                continue
            given.add(variable.removesuffix("_FILE"))
            assert isinstance(entry["value"], str), variable
        assert given <= variables_read() | _of_providers(environment(container)), of
        assert given >= REQUIRED, of
        assert environment(container)["SETPOINT_EMBEDDED"]["value"] == "false"


@pytest.mark.parametrize("name", ALL)
def test_secrets_are_files_of_a_secret_and_never_words_of_an_object(name: str) -> None:
    """A variable is inherited by every program that a process starts and is in `kubectl describe`; a file is not."""
    for of, pod, container in ours(name):
        files = secret_files(pod, container)
        named = {
            entry["value"]: variable
            for variable, entry in environment(container).items()
            if variable.endswith("_FILE") and variable != "SETPOINT_AUDIT_HEADS_FILE"
        }
        assert set(named) == set(files), f"{of}: each file is named by a variable, and each variable's file is mounted"
        for path, variable in named.items():
            assert path.rpartition("/")[2] == variable.removesuffix("_FILE")
        for variable, entry in environment(container).items():
            if re.search("KEY|PEPPER|PASSWORD|TOKEN|DATABASE|BROKER|INSTALLATION", variable):
                is_no_secret = variable == "SETPOINT_BROKER_URL" and "broker" in VALUE_SETS[name]
                assert variable.endswith("_FILE") or is_no_secret, variable
                assert "@" not in entry["value"]


@pytest.mark.parametrize("name", ALL)
def test_only_migration_and_backup_have_the_owner_of_the_tables_and_only_helm_the_keys_of_its_credential(
    name: str,
) -> None:
    owners, helms, applications = set(), set(), set()
    for of, pod, container in ours(name):
        files = {path.rpartition("/")[2]: source for path, source in secret_files(pod, container).items()}
        if "SETPOINT_APPLICATION_DATABASE_URL" in files:
            owners.add(container["name"])
            assert files["SETPOINT_APPLICATION_DATABASE_URL"] != files["SETPOINT_DATABASE_URL"]
        else:
            applications.add(files["SETPOINT_DATABASE_URL"])
        if "SETPOINT_HELM_CREDENTIAL_KEYS" in files:
            helms.add(of)
    values = VALUE_SETS[name]
    has_two = values.get("secrets", {}).get("owner") or values.get("database", {})
    has_backup = values.get("backup", {}).get("enabled")
    assert owners == ({"migrate", *(["backup"] if has_backup else [])} if has_two else set())
    assert len(applications) == 1
    assert helms == ({"helm"} if values.get("helm", {}).get("replicas", 1) else set())


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_of_the_chart_is_that_of_compose(process: str) -> None:
    """One source of truth: command, patience at its end, and health check."""
    service = OURS[process]
    (deployment,) = [raw for raw in of_kind(rendered("minimal"), "Deployment").values() if component(raw) == process]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == service["command"]
    grace = int(service.get("stop_grace_period", "10s").removesuffix("s"))
    assert pod["terminationGracePeriodSeconds"] >= grace
    _, *words = service["healthcheck"]["test"]
    if process == "web":
        (path,) = re.findall(r":8000(/\w+)'", words[-1])
        assert container["readinessProbe"]["httpGet"] == {"path": path, "port": "http"}
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz", "an absent database is no reason to restart"
        assert [port["containerPort"] for port in container["ports"]] == [8000]
        # gunicorn finishes requests for 30 s after the pause in which the pod leaves its Service.
        assert pod["terminationGracePeriodSeconds"] >= container["lifecycle"]["preStop"]["sleep"]["seconds"] + 30
        return
    (check,) = [word.replace("$$", "$") for word in words]
    for probe in ("startupProbe", "livenessProbe"):
        shell, flag, text = container[probe]["exec"]["command"]
        assert (shell, flag) == ("sh", "-c")
        assert text.partition(" || ")[0] == check
        assert container[probe]["timeoutSeconds"] >= int(service["healthcheck"]["timeout"].removesuffix("s"))
    assert container["startupProbe"]["exec"]["command"][2] == check


@pytest.mark.parametrize("name", ALL)
def test_every_queue_has_a_worker_also_where_a_process_has_no_pods(name: str) -> None:
    served: dict[str, list[str]] = {}
    for of, _, container in ours(name):
        for word in container["command"]:
            if word.startswith("--queues="):
                served[of] = word.removeprefix("--queues=").split(",")
    has = {process: VALUE_SETS[name].get(process, {}).get("replicas", 1) > 0 for process in ("helm", "gpus")}
    wanted = {"worker": ["celery"] if has["gpus"] else ["celery", "gpus"]}
    assert served == wanted | {process: [process] for process, is_there in has.items() if is_there}


@pytest.mark.parametrize("process", ["worker", "helm", "gpus"])
def test_a_worker_without_its_broker_is_not_restarted(process: str) -> None:
    """The part after `||` is true only while the broker cannot be reached; its Python is one that compiles."""
    (deployment,) = [raw for raw in of_kind(rendered("minimal"), "Deployment").values() if component(raw) == process]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    _, _, guard = container["livenessProbe"]["exec"]["command"][2].partition(" || ")
    code = re.fullmatch(r'! python -c "([^"$`\\]+)"', guard)
    assert code
    names = {node.module for node in ast.walk(ast.parse(code[1])) if isinstance(node, ast.ImportFrom)}
    assert names == {"config.celery", "config.sending"}


def test_without_a_broker_workers_show_by_a_file_that_they_look_for_work(tmp_path: Path) -> None:
    """`celery inspect` asks over the broker; the check itself is run."""
    of = {of: container for of, _, container in ours("no-broker")}
    assert {"worker", "helm", "gpus", "watch", "web"} <= set(of)
    assert "beat" not in of
    for container in (of["worker"], of["helm"], of["gpus"]):
        assert environment(container)["SETPOINT_BROKER_URL"]["value"] == "none"
        alive = environment(container)["SETPOINT_STANDBY_ALIVE"]["value"]
        (check,) = {container[probe]["exec"]["command"][2] for probe in ("startupProbe", "livenessProbe")}
        file = tmp_path / f"{container['name']}-alive"
        command = ["sh", "-c", check.replace(alive, str(file))]
        assert subprocess.run(command, check=False, capture_output=True).returncode
        file.touch()
        assert not subprocess.run(command, check=False, capture_output=True).returncode
        os.utime(file, (0, 0))
        assert subprocess.run(command, check=False, capture_output=True).returncode


@pytest.mark.parametrize("name", ["minimal", "everything"])
def test_the_migration_runs_as_in_compose_and_every_pod_waits_for_it(name: str) -> None:
    (job,) = of_kind(rendered(name), "Job").values()
    spec = job["spec"]["template"]["spec"]
    (migrate,), (library,) = spec["initContainers"], spec["containers"]
    assert migrate["command"] == SERVICES["migrate"]["command"]
    assert library["command"] == SERVICES["library"]["command"]
    assert spec["restartPolicy"] == "Never"
    assert job["spec"]["podReplacementPolicy"] == "Failed", "a pod that still ends has no second beside it"
    for raw in of_kind(rendered(name), "Deployment").values():
        if component(raw) != "broker":
            (wait,) = raw["spec"]["template"]["spec"]["initContainers"]
            assert "manage.py migrate --check" in wait["command"][2]


def test_the_files_of_make_secrets_are_the_secrets_of_the_minimal_values() -> None:
    """`kubectl create secret generic setpoint --from-env-file=deploy/setpoint.env`, as docs/operating.md says."""
    made = {name: set(parsed(text)) for name, text in new_environment().files().items()}
    secrets = {"setpoint": made["setpoint.env"], "setpoint-helm": made["helm.env"], "setpoint-owner": made["owner.env"]}
    for values in ("minimal", "highly-available"):
        for _, pod, container in ours(values):
            for secret, key in secret_files(pod, container).values():
                assert key in secrets[secret]


def test_the_chart_test_asks_the_page_and_the_readiness_through_the_service() -> None:
    for name in ("minimal", "everything"):
        (test,) = of_kind(rendered(name), "Pod").values()
        assert test["metadata"]["annotations"]["helm.sh/hook"] == "test"
        (container,) = test["spec"]["containers"]
        python, flag, code, base = container["command"]
        assert (python, flag) == ("python", "-c")
        assert code.strip() == (CHART / "pages.py").read_text().strip()
        (service,) = [raw for raw in of_kind(rendered(name), "Service").values() if component(raw) == "web"]
        host = f"{service['metadata']['name']}.setpoint.svc"
        assert base == f"http://{host}:{service['spec']['ports'][0]['port']}"
        hosts = [environment(c)["SETPOINT_HOSTS"]["value"] for of, _, c in ours(name) if of == "web"]
        assert all(host in value.split(",") for value in hosts)
