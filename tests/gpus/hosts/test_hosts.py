"""The host beside its GPUs, on pages and over REST, against what its node exporter printed at the same times."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from clusters.connection import registry
from clusters.models import GpuJob
from gpus.effects import host_readings
from gpus.effects.windows import Window
from gpus.models import HostLoad as HostLoads
from gpus.models import TelemetrySource
from gpus.services import host_loads
from gpus.telemetry import hosts
from simfleet.controllers.monitoring import Scraped
from simfleet.core import SimCluster
from simfleet.machines.host_counters import CALM, SLOW_DISK, HostLoad
from simfleet.memory import SimFleet
from tests.clusters.factories import ClusterFactory
from tests.factories import TokenClient, UserFactory
from tests.gpus.peers.lives.watched import Watched
from tests.gpus.telemetry.prometheus_server import AUTHORITY, Server

pytestmark = pytest.mark.django_db


class Hosted(Watched):
    """Three nodes of a job whose cluster has a Prometheus; the second one has a slow disk, and its GPUs wait."""

    def __init__(self, clock: Any) -> None:
        super().__init__(clock.at - timedelta(minutes=70), nodes=3, cluster=ClusterFactory(name="atlas"))
        self.clock = clock
        for number in range(3):
            self.hears(f"p{number}", node=f"n{number}", job="train", job_uid="u-1")
        self.held = {
            (f"n{number}", index): (f"team/p{number}", 0.31 if number == 1 else 0.93)
            for number in range(3)
            for index in range(4)
        }
        self.store()
        self.go_on(4200)
        self.sim = SimCluster(seed=1)
        for name in self.names:
            self.sim.add_node(name)
        self.sim.monitoring.install()
        self.sim.monitoring.loads["n1"] = SLOW_DISK
        self.source.refresh_from_db()
        hosts.forget(self.cluster.pk)
        self.user = UserFactory(is_superuser=True)

    def rest(self, path: str) -> Any:
        answer = TokenClient(self.user).get(f"/api/v1/{path}")
        assert answer.status_code == 200, answer.content
        return answer.json()

    def page(self, path: str) -> str:
        client = Client()
        client.force_login(self.user)
        answer = client.get(path)
        assert answer.status_code == 200
        return answer.content.decode()

    def node(self, name: str) -> int:
        return int(self.cluster.nodes.get(name=name).pk)

    def raw(self, node: str, at: float) -> dict[tuple[str, str], float]:
        """Return what the exporter printed, by name and labels."""
        lines = self.sim.monitoring.text(node, at).splitlines()
        matches = [re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line) for line in lines]
        return {(match[1], match[2] or ""): float(match[3]) for match in matches if match}


def words(text: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text)))


@pytest.fixture
def hosted(clock):
    made = Hosted(clock)
    with registry.override(made.cluster.pk, SimFleet(made.sim)):
        yield made


def risen(hosted: Hosted, node: str, body: Any, name: str, labels: str = "") -> float:
    """Return by how much a counter rose a second in the time of an answer, from the exporter's text."""
    end = hosted.clock.at.timestamp() // body["step_seconds"] * body["step_seconds"]
    length = body["step_seconds"] * len(body["figures"][0]["values"])
    return (hosted.raw(node, end)[name, labels] - hosted.raw(node, end - length)[name, labels]) / length


