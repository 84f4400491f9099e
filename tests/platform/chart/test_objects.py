"""Objects that Setpoint's chart makes besides pods, in each of ten sets of values, and when it makes what."""

from __future__ import annotations

from typing import Any

import pytest

from contract.names import RELEASE
from tests.platform.chart.rendering import PROCESSES, component, of_kind, pods, rendered, template
from tests.platform.chart.value_sets import URL, VALUE_SETS

ALL = [*VALUE_SETS]


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    for rule in selector.get("matchExpressions", ()):
        assert rule["operator"] == "In"
        if labels.get(rule["key"]) not in rule["values"]:
            return False
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def policies(name: str, labels: dict[str, str], direction: str) -> list[dict[str, Any]]:
    """Return the rules of all policies that hold for a pod; its direction must be closed by one."""
    of = [
        raw["spec"]
        for raw in of_kind(rendered(name), "NetworkPolicy").values()
        if selects(raw["spec"]["podSelector"], labels) and direction in raw["spec"]["policyTypes"]
    ]
    assert of, f"{direction} of {labels['app.kubernetes.io/component']} is open"
    return [rule for spec in of for rule in spec.get(direction.lower(), ())]


def ports(rules: list[dict[str, Any]]) -> set[int]:
    assert all(rule.get("ports") for rule in rules), "a rule without ports opens all"
    return {port["port"] for rule in rules for port in rule["ports"]}


@pytest.mark.parametrize("name", ALL)
def test_every_object_is_in_the_namespace_and_of_the_release(name: str) -> None:
    seen = set()
    for raw in rendered(name):
        metadata = raw["metadata"]
        assert metadata["namespace"] == "setpoint", raw["kind"]
        assert metadata["labels"]["app.kubernetes.io/instance"] == "control"
        assert metadata["labels"]["app.kubernetes.io/version"] == RELEASE
        assert len(metadata["name"]) <= 63
        seen.add((raw["kind"], metadata["name"]))
    assert len(seen) == len(rendered(name)), "two objects have one name"


@pytest.mark.parametrize("name", ALL)
def test_selectors_select_the_pods_of_one_component_and_no_others(name: str) -> None:
    made = {of: pod["metadata"]["labels"] for of, pod in pods(rendered(name))}
    for raw in rendered(name):
        selector = raw["spec"].get("selector") if raw["kind"] != "ServiceMonitor" and "spec" in raw else None
        if not selector:
            continue
        wanted = selector if "matchLabels" in selector else {"matchLabels": selector}
        assert [of for of, labels in made.items() if selects(wanted, labels)] == [component(raw)], raw["metadata"]


@pytest.mark.parametrize("name", [name for name in ALL if name != "gateway"])
def test_a_pod_may_be_reached_and_may_reach_only_what_its_process_needs(name: str) -> None:
    for of, pod in pods(rendered(name)):
        labels = pod["metadata"]["labels"]
        incoming, outgoing = policies(name, labels, "Ingress"), policies(name, labels, "Egress")
        assert ports(incoming) == {"web": {8000}, "broker": {6379}}.get(of, set())
        reach = ports(outgoing) - {53}
        if of == "broker":
            assert reach == set()
            assert all(rule.get("from") for rule in incoming), "it has no password"
        elif of == "test":
            assert reach == {8000}
        else:
            stores = {6432 if name == "ingress" else 5432, *([] if name == "no-broker" else [6379])}
            assert reach >= stores
            if of in ("beat", "migrate", "backup"):
                assert reach == stores, "neither asks clusters, repositories or receivers"
            else:
                assert 6443 in reach
            assert (2525 in reach) == (name == "own-secret" and of not in ("beat", "migrate", "backup"))


