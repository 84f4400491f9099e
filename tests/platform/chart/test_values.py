"""The values of Setpoint's chart: what is unknown or wrong is refused by name, and each value is described."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from contract.names import RELEASE
from tests.platform.chart.rendering import CHART, ROOT, run
from tests.platform.chart.value_sets import EXTERNAL, MINIMAL, VALUE_SETS
from tests.platform.test_compose import variables_read
from tools import chart_readme

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
GIVEN_BY_THE_CHART = {
    "SETPOINT_EMBEDDED",
    "SETPOINT_VAR",
    "SETPOINT_URL",
    "SETPOINT_HOSTS",
    "SETPOINT_PROXIES",
    "SETPOINT_STANDBY_ALIVE",
}
OF_OTHER_PROCESSES = {
    "SETPOINT_DEBUG": "never where others can reach it",
    "SETPOINT_WORKER_THREADS": "of the embedded server",
    "SETPOINT_WEB_THREADS": "of the embedded server",
    "SETPOINT_ADMIN_EMAIL": "of `up`",
    "SETPOINT_ADMIN_PASSWORD": "of `up`",
    "SETPOINT_APPLICATION_DATABASE_URL": "secrets.owner",
    "SETPOINT_HELM_CREDENTIAL_KEYS": "secrets.helm",
}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no address": ({}, "url is required"),
    "not an address": ({"url": "setpoint.example.com"}, "url"),
    "an unknown key": ({**MINIMAL, "replicas": 3}, "replicas"),
    "an unknown key below": ({**MINIMAL, "worker": {"replcas": 3}}, "replcas"),
    "no pods": ({**MINIMAL, "web": {"replicas": 0}}, "replicas"),
    "a word for a number": ({**MINIMAL, "worker": {"replicas": "two"}}, "replicas"),
    "a secret in the open": ({**MINIMAL, "settings": {"SETPOINT_SECRET_KEY": "x"}}, "SETPOINT_SECRET_KEY"),
    "a secret of a provider in the open": (
        {**MINIMAL, "settings": {"SETPOINT_OIDC_CORP_CLIENT_SECRET": "x"}},
        "SETPOINT_OIDC_CORP_CLIENT_SECRET",
    ),
    "a misspelled variable of a provider": (
        {**MINIMAL, "settings": {"SETPOINT_OIDC_CORP_ISUER": "x"}},
        "SETPOINT_OIDC_CORP_ISUER",
    ),
    "a misspelled variable of a SAML provider": (
        {**MINIMAL, "settings": {"SETPOINT_SAML_CORP_CERTIFICATE": "x"}},
        "SETPOINT_SAML_CORP_CERTIFICATE",
    ),
    "a misspelled variable": ({**MINIMAL, "settings": {"SETPOINT_LOG_LEVLE": "DEBUG"}}, "SETPOINT_LOG_LEVLE"),
    "a required key without a name": (
        {**MINIMAL, "secrets": {"keys": {"SETPOINT_AUDIT_KEY": ""}}},
        "SETPOINT_AUDIT_KEY",
    ),
    "no limit of memory": ({**MINIMAL, "beat": {"resources": {"limits": None}}}, "limits"),
    "no quantity": ({**MINIMAL, "beat": {"resources": {"requests": {"memory": "lots"}}}}, "memory"),
    "half a digest": ({**MINIMAL, "image": {"digest": "sha256:12"}}, "digest"),
    "a folder of the node": (
        {**MINIMAL, "pods": {"extraVolumes": [{"name": "etc", "hostPath": {"path": "/etc"}}]}},
        "hostPath",
    ),
    "a volume of the chart's": ({**MINIMAL, "pods": {"extraVolumes": [{"name": "secrets"}]}}, "name"),
    "a label of the chart's": ({**MINIMAL, "labels": {"app.kubernetes.io/name": "x"}}, "labels"),
    "an empty peer, which is everyone": ({**MINIMAL, "networkPolicy": {"webFrom": [{}]}}, "webFrom"),
    "two ways in": ({**VALUE_SETS["gateway"], "ingress": {"enabled": True}}, "keep one"),
    "a route to no gateway": ({**MINIMAL, "gateway": {"enabled": True}}, "gateway.parentRefs"),
    "metrics for everyone": ({**MINIMAL, "serviceMonitor": {"enabled": True}}, "SETPOINT_METRICS_TOKEN"),
    "an open broker": (
        {**MINIMAL, "broker": {"bundled": {"enabled": True}}, "networkPolicy": {"enabled": False}},
        "networkPolicy.enabled",
    ),
    "a broker and none": (
        {**MINIMAL, "broker": {"enabled": False, "bundled": {"enabled": True}}},
        "broker.enabled",
    ),
    "more at least than at most": (
        {**MINIMAL, "web": {"autoscaling": {"enabled": True, "minReplicas": 9}}},
        "web.autoscaling.minReplicas",
    ),
    "no store": ({**MINIMAL, "secrets": {"external": {**EXTERNAL, "storeName": ""}}}, "storeName"),
    "no entry for helm": ({**MINIMAL, "secrets": {"external": {**EXTERNAL, "helmEntry": ""}}}, "helmEntry"),
    "two owners": (
        {**VALUE_SETS["cloudnativepg"], "secrets": {"owner": {"existing": "owner"}}},
        "secrets.owner.existing",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_value_that_is_wrong_is_refused_by_its_name(case: str) -> None:
    values, name = WRONG[case]
    done = run("template", "x", str(CHART), values=values)
    assert done.returncode != 0
    assert name in done.stderr


@pytest.mark.parametrize("name", VALUE_SETS)
def test_lint_has_nothing_to_say_of_each_set_of_values(name: str) -> None:
    done = run("lint", "--strict", str(CHART), values=VALUE_SETS[name])
    assert done.returncode == 0, done.stdout + done.stderr


def schemas(node: Any, path: str = "values") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each schema that has properties, with where it is."""
    if isinstance(node, dict):
        if "properties" in node:
            yield path, node
        for key, value in node.items():
            yield from schemas(value, f"{path}.{key}")
    if isinstance(node, list):
        for value in node:
            yield from schemas(value, path)


