"""The exported rules under Prometheus' own tool: they load, and fire on either generation's series as Setpoint does."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpus.alerts import export
from gpus.alerts.export import ScrapeSettings

pytestmark = pytest.mark.django_db
GENERATIONS = {
    "classic": (
        "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_TEMP",
        "DCGM_FI_DEV_THERMAL_VIOLATION", 1e9, "Hostname", 100,
    ),
    "base_units": (
        "DCGM_FI_DEV_GPU_UTIL_RATIO", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
        "DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL", 1, "hostname", 1,
    ),
}  # fmt: skip


def promtool(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("honors", [False, True])
def test_the_rules_fire_on_what_setpoint_calls_amiss(tmp_path: Path, generation: str, honors: bool) -> None:
    groups = export.groups(ScrapeSettings(honors_labels=honors))
    (tmp_path / "rules.yaml").write_text(export.as_yaml({"groups": groups}))
    rules = sum(len(group["rules"]) for group in groups)
    assert f"{rules} rules found" in promtool(tmp_path, "check", "rules", "rules.yaml")
    busy, engine, celsius, heat, second, host, scale = GENERATIONS[generation]
    prefix = "" if honors else "exported_"

    def series(name: str, gpu: int, pod: str, values: str) -> dict[str, str]:
        held = f',{prefix}namespace="team",{prefix}pod="{pod}"' if pod else ""
        exporter = 'namespace="gpu-operator",pod="x-dcgm-exporter-1"' if not (honors and pod) else ""
        labels = ",".join(part for part in (f'UUID="GPU-{gpu}",gpu="{gpu}",{host}="n1"', exporter) if part)
        return {"series": f"{name}{{{labels}{held}}}", "values": values}

    low, high = f"{0.01 * scale:g}x100", f"{0.9 * scale:g}x100"
    input_ = []
    for gpu, pod, use, active in (
        (0, "idle", low, "0.01x100"),
        (1, "idle", low, "0.01x100"),
        (2, "half", low, "0.01x100"),  # its other GPU works
        (3, "half", high, "0.8x100"),
        (4, "engine", low, "0.4x100"),  # utilization alone proves nothing
        (5, "", low, "0.01x100"),  # no pod holds it
        (6, "young", f"_x80 {0.01 * scale:g}x20", "_x80 0.01x20"),
    ):
        input_ += [series(busy, gpu, pod, use), series(engine, gpu, pod, active)]
        input_.append(series(celsius, gpu, pod, "86x100" if gpu == 3 else "60x100"))
    xids = "DCGM_FI_DEV_XID_ERRORS" if generation == "classic" else "DCGM_FI_DEV_XID_ERROR"
    input_ += [series(xids, 0, "idle", "79x100"), series(xids, 1, "idle", "13x100")]
    # Of each half minute 3 s are 10 %, 1 s is 3.3 %
    for gpu, pod, seconds in ((4, "engine", 3), (2, "half", 1), (5, "", 0)):
        input_.append(series(heat, gpu, pod, f"{7 * second:.0f}+{seconds * second:.0f}x100"))
    case: dict[str, Any] = {
        "interval": "30s",
        "input_series": input_,
        "promql_expr_test": [
            {
                "expr": f'count by (alertname, {labels}) (ALERTS{{alertstate="firing",alertname="{name}"}})',
                "eval_time": "48m",
                "exp_samples": [{"labels": f'{{alertname="{name}",{label}}}', "value": 1}],
            }
            for name, labels, label in (
                ("SetpointHeldIdle", "workload_pod", 'workload_pod="idle"'),
                ("SetpointThermal", "UUID", 'UUID="GPU-3"'),
                ("SetpointThermalThrottle", "UUID", 'UUID="GPU-4"'),
                ("SetpointFatalXid", "UUID", 'UUID="GPU-0"'),
            )
        ],
    }
    (tmp_path / "test.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "30s", "tests": [case]})
    )
    promtool(tmp_path, "test", "rules", "test.yaml")


BOARD = 'UUID="GPU-0",gpu="0",modelName="H100",Hostname="n1"'


def judged(folder: Path, series: dict[str, str], *expected: tuple[str, str, list[tuple[str, float]]]) -> None:
    """Hold each (expression, time, [(labels, value)]) against the exported rules; `series`: values by raw series."""
    (folder / "rules.yaml").write_text(export.as_yaml({"groups": export.groups(ScrapeSettings(honors_labels=True))}))
    case = {
        "interval": "30s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": expr, "eval_time": at, "exp_samples": [{"labels": labels, "value": n} for labels, n in samples]}
            for expr, at, samples in expected
        ],
    }
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "30s", "tests": [case]}
    (folder / "test.yaml").write_text(yaml.safe_dump(document))
    promtool(folder, "test", "rules", "test.yaml")


def firing(rule: str, by: str = "UUID") -> str:
    return f'count by ({by}) (ALERTS{{alertstate="firing",setpoint_rule="{rule}"}})'


@pytest.mark.parametrize("shared", ['GPU_I_ID="{n}",GPU_I_PROFILE="1g.10gb",pod="p{n}"', 'pod="p{n}",namespace="t"'])
def test_a_board_is_one_alert_and_its_power_is_counted_once(tmp_path: Path, shared: str) -> None:
    """Seven instances, or seven pods by time slicing, each of which the exporter gives the board's own value."""
    names = {"DCGM_FI_DEV_GPU_TEMP": "91x40", "DCGM_FI_DEV_POWER_USAGE": "350x40", "DCGM_FI_DEV_XID_ERRORS": "79x40"}
    series = {
        f"{name}{{{BOARD},{shared.format(n=number)}}}": values for name, values in names.items() for number in range(7)
    }
    charts = {panel["title"]: panel for panel in export.dashboard(ScrapeSettings(honors_labels=True))["panels"]}
    power = charts["Power, by node"]["targets"][0]["expr"]
    judged(
        tmp_path,
        series,
        (firing("thermal"), "15m", [('{UUID="GPU-0"}', 1)]),
        (firing("fatal-xid", "UUID, xid"), "15m", [('{UUID="GPU-0",xid="79"}', 1)]),
        (power, "15m", [('{node="n1"}', 350)]),
    )


