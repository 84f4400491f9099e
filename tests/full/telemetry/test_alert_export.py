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
        (5, "", low, "0.01x100"),  # nobody holds it
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
                "exp_samples": [{"labels": f'{{alertname="{name}",{said}}}', "value": 1}],
            }
            for name, labels, said in (
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
