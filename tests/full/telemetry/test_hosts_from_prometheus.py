"""A real Prometheus with the node exporter's text: figures of hosts are what its raw samples say, computed by hand."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from clusters.models import Node
from common.clock import now
from gpus.effects import host_readings
from gpus.effects.windows import STEP, Window
from gpus.models import GpuDevice, HostLoad, TelemetrySource
from gpus.reports.hosts import nodes
from gpus.reports.hosts.queries import HOST
from gpus.services import host_loads
from tests.clusters.factories import ClusterFactory
from tests.full.harness.client import eventually
from tests.full.harness.prometheus import Job, Prometheus

pytestmark = [pytest.mark.full, pytest.mark.django_db]

TEXT = (Path(__file__).parents[2] / "gpus" / "exporters" / "node_exporter.prom").read_text()
EVERY, LASTS = 30, 2 * 3600
LATER = 600
"""Seconds of samples after the end that a test asks for: another five minutes may have begun when it reads."""
UUID = "GPU-12345678-9abc-def0-1234-56789abcdef0"


@pytest.fixture
def source(settings):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    return TelemetrySource.objects.create(cluster=ClusterFactory(), kind=TelemetrySource.Kind.PROMETHEUS)


def node(source: TelemetrySource, name: str, **labels: str) -> Node:
    return Node.objects.create(
        cluster=source.cluster, uid=name, name=name, is_ready=True, gpu_count=1, gpu_product="H100", labels=labels
    )


def test_a_scraped_exporter_is_matched_in_each_form_and_every_name_is_its_own(source):
    """Three targets of one text: by a label of discovery, by the host's own name, and by nothing."""
    host = {"node": "by-label.example"}
    other = TEXT.replace("gpu-node-07", "elsewhere")
    jobs = [Job("10.0.0.1:9100", other, False, host), Job("10.0.0.2:9100", TEXT, False, {})]
    jobs.append(Job("third.example:9100", other, True, {}))
    names = ["by-label.example", "gpu-node-07.example", "third.example", "absent.example"]
    for name in names:
        node(source, name)
    with Prometheus(jobs) as server:
        TelemetrySource.objects.update(url=server.url)

        def report():
            return nodes.side_by_side(source.cluster_id, names, now(), 300)

        def is_there() -> bool:
            hosts = {host.name: host for host in report().hosts}
            return all(name in hosts and hosts[name].value("pressure_io") == 0 for name in names[:3])

        eventually(is_there, lambda: str(report()))
        hosts = {host.name: host for host in report().hosts}
    assert {name for name, host in hosts.items() if host.why} == {"absent.example"}
    for name in names[:3]:
        assert hosts[name].value("memory_available") == 0.75
        assert hosts[name].value("disk_read_latency") is None, "nothing was read since the first scrape"
        figures = hosts[name].figures
        assert figures is not None
        assert [disk.name for disk in figures.disks] == ["nvme0n1", "nvme1n1"]
        assert [(port.name, port.state_word) for port in figures.ports] == [
            ("mlx5_0/1", "active"),
            ("mlx5_1/1", "down"),
        ]
    assert {query.metric for query in HOST} <= {line.split("{")[0].split(" ")[0] for line in TEXT.splitlines()}