def test_a_counter_of_xids_fires_as_it_rises_and_ends_though_the_gauge_sticks(tmp_path: Path) -> None:
    count, last = f'DCGM_EXP_XID_ERRORS_TOTAL{{{BOARD},xid="79"}}', f"DCGM_FI_DEV_XID_ERRORS{{{BOARD}}}"
    fires, quiet = [('{UUID="GPU-0",xid="79"}', 1.0)], []
    judged(
        tmp_path,
        # After 10 minutes it is there, after 40 it rises.
        {count: "_x20 1x59 2x60 1x60", last: "0x20 79x180", f"DCGM_FI_DEV_GPU_TEMP{{{BOARD}}}": "50x200"},
        *(
            (firing("fatal-xid", "UUID, xid"), at, samples)
            for at, samples in (
                ("9m", quiet),
                ("12m", fires),
                ("30m", quiet),
                ("42m", fires),
                ("60m", quiet),
                ("72m", fires),
                ("90m", quiet),
            )
        ),
    )


@pytest.mark.parametrize("blank", [2147483632, 9223372036854775794])
def test_dcgms_blanks_are_no_heat(tmp_path: Path, blank: int) -> None:
    series = {f"DCGM_FI_DEV_GPU_TEMP{{{BOARD}}}": f"{blank}x60", f"DCGM_FI_DEV_POWER_USAGE{{{BOARD}}}": f"{blank}x60"}
    judged(tmp_path, series, (firing("thermal"), "25m", []), ("setpoint:gpu_power:watts", "25m", []))


def test_one_exporter_that_is_lost_is_told_among_others(tmp_path: Path) -> None:
    series = {f'DCGM_FI_DEV_GPU_TEMP{{UUID="GPU-{n}",gpu="0",Hostname="n{n}"}}': "50x400" for n in range(3)}
    series['DCGM_FI_DEV_GPU_TEMP{UUID="GPU-9",gpu="0",Hostname="n9"}'] = "50x40 stale"
    judged(
        tmp_path,
        series,
        (firing("exporter-silent", "node"), "15m", []),
        (firing("exporter-silent", "node"), "40m", [('{node="n9"}', 1)]),
        (firing("exporter-silent", "node"), "100m", []),  # it was taken away
        (firing("telemetry-lost", "node"), "40m", []),
    )


def test_a_node_that_is_down_is_no_silent_exporter_and_all_together_are_one_alert(tmp_path: Path) -> None:
    series = {f'DCGM_FI_DEV_GPU_TEMP{{UUID="GPU-{n}",gpu="0",Hostname="n{n}"}}': "50x40 stale" for n in (1, 2)}
    series['DCGM_FI_DEV_GPU_TEMP{UUID="GPU-0",gpu="0",Hostname="n0"}'] = "50x120 stale"
    series['kube_node_status_condition{node="n1",condition="Ready",status="true"}'] = "1x40 0x400"
    series['kube_node_status_condition{node="n2",condition="Ready",status="true"}'] = "1x440"
    judged(
        tmp_path,
        series,
        (firing("exporter-silent", "node"), "40m", [('{node="n2"}', 1)]),
        (firing("exporter-silent", "node"), "75m", []),
        (firing("telemetry-lost", "setpoint_rule"), "75m", [('{setpoint_rule="telemetry-lost"}', 1)]),
    )


