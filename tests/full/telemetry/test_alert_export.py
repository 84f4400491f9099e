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
        (firing("telemetry-lost", "node"), "15m", []),
        (firing("telemetry-lost", "node"), "40m", [('{node="n9"}', 1)]),
        (firing("telemetry-lost", "node"), "100m", []),  # it was taken away
    )
