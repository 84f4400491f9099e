"""The benches' own parts: what they measure with works, and what dies is reported at once."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import deque
from types import SimpleNamespace

import pytest

from bench.agents import Kernel
from bench.api_server import objects as pod_objects
from bench.api_server import server as pod_server
from bench.rollout import SETTINGS, Campaign
from clusters.fleet import FleetUnavailable, Gone
from clusters.inventory import pod_rows, rows
from clusters.kube.fleet import KubeFleet
from clusters.net.credentials import Credentials
from clusters.net.egress import Policy
from contract.nodetuning import Spec, Status, Wanted


def test_the_agents_of_the_benches_write_what_they_are_asked():
    kernel = Kernel()
    seen = kernel.answer(Spec("uid-1", mode="observe", observe=tuple(SETTINGS)), "uid-1", 2)
    settings = tuple(
        Wanted(key, "=", str(start + 1), Status.from_json(seen).observed[key]) for key, start in SETTINGS.items()
    )

    status = kernel.answer(Spec("uid-1", mode="apply", settings=settings), "uid-1", 3)

    assert {setting["state"] for setting in status["settings"]} == {"Effective"}, status["settings"]
    assert (status["nodeUID"], status["observedGeneration"]) == ("uid-1", 3)


def test_a_bench_whose_agents_died_says_why_and_does_not_wait(tmp_path):
    (tmp_path / "agents.log").write_text("AttributeError: no clock")
    campaign = Campaign(SimpleNamespace(installation=SimpleNamespace(folder=tmp_path)))
    campaign._agents = subprocess.Popen([sys.executable, "-c", ""])
    campaign._agents.wait(60)

    with pytest.raises(RuntimeError, match="the agents ended: AttributeError: no clock"):
        campaign._until(lambda: False, lambda: "")


@pytest.fixture
def of_pods():
    """Pods of the bench's API server, and Setpoint's own client of it."""
    pods = pod_server.Pods(1200, 10)
    server, url, ca = pod_server.served(pods)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    fleet = KubeFleet(Credentials(server=url, ca=ca, token="t"), policy=Policy.of(["127.0.0.0/8"]), timeout=20)
    yield pods, fleet
    fleet.close()
    server.shutdown()
    server.server_close()


def test_the_pods_of_the_bench_are_listed_as_of_one_moment_and_watched_from_there(of_pods):
    pods, fleet = of_pods
    new = pod_objects.Pod("team-000", "after", "u1", "", pod_objects.PENDING, True, 0)
    held = []

    def keep(raw):
        if not held:
            held.append(pods.put("ADDED", new))  # while its first page is read
        return raw

    page = fleet.list("pods", keep=keep)
    names = [(raw["metadata"]["namespace"], raw["metadata"]["name"]) for raw in page.items]

    assert names == sorted({*names})
    assert (len(names), ("team-000", "after") in names) == (1200, False)
    event, bookmark = fleet.watch("pods", page.resource_version, timeout=2)
    assert (event.type, event.object["metadata"]["uid"], event.resource_version) == ("ADDED", "u1", str(pods.version))
    assert (bookmark.type, bookmark.resource_version) == ("BOOKMARK", str(pods.version))
    assert 8000 < len(pod_objects.rendered(pods.base[0])) < 10_000


def test_the_pods_of_the_bench_that_hold_gpus_are_those_with_rows(of_pods):
    pods, fleet = of_pods
    page = fleet.list("pods", keep=pod_rows.kept)
    assert {raw["metadata"]["uid"] for raw in page.items} == {pod.uid for pod in pods.base if pod.is_held}
    assert len(page.items) + len(page.left_out) == 1200
    assert {rows.gpu_pod(raw) is None for raw in page.items} == {True, False}, "finished ones are among them"


def test_versions_that_the_server_of_the_bench_has_forgotten_are_gone(of_pods, monkeypatch):
    pods, fleet = of_pods
    monkeypatch.setattr(pods, "log", deque(maxlen=2))
    since = str(pods.version)
    for number in range(3):
        pods.put("ADDED", pod_objects.Pod("a", f"p{number}", f"u{number}", "", pod_objects.PENDING, False, 0))
    with pytest.raises(Gone):
        list(fleet.watch("pods", since, timeout=2))
    monkeypatch.setattr(pod_server, "FORGOTTEN_SECONDS", -1.0)
    with pytest.raises(FleetUnavailable, match="expire"):
        fleet.list("pods")


def test_the_server_of_the_bench_selects_by_phase_and_refuses_what_it_does_not_know():
    running = pod_objects.Pod("a", "p", "u", "n1", pod_objects.RUNNING, False, 0)
    assert pod_server.selects("status.phase!=Succeeded,status.phase!=Failed")(running)
    assert not pod_server.selects("spec.nodeName=n2")(running)
    with pytest.raises(ValueError, match="not supported"):
        pod_server.selects("spec.color=red")