def of_board(name: str, values: str, number: int = 0, **labels: str) -> dict[str, str]:
    more = "".join(f',{label}="{value}"' for label, value in labels.items())
    return {f'{name}{{UUID="GPU-{number}",gpu="{number}",modelName="H100",Hostname="n1"{more}}}': values}


def test_a_board_that_is_reported_no_more_is_lost_and_a_replaced_one_is_not(tmp_path: Path) -> None:
    series = of_board("DCGM_FI_DEV_GPU_TEMP", "50x400") | of_board(
        "DCGM_FI_DEV_GPU_TEMP", "50x40 9223372036854775794x400", 1
    )
    series |= {
        'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-8",gpu="0",Hostname="n2"}': "50x40 stale",
        'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-9",gpu="0",Hostname="n2"}': "_x41 50x400",
    }
    by = "node"
    judged(
        tmp_path,
        series,
        (firing("gpu-lost", by), "15m", []),
        (firing("gpu-lost", by), "40m", [('{node="n1"}', 1)]),  # an instance of it would be the same board
    )


RISES = {
    "ecc-uncorrected": ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 1, "3x{n} 4x200"),
    "nvlink-errors": (
        "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL", 1, "3x{n} 4x200",
    ),
    "pcie-replays": ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "DCGM_FI_DEV_PCIE_REPLAY_TOTAL", 1, "3x{n} 200x200"),
}  # fmt: skip


@pytest.mark.parametrize("rule", RISES)
@pytest.mark.parametrize("generation", [0, 1])
def test_a_counter_fires_while_it_rises_once_a_board_and_its_value_alone_is_nothing(
    tmp_path: Path, rule: str, generation: int
) -> None:
    name, steps = RISES[rule][generation], RISES[rule][3].format(n=59)
    instances = [{"GPU_I_ID": str(part)} for part in range(3)]
    series: dict[str, str] = {}
    for labels in instances:
        series |= of_board(name, steps, 0, **labels) | of_board(name, "700x400", 1, **labels)
    judged(
        tmp_path,
        series,
        (firing(rule), "25m", []),
        (firing(rule), "33m", [('{UUID="GPU-0"}', 1)]),
        (firing(rule), "50m", []),  # it rests
    )


def test_errors_of_nvlink_are_added_up_over_links_and_a_link_that_is_gone_is_no_rise(tmp_path: Path) -> None:
    crc = "DCGM_FI_DEV_NVLINK_CRC_{}_ERROR_COUNT_TOTAL"
    series: dict[str, str] = {}
    for kind in ("FLIT", "DATA"):
        for link in "01":  # 30 s a step: each 30 a second, together 120
            labels = f'nvlink="{link}",gpu_uuid="GPU-0",model_name="H100",gpu="0",hostname="n1"'
            series[f"{crc.format(kind)}{{{labels}}}"] = "0+900x80"
            few = labels.replace("GPU-0", "GPU-1")
            series[f"{crc.format(kind)}{{{few}}}"] = "0+600x80"
    gone = 'nvlink="{}",gpu_uuid="GPU-2",gpu="2",hostname="n1"'
    for link in "01":
        series[f"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL{{{gone.format(link)}}}"] = (
            "500x40 stale" if link == "1" else "500x80"
        )
    judged(tmp_path, series, (firing("nvlink-errors"), "30m", [('{UUID="GPU-0"}', 1)]))


