"""deploy/setpoint.yaml agrees with the contract, and with what the control plane says it needs."""

from __future__ import annotations

import pathlib

import pytest
import yaml
from jsonschema import Draft202012Validator

from clusters.kube.permissions import REQUIRED_PERMISSIONS
from contract import names
from contract.nodetuning import (
    MAX_CONDITIONS,
    MAX_KEY,
    MAX_OBSERVE_TEXT,
    MAX_OBSERVED_TEXT,
    MAX_REASON,
    MAX_SETTINGS,
    MAX_VALUE,
    Mode,
    Operator,
    RestartAction,
    RestartGrant,
    Restore,
)
from tests.agent.kernel import EXPIRES, SYS, want

OBJECTS = list(
    yaml.safe_load_all((pathlib.Path(__file__).parents[2] / "deploy/setpoint.yaml").read_text(encoding="utf-8"))
)


def the(kind: str, name: str) -> dict:
    [manifest] = [o for o in OBJECTS if o["kind"] == kind and o["metadata"]["name"] == name]
    return manifest


CRD = the("CustomResourceDefinition", f"{names.PLURAL}.{names.GROUP}")["spec"]
SCHEMA = CRD["versions"][0]["schema"]["openAPIV3Schema"]


def strict(schema: dict) -> dict:
    """The schema with unknown fields refused, as `fieldValidation=Strict` does, and nullable in JSON Schema's way."""
    out = {k: v for k, v in schema.items() if not k.startswith("x-") and k not in ("nullable", "format")}
    if "properties" in schema and schema.get("properties"):
        out["properties"] = {k: strict(v) for k, v in schema["properties"].items()}
        out["additionalProperties"] = False
    if "items" in schema:
        out["items"] = strict(schema["items"])
    return {"anyOf": [out, {"type": "null"}]} if schema.get("nullable") else out


SPEC, STATUS = (Draft202012Validator(strict(SCHEMA["properties"][part])) for part in ("spec", "status"))


def test_names_are_the_contract_s():
    assert (CRD["group"], CRD["names"]["kind"], CRD["names"]["plural"]) == (names.GROUP, names.KIND, names.PLURAL)
    assert CRD["versions"][0]["name"] == names.VERSION
    assert CRD["scope"] == "Cluster"
    for policy in (names.AGENT_POLICY, names.SPEC_POLICY):
        assert the("ValidatingAdmissionPolicy", policy)["spec"]["failurePolicy"] == "Fail"
        binding = the("ValidatingAdmissionPolicyBinding", policy)["spec"]
        assert binding == {"policyName": policy, "validationActions": ["Deny"]}
    assert names.AGENT_USERNAME in str(the("ValidatingAdmissionPolicy", names.AGENT_POLICY))
    assert names.CONTROLLER_USERNAME in str(the("ValidatingAdmissionPolicy", names.SPEC_POLICY))
    daemon = the("DaemonSet", names.AGENT_DAEMONSET)
    assert names.AGENT_LABELS.items() <= daemon["spec"]["template"]["metadata"]["labels"].items()
    assert daemon["metadata"]["namespace"] == names.NAMESPACE == the("Namespace", names.NAMESPACE)["metadata"]["name"]


def granted(role: str) -> set[tuple[str, str, str, str]]:
    out = set()
    for o in OBJECTS:
        if o["kind"] in ("Role", "ClusterRole") and o["metadata"]["name"] == role:
            for rule in o["rules"]:
                if rule["resources"] == ["serviceaccounts/token"]:
                    assert rule["resourceNames"] == [role]  # its own token and no other's
                else:
                    assert "resourceNames" not in rule  # a review without a name would be answered no
                out |= {
                    (verb, group, resource, o["metadata"].get("namespace", ""))
                    for verb in rule["verbs"]
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                }
    return out


def test_the_control_plane_gets_what_it_says_it_needs_and_nothing_more():
    needed = {(p.verb, p.group, p.resource, p.namespace) for p in REQUIRED_PERMISSIONS}
    assert granted(names.CONTROLLER_SERVICE_ACCOUNT) == needed
    assert ("create", "", "nodes", "") not in needed


def test_the_agent_may_read_tunings_and_write_statuses_and_leases_only():
    assert granted(names.AGENT_SERVICE_ACCOUNT) == {
        ("get", names.GROUP, names.PLURAL, ""),
        ("list", names.GROUP, names.PLURAL, ""),
        ("watch", names.GROUP, names.PLURAL, ""),
        ("patch", names.GROUP, f"{names.PLURAL}/status", ""),
        ("create", "coordination.k8s.io", "leases", names.NAMESPACE),
        ("patch", "coordination.k8s.io", "leases", names.NAMESPACE),
    }


def bounds(schema: dict, path: str = "") -> list[str]:
    """Paths of strings, lists and maps without a bound."""
    out = []
    kind = schema.get("type")
    if kind == "string" and "maxLength" not in schema and "enum" not in schema:
        out.append(path)
    if kind == "array":
        out += [] if "maxItems" in schema else [path]
        out += bounds(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        out += [] if "maxProperties" in schema else [path]
        out += bounds(schema["additionalProperties"], f"{path}{{}}")
    for name, inner in schema.get("properties", {}).items():
        out += bounds(inner, f"{path}.{name}")
    return out


def test_the_schema_bounds_every_string_list_and_map_as_the_contract_does():
    spec, status = SCHEMA["properties"]["spec"], SCHEMA["properties"]["status"]
    assert bounds(spec) == bounds(status) == []
    assert spec["properties"]["settings"]["maxItems"] == status["properties"]["settings"]["maxItems"] == MAX_SETTINGS
    assert spec["properties"]["observe"]["maxLength"] == MAX_OBSERVE_TEXT
    assert status["properties"]["observed"]["maxLength"] == MAX_OBSERVED_TEXT
    assert status["properties"]["conditions"]["maxItems"] == MAX_CONDITIONS
    reported = status["properties"]["settings"]["items"]["properties"]
    assert (reported["key"]["maxLength"], reported["effective"]["maxLength"]) == (MAX_KEY, MAX_VALUE)
    assert reported["reason"]["maxLength"] == MAX_REASON
    assert set(spec["properties"]["mode"]["enum"]) == set(Mode)
    assert set(spec["properties"]["settings"]["items"]["properties"]["operator"]["enum"]) == set(Operator)
    assert set(spec["properties"]["restart"]["properties"]["action"]["enum"]) == set(RestartAction)


@pytest.mark.parametrize("mode", list(Mode))
def test_what_both_sides_write_fits_the_schema(agent, kernel, mode):
    kernel.live[SYS + "net/core/rmem_max"] = "9" * 5000  # a kernel that says too much
    status = agent.ask(
        want("vm.swappiness", "10", "60"),
        want("net.core.rmem_max", "500000", "1"),
        restore=(Restore("vm.max_map_count", None, "65530"),),
        mode=mode,
        observe=("net.core.rmem_max", "vm.dirty_ratio"),
        restart=RestartGrant("grant-1", "reboot", "another-boot", EXPIRES),
        step="s" * 128,
    )
    status = agent.core.restart(agent.confirm, lambda s: None) or status

    assert [e.message for e in SPEC.iter_errors(agent.spec.to_json())] == []
    assert [e.message for e in STATUS.iter_errors({k: v for k, v in status.to_json().items() if v is not None})] == []
    assert type(status).from_json(status.to_json()) == status
    assert status.restart is not None