class History:
    """Raw samples of one host over two hours, in which it starts again once; counters rise by chance."""

    def __init__(self, end: float) -> None:
        chance = random.Random(20)
        self.times = [end - LASTS + EVERY * number for number in range((LASTS + LATER) // EVERY + 1)]
        self.series: dict[str, list[float]] = {}
        self.counters = {
            'node_cpu_seconds_total{cpu="0",mode="idle"': 0.55, 'node_cpu_seconds_total{cpu="0",mode="iowait"': 0.15,
            'node_cpu_seconds_total{cpu="0",mode="user"': 0.3, 'node_cpu_seconds_total{cpu="1",mode="idle"': 0.9,
            'node_cpu_seconds_total{cpu="1",mode="system"': 0.1, "node_pressure_io_waiting_seconds_total{": 0.4,
            'node_disk_read_time_seconds_total{device="nvme0n1"': 30.0,
            'node_disk_reads_completed_total{device="nvme0n1"': 200.0,
            'node_disk_read_time_seconds_total{device="dm-0"': 900.0,
            'node_disk_reads_completed_total{device="dm-0"': 200.0,
            'node_network_receive_bytes_total{device="eth0"': 3e8, 'node_network_receive_bytes_total{device="lo"': 9e9,
            'node_infiniband_port_data_received_bytes_total{device="mlx5_0",port="1"': 2e10,
            'node_infiniband_port_data_received_bytes_total{device="mlx5_1",port="1"': 1e10,
            "node_vmstat_oom_kill{": 0.002,
        }  # fmt: skip
        again = (LASTS - 45 * EVERY) // EVERY
        for name, rate in self.counters.items():
            value, values = 1e6 * rate, []
            for place in range(len(self.times)):
                value = 0.0 if place == again else value + rate * EVERY * chance.uniform(0.6, 1.4)
                values.append(value)
            self.series[name] = values
        self.series['node_uname_info{nodename="gpu-node-07"'] = [1.0] * len(self.times)
        for direction in ("TX", "RX"):
            name = f'DCGM_FI_PROF_PCIE_{direction}_BYTES{{UUID="{UUID}",gpu="0",Hostname="gpu-node-07"'
            self.series[name] = [chance.uniform(1e9, 5e9) for _ in self.times]

    def text(self) -> str:
        lines = []
        for name, values in self.series.items():
            target = 'instance="10.0.0.7:9100",job="node-exporter"' if name.startswith("node_") else 'job="dcgm"'
            comma = "" if name.endswith("{") else ","
            pairs = zip(self.times, values, strict=True)
            lines += [f"{name}{comma}{target}}} {value!r} {at:.3f}" for at, value in pairs]
        kubelet = 'instance="10.0.0.7:10250",job="kubelet",node="gpu-node-07"}'
        lines += [f"kubelet_node_name{{{kubelet} 1.0 {at:.3f}" for at in self.times]
        # The first eviction makes the series, a few minutes before the end.
        lines += [
            f'kubelet_evictions{{eviction_signal="memory.available",{kubelet} 2.0 {at:.3f}' for at in self.times[-30:]
        ]
        return "\n".join([*lines, "# EOF", ""])

    def rise(self, name: str, start: float, end: float) -> float:
        """Return the rise a second: from sample to sample, and from zero where it fell."""
        points = [(at, value) for at, value in zip(self.times, self.series[name], strict=True) if start <= at <= end]
        risen = sum(later if later < before else later - before for (_, before), (_, later) in pairwise(points))
        return risen / (points[-1][0] - points[0][0])


def test_an_hour_is_what_its_raw_samples_say_also_over_a_restart(source):
    end = now().timestamp() // 300 * 300
    history = History(end)
    row = node(source, "gpu-node-07")
    GpuDevice.objects.create(cluster=source.cluster, node=row, node_name=row.name, uuid=UUID, index="0", model="H100")
    with Prometheus([], history.text()) as server:
        TelemetrySource.objects.update(url=server.url)
        host = nodes.of_node(row, 1)
    assert (host.why, host.target and host.target.by) == ("", "nodename")
    assert host.span.end - datetime.fromtimestamp(end, UTC) in (timedelta(), timedelta(minutes=5))
    start, end = host.start.timestamp(), host.span.end.timestamp()
    assert host.figures is not None
    figures = host.figures.figures

    def rise(name: str) -> float:
        (full,) = [key for key in history.counters if key.startswith(name)]
        return history.rise(full, start, end)

    cpu = {key: history.rise(key, start, end) for key in history.counters if key.startswith("node_cpu")}
    idle = sum(value for key, value in cpu.items() if "idle" in key)
    waits = sum(value for key, value in cpu.items() if "iowait" in key)
    disk = 'device="nvme0n1"'
    expected = {
        "cpu_busy": (sum(cpu.values()) - idle - waits) / sum(cpu.values()),
        "cpu_iowait": waits / sum(cpu.values()),
        "pressure_io": rise("node_pressure_io"),
        "disk_read_latency": rise(f"node_disk_read_time_seconds_total{{{disk}")
        / rise(f"node_disk_reads_completed_total{{{disk}"),
        "network_received": rise('node_network_receive_bytes_total{device="eth0"'),
        "rdma_received": sum(
            history.rise(key, start, end) for key in history.counters if key.startswith("node_infiniband")
        ),
        "pcie_sent": sum(
            value
            for at, value in zip(history.times, next(v for k, v in history.series.items() if "TX" in k), strict=True)
            if start < at <= end
        )
        / 120,
    }
    # Prometheus extrapolates to the ends of each step, and a restart costs it a scrape.
    assert {name: figures[name].mean for name in expected} == pytest.approx(expected, rel=0.03)
    assert host.figures.oom_kills == pytest.approx(3600 * rise("node_vmstat_oom_kill"), rel=0.05)
    assert {name for name, figure in figures.items() if figure.lack} == {
        "memory_available", "page_cache", "pressure_cpu", "pressure_io_full", "pressure_memory", "pressure_memory_full",
        "disk_write_latency", "disk_read", "disk_written", "network_sent", "rdma_sent", "nvlink",
    }  # fmt: skip
    assert {figures[name].lack for name in figures if figures[name].lack} == {"not exported"}
    assert host.figures.evictions == {"memory.available": 2}
    assert {finding.name for finding in host.findings} == {"pressure_io", "oom_kills", "disk_latency", "evictions"}


def test_a_study_reads_the_windows_of_a_host_as_its_raw_samples_say_also_over_a_restart(source):
    end = now().timestamp() // 300 * 300
    history = History(end)
    row = node(source, "gpu-node-07")
    ends = [datetime.fromtimestamp(end - seconds, UTC) for seconds in (4200, 0)]
    windows = [Window(at - 6 * STEP, at) for at in ends]  # the restart is in the second one
    held = {window.start + STEP * number for window in windows for number in range(6)}
    with Prometheus([], history.text()) as server:
        TelemetrySource.objects.update(url=server.url)
        steps = host_readings.read(source.cluster_id, {row.name: windows, "absent": windows})
    assert (steps["absent"].why, steps[row.name].why) == (host_readings.NO_TARGET, "")
    host = host_readings.compare(steps[row.name], held, (windows[0], windows[1]), None)
    disk = '{device="nvme0n1"'
    for place, window in enumerate(windows):
        start, until = window.start.timestamp(), window.end.timestamp()
        rise = {name: history.rise(name, start, until) for name in history.counters}
        rdma = sum(value for name, value in rise.items() if name.startswith("node_infiniband"))
        read = rise[f"node_disk_read_time_seconds_total{disk}"] / rise[f"node_disk_reads_completed_total{disk}"]
        expected = {
            "io_pressure": rise["node_pressure_io_waiting_seconds_total{"],
            "read_latency": 1000 * read,
            "net_received": rise['node_network_receive_bytes_total{device="eth0"'] / 1e6,
            "rdma_received": rdma / 1e6,
        }
        # A restart costs a scrape: one of sixty.
        assert {name: both[place] for name, both in host["figures"].items()} == pytest.approx(expected, rel=0.04)
    assert host["lacks"] == {"memory_pressure": "not exported", "cpu_pressure": "not exported"}


def test_the_alerts_on_disks_and_pressure_read_the_same(source):
    """Queries of gpus.services.host_loads as Prometheus answers them; the mapped disk is 30 times slower."""
    row = node(source, "gpu-node-07")
    node(source, "gone")
    gone = {"latency": {"gone": [0.5, "sda", "read", "10.0.0.8:9100", "node-exporter"]}}
    load = HostLoad.objects.create(cluster=source.cluster, high=gone)
    with Prometheus([], History(now().timestamp()).text()) as server:
        TelemetrySource.objects.update(url=server.url)
        assert host_loads.refresh(load.pk)
    load.refresh_from_db()
    assert (load.sentence, load.reporting) == ("", {"latency": 1, "pressure": 1})
    latency, pressure = load.high["latency"][row.name], load.high["pressure"][row.name]
    assert latency[1:] == ["nvme0n1", "read", "10.0.0.7:9100", "node-exporter"]
    assert (latency[0], pressure[0]) == (pytest.approx(0.15, rel=0.4), pytest.approx(0.4, rel=0.4))
    assert load.lost == {"latency": {"gone": ["10.0.0.8:9100", "node-exporter"]}, "pressure": {}}
