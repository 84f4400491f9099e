"""The check of the network takes no GPU: it runs on busy nodes, without rights, and reaches what an operator names."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from audit.models import Record
from clusters.models import Node
from common.clock import now
from common.errors import Invalid
from gpus.models import CheckImage, CheckRun
from gpus.services.checks import coverage, idleness, reports, starting, targets
from gpus.services.checks.catalog import CHECKS
from simfleet.controllers.check_programs import network as printed
from simfleet.controllers.programs import Program
from tests.factories import TokenClient
from tests.gpus.checks import outputs

pytestmark = pytest.mark.django_db
NETWORK, FIO = CHECKS["network"], CHECKS["fio-scratch"]
IMAGE = "registry.example/site/python:3.13"
Status, Outcome = CheckRun.Status, CheckRun.Outcome


@pytest.fixture
def reaching(checking):
    """A world in which the check has an image, whose program says what the simulated fleet says."""
    starting.set_image("network", IMAGE, by=checking.world.admin)
    checking.world.sim.programs.add(Program(IMAGE, run_seconds=3, prints=printed))
    return checking


def start(checking, *nodes, **given):
    by = checking.world.operator
    return starting.start("network", checking.world.cluster, nodes or ("n1",), at_once=10, by=by, **given)


def says(checking, text):
    checking.world.sim.programs.add(Program(IMAGE, run_seconds=3, prints=lambda _pod: text))


def test_it_runs_on_a_node_whose_gpus_are_held_and_leaves_the_pod_there(reaching):
    world = reaching.world
    world.sim.pods.add("train", namespace="team", gpus=8, node="n1")
    world.tick(5)
    (run,) = start(reaching)
    reaching.until(run, Status.RUNNING)
    (pod,) = reaching.pods()
    assert not any("gpu" in name for name in pod["spec"]["containers"][0]["resources"]["requests"])
    reaching.ended(run)
    assert (run.outcome, run.gpus) == (Outcome.PASSED, 0)
    assert [p["metadata"]["name"] for p in world.fleet.pods() if p["metadata"]["namespace"] == "team"] == ["train"]
    assert reaching.pods() == []


def test_its_pod_has_the_pods_network_and_nothing_else(reaching):
    reaching.until(start(reaching, targets=["nfs.example.com:2049"])[0], Status.RUNNING)
    reaching.world.tick(1)
    (pod,) = reaching.pods()
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    assert not spec.keys() & {"serviceAccountName", "hostNetwork", "hostPID", "hostIPC", "volumes"}
    assert spec["automountServiceAccountToken"] is False
    secured = container["securityContext"]
    assert (secured["runAsNonRoot"], secured["readOnlyRootFilesystem"], secured["privileged"]) == (True, True, False)
    assert secured["capabilities"] == {"drop": ["ALL"]}
    assert "memory" in container["resources"]["limits"]
    assert json.loads(container["command"][-1]) == {"targets": ["nfs.example.com:2049"]}
    assert pod["metadata"]["labels"]["setpoint.dev/check-network"] == "pods"


def test_a_check_that_takes_gpus_is_given_no_network(checking):
    checking.until(checking.start()[0], Status.RUNNING)
    (pod,) = checking.pods()
    assert "setpoint.dev/check-network" not in pod["metadata"]["labels"]


def test_a_node_that_is_cordoned_is_waited_for(reaching):
    Node.objects.filter(name="n1").update(is_cordoned=True)
    (run,) = start(reaching)
    run = CheckRun.objects.select_related("cluster", "node").get(pk=run.pk)
    assert "cordoned" in idleness.objection(run)


def test_split_and_shared_gpus_do_not_matter_to_it(reaching):
    Node.objects.filter(name="n1").update(allocatable={"nvidia.com/mig-1g.10gb": "7"}, gpu_shares={"nvidia.com/gpu": 4})
    (run,) = start(reaching)
    run = CheckRun.objects.select_related("cluster", "node").get(pk=run.pk)
    assert idleness.objection(run) == ""


def test_it_is_started_on_a_node_without_gpus_by_hand_and_never_by_a_schedule(scheduling):
    world = scheduling.world
    starting.set_image("network", IMAGE, by=world.admin)
    Node.objects.filter(name="n1").update(gpu_count=0, allocatable={})
    schedule = scheduling.add(name="network", every_days=1)
    world.sim.pods.add("train", namespace="team", gpus=8, node="n2")
    world.tick(5)
    Node.objects.filter(name="n1").update(gpu_count=0, allocatable={})
    assert [node.name for node in coverage.due(schedule, NETWORK, 10)] == ["n2", "n3", "n4", "n5", "n6"]
    assert coverage.of([schedule])[schedule.pk].nodes == 5
    assert start(scheduling, "n1")[0].gpus == 0


def test_a_failure_names_the_target_and_its_figures_have_a_trend(reaching):
    says(reaching, outputs.network())
    reaching.ended(start(reaching)[0])
    says(reaching, outputs.network(dns={"answered": 9, "failures": {"silent": 1}, "max_ms": 12.0}))
    run = reaching.ended(start(reaching)[0])
    assert (run.outcome, run.program_version) == (Outcome.FAILED, "Python 3.13.14")
    assert run.reason == f"1 of 10 queries for {outputs.OWN_NAME} at 10.96.0.10: no answer"
    (line,) = reports.of_node(reaching.world.operator, run.node)
    trends = {figure.measure.name: figure.trend for figure in line.lines}
    assert (trends["failed"], trends["dns_slowest"]) == ((0.0, 1.0), (2.5, 12.0))


def test_an_output_without_a_target_that_was_asked_for_is_no_result(reaching):
    says(reaching, outputs.network())
    run = reaching.ended(start(reaching, targets=["registry.example.com"])[0])
    assert (run.outcome, "registry.example.com" in run.reason) == (Outcome.UNKNOWN, True)


def test_peers_of_each_check_are_runs_of_that_check(reaching):
    """A check without GPUs and one with all of them run on one node: each is compared with its own kind."""
    world, at = reaching.world, now() - timedelta(hours=1)
    for node in Node.objects.filter(cluster=world.cluster):
        for check, gpus, measure in ((NETWORK, 0, "dns_median"), (FIO, 8, "read_bandwidth")):
            for number in range(6 if node.name == "n2" else 1):
                CheckRun.objects.create(
                    cluster=world.cluster, node=node, check_name=check.name, image="r/x:1", gpus=gpus, at_once=1,
                    model=node.gpu_product, status="ended", outcome="passed", measures={measure: 1.0},
                    created_at=at - timedelta(minutes=number), ended_at=at,
                )  # fmt: skip
    runs = [CheckRun.objects.filter(node__name="n1", check_name=check.name).get() for check in (NETWORK, FIO)]
    peers = reports._peers(world.operator, runs)
    assert {name: len(values) for name, values in peers.items()} == {
        ("network", "dns_median"): 2, ("fio-scratch", "read_bandwidth"): 2,
    }  # fmt: skip


# ── targets ───────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "target",
    [
        "registry", "registry..com", "-x.example.com", "a b.example.com", "example.com/path", "https://example.com",
        "10.0.0.1", "1.2.3", "example.com:", "example.com:0", "example.com:65536", "example.com:08", "example.com:+80",
        "example.com:٤٤٣", "fe80::1:443", "[fe80::1]:443", "[10.0.0.1]:80", "[::1]:80", "127.0.0.1:6443", "0.0.0.0:80",
        "169.254.169.254:80", "224.0.0.1:80", "[2001:db8::1%eth0]:80", "$(reboot).example.com", "x" * 64 + ".com",
        "{program}.example.com", "", ":443", "a.example.com\n.b.example.com:1", ".".join(["x" * 60] * 5) + ":1",
    ],
)  # fmt: skip
def test_a_target_that_is_none_is_refused(target):
    with pytest.raises(Invalid) as refused:
        targets.judged(NETWORK, [target])
    assert list(refused.value.fields) == ["targets"]
    assert refused.value.fields["targets"][0].isprintable()


def test_targets_are_names_and_addresses_with_a_port():
    given = ["Registry.Example.com.", "nfs.storage.svc.cluster.local:2049", "10.0.0.1:443", "[2001:db8::1]:53"]
    wanted = ["registry.example.com", *given[1:]]
    assert targets.judged(NETWORK, [*given, "registry.example.com"]) == wanted
    with pytest.raises(Invalid):
        targets.judged(NETWORK, [f"n{number}.example.com" for number in range(9)])
    with pytest.raises(Invalid, match="takes no targets"):
        targets.judged(FIO, ["registry.example.com"])


def test_the_page_and_rest_start_it_with_targets_and_refuse_what_is_none(reaching, client):
    world = reaching.world
    client.force_login(world.operator)
    given = {"check": "network", "cluster": "atlas", "nodes": "n1", "at_once": "1"}
    wrong = client.post("/gpus/checks/", given | {"targets": "no.such-port:x"})
    assert (wrong.status_code, b'id="id_targets-error"' in wrong.content) == (422, True)
    assert client.post("/gpus/checks/", given | {"targets": "a.example.com, b.example.com:80"}).status_code == 302
    assert CheckRun.objects.get().targets == ["a.example.com", "b.example.com:80"]
    assert b"and a.example.com, b.example.com:80" in client.get("/gpus/checks/").content
    api = TokenClient(world.operator, ["read", "apply"])
    body = {"check_name": "network", "cluster": str(world.cluster.pk), "nodes": ["n2"]}
    made = api.post("/api/v1/gpus/check-runs", body | {"targets": ["a.example.com"]})
    assert (made.status_code, made.json()["results"][0]["targets"]) == (201, ["a.example.com"])
    for bad in (["a"], ["a.example.com"] * 9, "a.example.com", [7.5]):
        refused = api.post("/api/v1/gpus/check-runs", body | {"nodes": ["n3"], "targets": bad})
        assert refused.status_code == 422
        assert {error["field"].split(".")[0] for error in refused.json()["errors"]} == {"targets"}
    line = next(line for line in api.get("/api/v1/gpus/checks").json() if line["name"] == "network")
    assert (line["takes_gpus"], line["takes_targets"], "{program}" in line["command"]) == (False, True, True)
    recorded = Record.objects.filter(action="check.start").values_list("after", flat=True)
    assert sorted(after["targets"] for after in recorded) == [["a.example.com"], ["a.example.com", "b.example.com:80"]]


def test_without_an_image_it_is_off(checking):
    assert not CheckImage.objects.filter(check_name="network").exists()
    with pytest.raises(Exception, match="has no image"):
        start(checking)