def test_who_narrows_the_network_gets_what_is_written_and_the_chart_test_still_passes() -> None:
    web = next(pod["metadata"]["labels"] for of, pod in pods(rendered("ingress")) if of == "web")
    (rule,) = policies("ingress", web, "Ingress")
    assert [set(peer) for peer in rule["from"]] == [{"namespaceSelector"}, {"podSelector"}]
    rules = policies("ingress", web, "Egress")
    (clusters,) = [rule for rule in rules if {"protocol": "TCP", "port": 6443} in rule["ports"]]
    assert clusters["to"] == VALUE_SETS["ingress"]["networkPolicy"]["clusters"]["to"]
    assert 443 not in ports(rules)
    assert 601 in ports(rules)
    assert not of_kind(rendered("gateway"), "NetworkPolicy")


@pytest.mark.parametrize("name", ALL)
def test_a_budget_never_keeps_a_node_from_being_drained(name: str) -> None:
    deployments = {component(raw): raw["spec"] for raw in of_kind(rendered(name), "Deployment").values()}
    scalers = {component(raw): raw["spec"]["minReplicas"]
               for raw in of_kind(rendered(name), "HorizontalPodAutoscaler").values()}  # fmt: skip
    budgets = {component(raw): raw["spec"] for raw in of_kind(rendered(name), "PodDisruptionBudget").values()}
    values = VALUE_SETS[name]
    for process in PROCESSES:
        if process not in deployments:
            continue
        default = 1 if process == "beat" else 2
        replicas = scalers.get(process, values.get(process, {}).get("replicas", default))
        assert (process in budgets) == (replicas > 1)
        assert ("replicas" in deployments[process]) == (process not in scalers), "a scaler and an upgrade would argue"
        is_paused = values.get("paused") and process != "web"
        assert deployments[process].get("replicas", 0) == (0 if is_paused or process in scalers else replicas)
    assert all(budget["maxUnavailable"] == 1 and "minAvailable" not in budget for budget in budgets.values())
    assert all(budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow" for budget in budgets.values())


def test_pods_spread_over_zones_and_nodes_by_their_own_revision() -> None:
    for raw in of_kind(rendered("highly-available"), "Deployment").values():
        constraints = raw["spec"]["template"]["spec"]["topologySpreadConstraints"]
        assert {rule["topologyKey"] for rule in constraints} == {
            "topology.kubernetes.io/zone",
            "kubernetes.io/hostname",
        }
        for rule in constraints:
            assert rule["labelSelector"] == raw["spec"]["selector"]
            assert rule["whenUnsatisfiable"] == "ScheduleAnyway", "one node is enough to start"


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("flag", [(), ("--is-upgrade",)], ids=["install", "upgrade"])
def test_a_migration_is_a_hook_where_all_that_it_needs_is_there_before(name: str, flag: tuple[str, ...]) -> None:
    """A Cluster or an ExternalSecret of the same release comes after the hooks before an install, which would wait."""
    objects = rendered(name, *flag)
    (job,) = of_kind(objects, "Job").values()
    hook = job["metadata"].get("annotations", {}).get("helm.sh/hook")
    comes_along = of_kind(objects, "Cluster") or of_kind(objects, "ExternalSecret")
    assert hook == (None if comes_along and not flag else "pre-install,pre-upgrade")
    if hook:
        assert "serviceAccountName" not in job["spec"]["template"]["spec"], "the account comes after the hook"
        policy = job["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
        assert "before-hook-creation" in policy, "the next upgrade makes a Job of the same name"


@pytest.mark.parametrize(
    ("name", "proxies"), [("minimal", "0"), ("ingress", "1"), ("gateway", "1"), ("everything", "2")]
)
def test_headers_of_proxies_are_believed_only_where_there_is_one(name: str, proxies: str) -> None:
    for of, pod in pods(rendered(name)):
        if of == "web":
            given = {entry["name"]: entry.get("value") for entry in pod["spec"]["containers"][0]["env"]}
            assert given["SETPOINT_PROXIES"] == proxies


def test_numbers_of_settings_reach_the_process_as_they_were_written() -> None:
    (web,) = [pod for of, pod in pods(rendered("own-secret")) if of == "web"]
    given = {entry["name"]: entry.get("value") for entry in web["spec"]["containers"][0]["env"]}
    assert given["SETPOINT_GPU_BAND_DAYS"] == "1000000", "helm reads numbers as floats: 1e+06"
    assert given["SETPOINT_LEASE_SECONDS"] == "30.5"
    assert given["SETPOINT_OIDC_CORP_ROLES"] == '[{"group": "gpu-admins", "role": "admin", "scope": "*"}]'
    assert "SETPOINT_OIDC_CORP_CLIENT_SECRET" not in given
    assert given["SETPOINT_OIDC_CORP_CLIENT_SECRET_FILE"]
    assert given["SETPOINT_URL"] == f"{URL}:8443"
    assert "setpoint.example.com" in given["SETPOINT_HOSTS"].split(",")
    assert "setpoint.internal" in given["SETPOINT_HOSTS"].split(",")


def test_the_image_is_named_by_digest_where_there_is_one() -> None:
    images = {c["image"] for of, pod in pods(rendered("private-registry")) if of != "broker"
              for c in pod["spec"]["containers"]}  # fmt: skip
    assert images == {f"registry.example:5000/platform/setpoint-server@sha256:{'0a' * 32}"}
    assert all(
        pod["spec"]["imagePullSecrets"] == [{"name": "registry-token"}] for _, pod in pods(rendered("private-registry"))
    )
    plain = {c["image"] for _, pod in pods(rendered("minimal")) for c in pod["spec"]["containers"]}
    assert plain == {f"setpoint-server:{RELEASE}"}


def test_ways_in_lead_the_host_of_the_url_to_the_service() -> None:
    (ingress,) = of_kind(rendered("ingress"), "Ingress").values()
    (rule,) = ingress["spec"]["rules"]
    assert rule["host"] == "setpoint.example.com" == ingress["spec"]["tls"][0]["hosts"][0]
    assert rule["http"]["paths"][0]["backend"]["service"]["name"] in of_kind(rendered("ingress"), "Service")
    (route,) = of_kind(rendered("everything"), "HTTPRoute").values()
    assert route["spec"]["hostnames"] == ["setpoint.example.com"]
    (backend,) = route["spec"]["rules"][0]["backendRefs"]
    service = of_kind(rendered("everything"), "Service")[backend["name"]]
    assert backend["port"] == service["spec"]["ports"][0]["port"] == 8080


def test_external_secrets_bring_each_key_that_a_pod_is_given() -> None:
    for name in ("external-secrets", "everything"):
        made = {
            raw["spec"]["target"]["name"]: {entry["secretKey"] for entry in raw["spec"]["data"]}
            for raw in of_kind(rendered(name), "ExternalSecret").values()
        }
        used: dict[str, set[str]] = {}
        for _, pod in pods(rendered(name)):
            for volume in pod["spec"].get("volumes", ()):
                for source in volume.get("projected", {}).get("sources", ()):
                    used.setdefault(source["secret"]["name"], set()).add(source["secret"]["items"][0]["key"])
        by_operator = {secret for secret in used if secret.endswith("-db-app")} | {"setpoint-application"}
        assert {secret: keys for secret, keys in used.items() if secret not in by_operator} == made


def test_what_outlives_a_release_is_kept() -> None:
    (cluster,) = of_kind(rendered("cloudnativepg"), "Cluster").values()
    assert cluster["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert cluster["spec"]["bootstrap"]["initdb"] == {"database": "setpoint", "owner": "setpoint"}
    (role,) = cluster["spec"]["managed"]["roles"]
    assert role["passwordSecret"] == {"name": "setpoint-application"}
    assert not {"superuser", "createrole", "inRoles"} & set(role), "it could change the audit record"


def test_a_long_name_of_a_release_leaves_room_for_each_component() -> None:
    objects = template({**VALUE_SETS["bundled-broker"], "fullnameOverride": "s" * 44})
    assert max(len(raw["metadata"]["name"]) for raw in objects) <= 63