@pytest.mark.parametrize("hours", [1, 6, 24])
def test_figures_of_a_host_are_what_its_exporter_counted(hosted, hours):
    body = hosted.rest(f"gpus/nodes/{hosted.node('n1')}/host?hours={hours}")
    assert (body["why"], body["matched_by"], body["hours"]) == ("", "nodename", hours)
    assert body["instance"] == hosted.sim.monitoring.target("n1")["instance"]
    figures = {figure["name"]: figure for figure in body["figures"]}
    assert body["step_seconds"] * len(figures["cpu_busy"]["values"]) == hours * 3600

    def rate(name: str, labels: str = "") -> float:
        return risen(hosted, "n1", body, name, labels)

    slow = 'device="nvme1n1"'
    expected = {
        "cpu_busy": sum(rate("node_cpu_seconds_total", f'cpu="0",mode="{mode}"') for mode in ("user", "system")),
        "cpu_iowait": rate("node_cpu_seconds_total", 'cpu="3",mode="iowait"'),
        "pressure_io": rate("node_pressure_io_waiting_seconds_total"),
        "pressure_io_full": rate("node_pressure_io_stalled_seconds_total"),
        "disk_read_latency": rate("node_disk_read_time_seconds_total", slow)
        / rate("node_disk_reads_completed_total", slow),
        "disk_read": sum(rate("node_disk_read_bytes_total", f'device="nvme{disk}n1"') for disk in (0, 1)),
        "network_received": rate("node_network_receive_bytes_total", 'device="eth0"'),
        "rdma_sent": sum(
            rate("node_infiniband_port_data_transmitted_bytes_total", f'device="mlx5_{port}",port="1"')
            for port in (0, 1)
        ),
    }
    assert {name: figures[name]["mean"] for name in expected} == pytest.approx(expected, rel=1e-6)
    assert figures["page_cache"]["mean"] == pytest.approx(hosted.raw("n1", 0)["node_memory_Cached_bytes", ""])
    (finding,) = [finding for finding in body["findings"] if finding["name"] == "pressure_io"]
    assert finding["limits_gpus"]
    assert "31 % busy" in finding["text"]
    assert [disk["name"] for disk in body["disks"] if disk["read_latency"] > 0.1] == ["nvme1n1"]
    assert {(port["device"], port["state"]) for port in body["rdma_ports"]} == {
        ("mlx5_0", "active"), ("mlx5_1", "active"),
    }  # fmt: skip


def test_a_nodes_page_asks_for_its_host_later_and_shows_what_rest_has(hosted):
    pk = hosted.node("n1")
    later = f"/gpus/nodes/{pk}/host/live/"
    assert later in hosted.page(f"/nodes/{pk}/")
    body, text = hosted.rest(f"gpus/nodes/{pk}/host"), hosted.page(later)
    shown = words(text)
    mean = {figure["name"]: figure["mean"] for figure in body["figures"]}
    assert f"{1000 * mean['disk_read_latency']:.0f} ms" in shown
    assert f"{100 * mean['pressure_io']:.0f} %" in shown
    assert "May limit the GPUs" in shown
    for finding in body["findings"]:
        assert finding["text"] in shown
    assert "Not exported: PCIe to GPUs, PCIe from GPUs, NVLink, both directions." in shown
    calm = hosted.rest(f"gpus/nodes/{hosted.node('n0')}/host")
    assert calm["findings"] == []


def test_what_no_exporter_prints_is_not_exported_and_never_zero(hosted):
    hosted.sim.monitoring.hidden |= {"node_pressure_", "node_infiniband_", "node_vmstat_", "node_memory_MemAvailable"}
    body = hosted.rest(f"gpus/nodes/{hosted.node('n1')}/host")
    lacking = {figure["name"]: figure for figure in body["figures"] if figure["lack"]}
    for name in ("pressure_io", "pressure_memory", "rdma_received", "memory_available"):
        assert (lacking[name]["mean"], lacking[name]["lack"]) == (None, "not exported")
        assert set(lacking[name]["values"]) == {None}
    assert (body["oom_kills"], body["rdma_ports"]) == (None, [])
    assert {finding["name"] for finding in body["findings"]} == {"disk_latency"}
    assert hosted.rest(f"gpus/jobs/{GpuJob.objects.get().pk}/hosts")["hosts"][0]["figures"]["rdma_sent"] is None


@pytest.mark.parametrize(
    ("load", "name", "severity"),
    [
        (HostLoad(down=frozenset({1})), "rdma_link", "warn"),
        (HostLoad(cpu=0.97, iowait=0.0), "cpu_busy", "warn"),
        (HostLoad(available=0.05), "memory_available", "warn"),
        (HostLoad(pressure_memory=0.3), "pressure_memory", "ok"),  # its GPUs are 93 % busy all the same
    ],
)
def test_each_limit_is_seen_alone(hosted, load, name, severity):
    hosted.sim.monitoring.loads["n0"] = load
    body = hosted.rest(f"gpus/nodes/{hosted.node('n0')}/host")
    assert [(finding["name"], finding["severity"]) for finding in body["findings"]] == [(name, severity)]


