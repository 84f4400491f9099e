"""The alerts for people's own Prometheus and Grafana: the same rules, limits and names as Setpoint's own."""

from __future__ import annotations

import json

import pytest
import yaml

from gpus.alerts import export
from gpus.alerts.export import ScrapeSettings
from gpus.metrics.nvidia import NVIDIA
from notices.alerts import rulebook
from tests.clusters.factories import ClusterFactory
from tests.factories import TokenClient, UserFactory

pytestmark = pytest.mark.django_db


def alerts(**how):
    rules = [rule for group in export.groups(ScrapeSettings(), **how)[1:] for rule in group["rules"]]
    by_name = {rule["labels"]["setpoint_rule"]: rule for rule in rules}
    assert len(by_name) == len(rules), "no rule is there twice"
    return by_name


def test_every_rule_that_is_on_is_in_it_with_its_own_limits(db):
    admin, cluster = UserFactory(roles=["admin"]), ClusterFactory(name="atlas")
    assert sorted(alerts()) == sorted(rulebook.offered())
    assert ">= 85 unless" in alerts()["thermal"]["expr"]
    assert alerts()["thermal"]["for"] == "5m"
    rulebook.change(rulebook.named("thermal"), cluster, by=admin, version=0, threshold=91.5, severity="critical")
    rulebook.change(rulebook.named("host-disk-latency"), cluster, by=admin, version=0, threshold=250)
    rulebook.change(rulebook.named("host-io-pressure"), cluster, by=admin, version=0, is_enabled=False)
    rulebook.change(rulebook.named("drift"), None, by=admin, version=0, is_enabled=False)
    there = alerts(cluster_id=cluster.pk)
    assert ">= 91.5 unless" in there["thermal"]["expr"]
    assert there["thermal"]["labels"]["severity"] == "critical"
    assert ">= 0.25" in there["host-disk-latency"]["expr"]
    assert not {"drift", "host-io-pressure"} & there.keys()
    assert ">= 0.1" in alerts()["host-io-pressure"]["expr"]


def test_both_generations_stand_in_each_query_in_one_unit(db):
    recorded = {rule["record"]: rule["expr"] for rule in export.groups(ScrapeSettings())[0]["rules"]}
    busy = recorded["setpoint:gpu_busy:ratio"]
    assert "DCGM_FI_DEV_GPU_UTIL * 0.01 or DCGM_FI_DEV_GPU_UTIL_RATIO" in busy
    assert '"workload_pod", "$1", "exported_pod"' in busy
    honest = {rule["record"]: rule["expr"] for rule in export.groups(ScrapeSettings(honors_labels=True))[0]["rules"]}
    assert '"workload_pod", "$1", "pod"' in honest["setpoint:gpu_busy:ratio"]
    for expression in recorded.values():
        assert "setpoint:" in expression or any(raw in expression for raw in NVIDIA)


def test_files_and_rest_give_the_same(client):
    user = UserFactory(roles=["viewer"])
    client.force_login(user)
    ClusterFactory(name="atlas")
    api = TokenClient(user)
    file = client.get("/gpus/alerts/prometheus-rule.yaml?cluster=atlas")
    assert "attachment" in file["Content-Disposition"]
    assert yaml.safe_load(file.content) == api.get("/api/v1/gpus/prometheus-rule?cluster=atlas").json()
    plain = client.get("/gpus/alerts/prometheus-rule.yaml?form=plain&honor_labels=true")
    assert list(yaml.safe_load(plain.content)) == ["groups"]
    board = json.loads(client.get("/gpus/alerts/grafana.json").content)
    assert board == api.get("/api/v1/gpus/grafana-dashboard").json()
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]}
    assert len(places) == len(board["panels"])
    assert "PrometheusRule" in client.get("/alerts/rules/").content.decode()


def test_what_is_not_there_or_not_known_is_refused(client):
    user = UserFactory(roles=["viewer@env:staging"])
    ClusterFactory(name="atlas", environment="production")
    api = TokenClient(user)
    unknown = api.get("/api/v1/gpus/prometheus-rule?cluster=atlas")
    assert (unknown.status_code, [error["field"] for error in unknown.json()["errors"]]) == (400, ["cluster"])
    assert api.get("/api/v1/gpus/prometheus-rule?nope=1").status_code == 400
    assert api.get("/api/v1/gpus/grafana-dashboard?honor_labels=maybe").status_code == 400