def test_the_schema_is_closed_and_has_each_value_and_no_other() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    fragments_of_kubernetes = {"values.properties.pods.properties.extraVolumes.items"}
    is_open = {path for path, node in schemas(SCHEMA) if node.get("additionalProperties") is not False}
    assert is_open == fragments_of_kubernetes

    def paths(values: dict[str, Any], schema: dict[str, Any], at: str = "") -> Iterator[str]:
        for key in values.keys() | schema.get("properties", {}).keys():
            of = schema.get("properties", {}).get(key)
            if (of is None) != (key not in values):
                yield f"{at}{key}"
            elif isinstance(values.get(key), dict) and "properties" in of:
                yield from paths(values[key], of, f"{at}{key}.")

    different = set(paths(DEFAULTS, SCHEMA))
    assert {path for path in different if not path.startswith("settings.")} == set()


def test_settings_are_the_variables_that_have_no_other_place() -> None:
    settings = set(SCHEMA["properties"]["settings"]["properties"])
    keys = set(DEFAULTS["secrets"]["keys"])
    assert settings | keys | GIVEN_BY_THE_CHART | OF_OTHER_PROCESSES.keys() == variables_read()
    assert len(settings) + len(keys) + len(GIVEN_BY_THE_CHART) + len(OF_OTHER_PROCESSES) == len(variables_read())
    assert not {name for name in settings if re.search("KEY|PEPPER|PASSWORD|TOKEN", name)}


def test_the_release_of_the_chart_is_that_of_setpoint() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == RELEASE
    assert chart["kubeVersion"] == ">=1.30.0-0"
    assert "Kubernetes 1.30 or newer" in (ROOT / "deploy" / "README.md").read_text()


def test_the_readme_is_written_from_the_values_of_now() -> None:
    now, values = (CHART / "README.md").read_text(), (CHART / "values.yaml").read_text()
    assert chart_readme.readme(now, values) == now, "run: python tools/chart_readme.py"
    assert {path for path, _, _ in chart_readme.described(values)} >= {"url", "database.cloudNativePG.enabled"}


@pytest.mark.parametrize(
    "text",
    ["a: 1\n", "# -- words\na:\n  # -- more\n  b: 1\n", "# -- words\n# -- words\na: 1\n", "# -- w\na: |\n  text\n"],
    ids=["no description", "of a group", "of nothing", "a text of several lines"],
)
def test_a_value_without_its_description_is_named(text: str) -> None:
    with pytest.raises(chart_readme.Undescribed, match="line"):
        list(chart_readme.described(text))


def test_the_chart_is_no_part_of_the_image() -> None:
    assert "deploy/chart" in (ROOT / ".dockerignore").read_text().splitlines()