def test_hosts_of_a_job_are_side_by_side_and_the_worst_is_marked(hosted):
    job = GpuJob.objects.get()
    body = hosted.rest(f"gpus/jobs/{job.pk}/hosts")
    by_name = {host["node_name"]: host for host in body["hosts"]}
    assert list(by_name) == ["n0", "n1", "n2"]
    assert {name: host["worst"] for name, host in by_name.items()} == {
        "n0": [], "n1": ["pressure_io", "disk_read_latency", "disk_write_latency"], "n2": [],
    }  # fmt: skip
    assert by_name["n1"]["figures"]["disk_read_latency"] == pytest.approx(SLOW_DISK.read_latency)
    assert by_name["n0"]["figures"]["disk_read_latency"] == pytest.approx(CALM.read_latency)
    later = f"/gpus/jobs/{job.pk}/hosts/live/"
    assert later in hosted.page(f"/gpus/jobs/{job.pk}/")
    text = hosted.page(later)
    row = words(text[text.index('data-host="n1"') :].partition("</tr>")[0])
    assert f"{1000 * SLOW_DISK.read_latency:.0f} ms worst" in row
    assert text.count("pill-word") == 3


def test_unknown_input_is_refused_and_no_host_of_others_is_shown(hosted):
    client = TokenClient(hosted.user)
    path = f"/api/v1/gpus/nodes/{hosted.node('n1')}/host"
    assert "1, 6, 24" in str(client.get(f"{path}?hours=2").json())
    assert client.get(f"{path}?since=1").status_code == 400
    assert TokenClient(UserFactory(roles=["viewer@env:production"])).get(path).status_code == 404


@pytest.mark.parametrize("kind", ["exporters", "automatic", "disabled"])
def test_without_a_prometheus_the_page_says_what_to_do(hosted, kind):
    hosted.sim.monitoring.hidden.add("node_")
    changes = {"is_enabled": False} if kind == "disabled" else {"kind": kind}
    TelemetrySource.objects.update(**changes)
    pk = hosted.node("n1")
    why = hosted.rest(f"gpus/nodes/{pk}/host")["why"]
    assert "in its settings" in why or "in the settings of the source" in why
    assert why in words(hosted.page(f"/gpus/nodes/{pk}/host/live/"))


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, b"<h1>log in</h1>", "not Prometheus"),
        (200, b'{"data":{"result":[{"metric":3,"value":[1,"2"]}]}}', "not Prometheus"),
        (200, b'{"data":{"result":[]}}', "No target of the node exporter is n1"),
        (401, b"no: s3cret-token", "credentials"),
        (503, b'{"error":"try s3cret-token <b>later</b>"}', "overloaded"),
        (422, b'{"error":"too many samples"}', "too many samples"),
    ],
)
def test_an_answer_that_is_none_is_a_sentence_without_secrets(hosted, settings, status, body, expected):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    server = Server(lambda _query: (status, body))
    source = hosted.source
    source.kind, source.url, source.ca, source.auth = "prometheus", server.url, AUTHORITY.pem, "bearer"
    source.set_secret("s3cret-token")
    source.save()
    try:
        why = hosted.rest(f"gpus/nodes/{hosted.node('n1')}/host")["why"]
    finally:
        server.close()
    assert expected in why
    assert "s3cret" not in why
    assert "<b>" not in why


