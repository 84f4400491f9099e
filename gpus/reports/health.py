"""Health of each physical GPU of a node, by its own counters: XIDs, ECC, remapped rows, throttling, links.

Only reported values are shown; a missing value is not made zero. What needs attention comes first, with its remedy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpus.metrics import boards, xids
from gpus.metrics.samples import Metric, XidEvidence
from gpus.models import GpuDevice

_EVIDENCE = {
    XidEvidence.LAST: "the last one since the driver was loaded",
    XidEvidence.WINDOW: "{n} in the exporter's window",
    XidEvidence.TOTAL: "{n} since the exporter started",
}
REASONS: Mapping[str, str] = {
    "hw_thermal": "hardware, heat",
    "sw_thermal": "driver, heat",
    "hw_slowdown": "hardware slowdown",
    "hw_power_brake": "power brake",
    "power_cap": "power limit",
    "sync_boost": "sync boost",
    "display_clocks": "display clocks",
    "app_clocks": "clocks set externally",
    "gpu_idle": "idle",
}
"""Of the exporter's `clock_event`, in words."""
HARMLESS = frozenset({"gpu_idle", "app_clocks", "display_clocks", "sync_boost"})


@dataclass(frozen=True, slots=True)
class HealthCondition:
    """Condition that needs attention, or did."""

    severity: str
    """Of the axis `xid`: bad, warn or ok."""
    title: str
    text: str
    word: str
    """Remedy: application, watch, reset the GPU, restart the node, vendor."""


@dataclass(frozen=True, slots=True)
class Health:
    """One physical GPU. None and empty are: not reported."""

    name: str
    facts: list[HealthCondition]
    xids: list[tuple[int, str, str, xids.Advice]]
    """Code, name, how it is known, what to do."""
    ecc: tuple[int | None, int | None]
    """Uncorrected and corrected errors since the driver was loaded."""
    ecc_lifetime: tuple[int | None, int | None]
    rows: tuple[int | None, int | None]
    """Remapped after uncorrectable and after correctable errors."""
    clock: int | None
    """MHz of the SMs."""
    clock_top: int | None
    memory_clock: int | None
    """MHz."""
    reasons: list[tuple[str, int]] | None
    """Why clocks were held back in the exporter's window, and how often; None: not exported."""
    power_seconds: float | None
    """Held back by the power limit, since the driver was loaded."""
    heat_seconds: float | None
    pcie: int | None
    nvlink: int | None

    @property
    def severity(self) -> str:
        return self.facts[0].severity if self.facts else "ok"


def of_devices(devices: Iterable[GpuDevice]) -> list[Health]:
    """Return the health of `GpuDevice.objects.hardware()`, a GPU that MIG splits once.

    The worst first, then by number.
    """
    order = ("bad", "warn", "ok")
    healths = [_health(device) for device in devices]
    return sorted(healths, key=lambda health: (order.index(health.severity), len(health.name), health.name))


def _health(device: GpuDevice) -> Health:
    def whole(metric: Metric, per: float = 1.0) -> int | None:
        value = device.value(metric)
        return None if value is None else round(value / per)

    top = boards.max_sm_clock(device.values, device.model)
    reasons = device.clock_events
    counts = (device.value(metric) for metric in (Metric.NVLINK_CRC_ERRORS, Metric.NVLINK_REPLAYS))
    links = [count for count in counts if count is not None]
    return Health(
        name=device.index,
        facts=sorted(_facts(device), key=lambda fact: ("bad", "warn", "ok").index(fact.severity)),
        xids=[
            (code, xids.NAMES.get(code, ""), _known(evidence, count), xids.ADVICE.get(code, xids.OTHER))
            for code, count, evidence, *_ in device.xids
        ],
        ecc=(whole(Metric.ECC_UNCORRECTED_VOLATILE), whole(Metric.ECC_CORRECTED_VOLATILE)),
        ecc_lifetime=(whole(Metric.ECC_UNCORRECTED_LIFETIME), whole(Metric.ECC_CORRECTED_LIFETIME)),
        rows=(whole(Metric.ROWS_REMAPPED_UNCORRECTABLE), whole(Metric.ROWS_REMAPPED_CORRECTABLE)),
        clock=whole(Metric.SM_CLOCK, boards.MHZ),
        clock_top=None if top is None else round(top / boards.MHZ),
        memory_clock=whole(Metric.MEMORY_CLOCK, boards.MHZ),
        reasons=None
        if reasons is None
        else [(REASONS.get(reason, reason), n) for reason, n in sorted(reasons.items()) if n],
        power_seconds=device.value(Metric.POWER_THROTTLED),
        heat_seconds=device.value(Metric.THERMAL_THROTTLED),
        pcie=whole(Metric.PCIE_REPLAYS),
        nvlink=None if not links else round(sum(links)),
    )


def _known(evidence: str, count: int) -> str:
    return _EVIDENCE[XidEvidence(evidence)].format(n=f"{count:,}")


def _facts(device: GpuDevice) -> Iterable[HealthCondition]:
    for xid in xids.reported(device.xids):
        name = f", {xid.name}" if xid.name else ""
        yield HealthCondition(xid.advice.severity, f"XID {xid.code}{name}", xid.advice.what, xid.advice.word)
    if device.value(Metric.ROW_REMAP_FAILED):
        text = "A bad row of memory could not be replaced. Cordon and drain the node, and open a case with the vendor."
        yield HealthCondition("bad", "Row remapping failed", text, xids.VENDOR.word)
    if device.value(Metric.ROW_REMAP_PENDING):
        text = "A bad row is replaced at the next reset. Drain the node at a convenient time and reset this GPU."
        yield HealthCondition("warn", "A row remap is pending", text, xids.RESET.word)
    if errors := device.value(Metric.ECC_UNCORRECTED_VOLATILE):
        text = "Memory lost data. Check whether a remap followed; if it recurs after a reset, contact the vendor."
        yield HealthCondition(
            "bad", f"{errors:,.0f} uncorrected ECC error{'s' if errors != 1 else ''}", text, xids.RESET.word
        )
    slowing = [reason for reason, count in (device.clock_events or {}).items() if count and reason not in HARMLESS]
    heat = [reason for reason in slowing if "thermal" in reason or reason in ("hw_slowdown", "hw_power_brake")]
    if heat:
        words = ", ".join(REASONS.get(reason, reason) for reason in sorted(heat))
        text = f"In the exporter's window: {words}. Look at cooling, fans and power supply."
        yield HealthCondition("warn", "Clocks are throttled", text, "site")