@pytest.mark.parametrize(
    ("rule", "wrong", "fine"),
    [
        ("row-remap-pending", {"DCGM_FI_DEV_ROW_REMAP_PENDING": 1}, {"DCGM_FI_DEV_ROW_REMAP_PENDING": 0}),
        ("memory-thermal", {"DCGM_FI_DEV_MEMORY_TEMP": 95}, {"DCGM_FI_DEV_MEMORY_TEMP": 94}),
        (
            "memory-thermal",
            {"DCGM_FI_DEV_MEMORY_TEMP": 90, "DCGM_FI_DEV_MEM_MAX_OP_TEMP": 90},
            {"DCGM_FI_DEV_MEMORY_TEMP_CELSIUS": 99, "DCGM_FI_DEV_MEMORY_MAX_OP_TEMP_CELSIUS": 105},
        ),
        (
            "thermal",
            {"DCGM_FI_DEV_GPU_TEMP": 83, "DCGM_FI_DEV_SLOWDOWN_TEMP": 87},
            {"DCGM_FI_DEV_GPU_TEMP_CELSIUS": 86, "DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS": 95},
        ),
        (
            "thermal",
            {"DCGM_FI_DEV_GPU_TEMP": 60, "DCGM_FI_DEV_GPU_TEMP_LIMIT": 5},
            {"DCGM_FI_DEV_GPU_TEMP_CELSIUS": 99, "DCGM_FI_DEV_GPU_TEMP_MARGIN_CELSIUS": 6},
        ),
        (
            "pcie-link",
            {"DCGM_FI_DEV_PCIE_LINK_WIDTH": 8, "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": 16},
            {"DCGM_FI_DEV_PCIE_LINK_WIDTH": 16, "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": 16},
        ),
        (
            "pcie-link",
            {"DCGM_FI_DEV_PCIE_LINK_GEN": 4, "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": 5, "DCGM_FI_DEV_GPU_UTIL": 60},
            {"DCGM_FI_DEV_PCIE_LINK_GEN": 1, "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": 5, "DCGM_FI_DEV_GPU_UTIL": 0},
        ),
        (
            "hw-slowdown",
            {'DCGM_EXP_CLOCK_EVENTS_COUNT{clock_event="hw_power_brake"}': 3},
            {
                'DCGM_EXP_CLOCK_EVENTS_COUNT{clock_event="hw_slowdown"}': 3,
                'DCGM_EXP_CLOCK_EVENTS_COUNT{clock_event="hw_thermal"}': 3,
            },
        ),
        (
            "dcgm-health",
            {'DCGM_EXP_GPU_HEALTH_STATUS{health_watch="MEM"}': 20, 'DCGM_EXP_GPU_HEALTH_STATUS{health_watch="ALL"}': 0},
            {'DCGM_EXP_GPU_HEALTH_STATUS{health_watch="MEM"}': 10, 'DCGM_EXP_GPU_HEALTH_STATUS{health_watch="ALL"}': 0},
        ),
    ],
)
def test_a_state_of_a_board_fires_by_its_own_limit_and_blanks_are_none(
    tmp_path: Path, rule: str, wrong: dict[str, int], fine: dict[str, int]
) -> None:
    series: dict[str, str] = {}
    for number, values in ((0, wrong), (1, fine), (2, dict.fromkeys(wrong, 2147483632))):
        for name, value in values.items():
            if number == 2 and "CLOCK_EVENTS" in name:
                continue  # the exporter's own count, which has no blanks
            raw, _, label = name.partition("{")
            key = "".join(of_board(raw, ""))
            key = key.replace("GPU-0", f"GPU-{number}").replace("}", f",{label}" if label else "}")
            series[key] = f"{value}x60"
    judged(tmp_path, series, (firing(rule), "25m", [('{UUID="GPU-0"}', 1)]))


@pytest.mark.parametrize("kind", ["read", "write"])
def test_slow_disks_and_io_pressure_fire_on_nodes_with_gpus_alone(tmp_path: Path, kind: str) -> None:
    """Two hosts with GPUs, one of them calm, and one without; a mapped device and rare operations are no disks."""
    gpu = 'UUID="GPU-{n}",gpu="0",modelName="H100",Hostname="n{n}"'
    series = {f"DCGM_FI_DEV_GPU_TEMP{{{gpu.format(n=number)}}}": "50x60" for number in (1, 2)}
    for number, seconds, waits in ((1, 150, 6), (2, 9, 1.5), (3, 150, 6)):
        target = f'instance="10.0.0.{number}:9100",job="node-exporter"'
        series[f'node_uname_info{{{target},nodename="n{number}"}}'] = "1x60"
        series[f"node_pressure_io_waiting_seconds_total{{{target}}}"] = f"0+{waits}x60"
        for device, operations in (("nvme0n1", 1000), ("dm-0", 1000), ("nvme9n1", 3)):
            series[f'node_disk_{kind}_time_seconds_total{{{target},device="{device}"}}'] = f"0+{seconds}x60"
            series[f'node_disk_{kind}s_completed_total{{{target},device="{device}"}}'] = f"0+{operations}x60"
    judged(
        tmp_path, series,
        (firing("host-disk-latency", "node, device"), "10m", []),
        (firing("host-disk-latency", "node, device"), "25m", [('{node="n1", device="nvme0n1"}', 1)]),
        (firing("host-io-pressure", "node"), "25m", [('{node="n1"}', 1)]),
    )  # fmt: skip