def test_pods_that_a_kubelet_evicted_are_counted_from_the_first_one(hosted):
    """The counter appears with it, so that a rate over the time would have nothing to rise from."""
    ends = hosted.clock.at.timestamp() // 300 * 300
    hosted.sim.monitoring.evicted = {
        "n0": {"memory.available": [ends - 1800]},
        "n1": {
            "memory.available": [ends - 90_000, ends - 4000],
            "nodefs.available": [ends - 600, ends - 500, ends + 9],
        },
    }
    first, second, third = (hosted.rest(f"gpus/nodes/{hosted.node(name)}/host") for name in hosted.names)
    assert [body["evictions"] for body in (first, second, third)] == [
        {"memory.available": 1}, {"nodefs.available": 2}, {},
    ]  # fmt: skip
    assert "The kubelet evicted 1 pod: memory.available." in [finding["text"] for finding in first["findings"]]
    shown = words(hosted.page(f"/gpus/nodes/{hosted.node('n1')}/host/live/"))
    assert "Pods evicted by the kubelet: 2." in shown
    day = hosted.rest(f"gpus/nodes/{hosted.node('n1')}/host?hours=24")
    assert day["evictions"] == {"memory.available": 1, "nodefs.available": 2}

    job = GpuJob.objects.get().pk
    texts = {row["node_name"]: str(row["findings"]) for row in hosted.rest(f"gpus/jobs/{job}/hosts")["hosts"]}
    assert [name for name, text in sorted(texts.items()) if "The kubelet evicted" in text] == ["n0", "n1"]
    assert "The kubelet evicted 1 pod: memory.available." in words(hosted.page(f"/gpus/jobs/{job}/hosts/live/"))


@pytest.mark.parametrize("hidden", ["kubelet_", "kubelet_node_name"])
def test_without_a_kubelets_counters_evictions_are_unknown_and_not_none(hosted, hidden):
    hosted.sim.monitoring.hidden.add(hidden)
    body = hosted.rest(f"gpus/nodes/{hosted.node('n1')}/host")
    assert body["evictions"] is None
    assert body["oom_kills"] == 0
    assert "evicted by the kubelet" not in words(hosted.page(f"/gpus/nodes/{hosted.node('n1')}/host/live/"))


def test_two_kubelets_of_one_name_are_none(hosted):
    """A Prometheus may have two clusters, and the source no label of this one."""
    hosted.sim.monitoring.evicted = {"n1": {"memory.available": [hosted.clock.at.timestamp() - 900]}}
    other = {"instance": "10.9.0.1:10250", "job": "kubelet", "node": "n1"}
    hosted.sim.monitoring.scraped.append(
        lambda: [Scraped(other, lambda _: [("kubelet_node_name", {"node": "n1"}, 1.0)])]
    )
    assert hosted.rest(f"gpus/nodes/{hosted.node('n1')}/host")["evictions"] is None


def test_a_study_reads_the_same_hosts_with_disks_and_ports_added_up(hosted):
    end = hosted.clock.at.replace(second=0, microsecond=0)
    end -= timedelta(minutes=end.minute % 5)
    window = Window(end - timedelta(hours=2), end)
    steps = host_readings.read(hosted.cluster.pk, {name: [window] for name in ("n0", "n1")})
    levels = {name: steps[name].levels(steps[name].values["reads"], window) for name in steps}
    assert levels["n1"]["io_pressure"] == pytest.approx(SLOW_DISK.pressure_io, rel=1e-3), "a whole period"
    assert levels["n0"]["rdma_received"] == pytest.approx(2 * CALM.rdma / 1e6, rel=1e-3)
    both = (SLOW_DISK.read_latency + CALM.read_latency) / 2
    assert levels["n1"]["read_latency"] == pytest.approx(1000 * both, rel=1e-3)
    assert levels["n0"]["net_received"] == pytest.approx(CALM.network / 1e6, rel=1e-3)


def test_alerts_read_the_slow_disk_and_the_pressure_of_the_same_host(hosted):
    host_loads.reconcile()
    assert host_loads.refresh(host_loads.due()[0])

    row = HostLoads.objects.get()
    assert (row.sentence, row.lost) == ("", {"latency": {}, "pressure": {}})
    latency, disk, kind, instance, _ = row.high["latency"]["n1"]
    assert (latency, disk, kind) == (pytest.approx(SLOW_DISK.read_latency), "nvme1n1", "read")
    assert instance == hosted.sim.monitoring.target("n1")["instance"]
    assert set(row.high["latency"]) == {"n1"}, "other hosts are below the lowest limit"
    assert row.high["pressure"]["n1"][0] == pytest.approx(SLOW_DISK.pressure_io, rel=0.35)
    assert row.reporting == {"latency": 3, "pressure": 3}