TRAFFIC = {
    "sum": (("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 1e-6),),
    "renamed": (("DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL", 1e-6),),
    "profiling": (("DCGM_FI_PROF_NVLINK_TX_BYTES", 0.5), ("DCGM_FI_PROF_NVLINK_RX_BYTES", 0.5)),
    "both": (
        ("DCGM_FI_PROF_NVLINK_TX_BYTES", 0.5),
        ("DCGM_FI_PROF_NVLINK_RX_BYTES", 0.5),
        ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 1e-6),
    ),
}
WORK = {"DCGM_FI_DEV_GPU_TEMP": 60, "DCGM_FI_DEV_GPU_UTIL": 90}
PODS = {
    "slow": [200e9] * 7 + [30e9],
    "level": [200e9] * 7 + [50e9],
    "groups": [200e9] * 6 + [0] * 2,
    "few": [200e9] * 3 + [0],
    "rest": [0.9e9] * 7 + [0],
    "idle": [200e9] * 7 + [0],  # the last one does nothing
    "other": [200e9] * 7 + [0],  # the last one works without tensors
    "gone": [200e9] * 6 + [0],  # an eighth one has no traffic
    "fell": [200e9] * 7 + [0],  # the first one is gone after five minutes
}
"""Rates of the GPUs of a pod, each on a node of its own."""


def of_pods(names: str) -> dict[str, str]:
    series: dict[str, str] = {}
    for pod, rates in PODS.items():
        for number, rate in enumerate(rates):
            labels = f'UUID="GPU-{pod}-{number}",gpu="{number}",Hostname="{pod}",namespace="team",pod="{pod}"'
            lasts = 10 if pod == "fell" and number == 0 else 80
            values = {name: rate * share for name, share in TRAFFIC[names]} | WORK
            if pod == "other":
                values["DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"] = 0.5 * (number < 7)
            if pod == "idle" and number == 7:
                values["DCGM_FI_DEV_GPU_UTIL"] = 0
            series |= {f"{name}{{{labels}}}": f"{value:g}x{lasts}" for name, value in values.items()}
    labels = 'UUID="GPU-gone-7",gpu="7",Hostname="gone",namespace="team",pod="gone"'
    return series | {f"{name}{{{labels}}}": f"{value:g}x80" for name, value in WORK.items()}


@pytest.mark.parametrize("names", TRAFFIC)
def test_a_gpu_at_work_that_lags_behind_its_pod_over_nvlink_fires_after_ten_minutes(tmp_path: Path, names: str) -> None:
    series = of_pods(names)
    labels = 'UUID="GPU-{n}",gpu="{n}",Hostname="shared",namespace="team",pod="{pod}"'
    for number in range(6):
        for name, value in {**{name: 200e9 * share * (number > 0) for name, share in TRAFFIC[names]}, **WORK}.items():
            series[f"{name}{{{labels.format(n=number, pod='one')}}}"] = f"{value:g}x80"
    for name in (*(name for name, _ in TRAFFIC[names]), *WORK):  # the slow one has a second pod
        series[f"{name}{{{labels.format(n=0, pod='two')}}}"] = "0x80"
    judged(
        tmp_path, series,
        (firing("nvlink-traffic"), "9m", []),
        (firing("nvlink-traffic"), "15m", [('{UUID="GPU-slow-7"}', 1)]),
    )  # fmt: skip


def test_ten_minutes_of_nvlink_are_those_of_one_gpu_and_of_both_directions(tmp_path: Path) -> None:
    series: dict[str, str] = {}
    for number in range(8):
        labels = 'UUID="GPU-{pod}-{n}",gpu="{n}",Hostname="{pod}",namespace="team",pod="{pod}"'
        for pod, name in (("turns", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"), ("sent", "DCGM_FI_PROF_NVLINK_TX_BYTES")):
            own = labels.format(n=number, pod=pod)
            series |= {f"{each}{{{own}}}": f"{value:g}x80" for each, value in WORK.items()}
            rates = ["3" if number == minute % 8 else "200000" for minute in range(40) for _ in range(2)]
            series[f"{name}{{{own}}}"] = " ".join(rates) if pod == "turns" else f"{1e9 if number else 0:g}x80"
    judged(tmp_path, series, *((firing("nvlink-traffic"), f"{minute}m", []) for minute in range(10, 40, 3)))
