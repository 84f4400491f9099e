"""Series of exporters' answers: read directly, or stored by Prometheus with either mode of honorLabels."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from gpus.metrics.findings import Findings
from gpus.metrics.samples import Code, ExporterPod, Reading, Sample, Series
from gpus.normalization.pipeline import normalize
from gpus.telemetry.exposition import parse

NOW = datetime(2026, 11, 22, 8, 0, tzinfo=UTC)
HELD, FREE = "GPU-7f3a0c11-52de-4b60-9a4e-0d1c2b3a4f50", "GPU-c2d9e8f4-1a77-4f0b-8f21-6b5a4c3d2e1f"
SPLIT = "GPU-19ab34cd-0e6f-4c11-b8a2-77d0f1e2a3b4"
EXPORTER = "gpu-operator/nvidia-dcgm-exporter-x7k2p"
TARGET = {
    "instance": "10.0.3.7:9400",
    "job": "nvidia-dcgm-exporter",
    "namespace": "gpu-operator",
    "pod": "nvidia-dcgm-exporter-x7k2p",
    "container": "nvidia-dcgm-exporter",
    "service": "nvidia-dcgm-exporter",
}


def fixture(name: str) -> str:
    return (Path(__file__).parent / "exporters" / f"{name}.prom").read_text()


def direct(text: str, exporter: str = EXPORTER, findings: Findings | None = None) -> list[Series]:
    return list(parse(text, findings=findings or Findings(), exporter=exporter))


def prometheus(text: str, *, honor_labels: bool, target: dict[str, str] = TARGET) -> list[Series]:
    """Store as Prometheus does (its documentation of `honor_labels`): a clash keeps, or renames, the scraped label."""
    stored = []
    for point in direct(text, exporter=""):
        labels = dict(point.labels)
        for name, value in target.items():
            if name not in labels:
                labels[name] = value
            elif not honor_labels:
                labels[f"exported_{name}"] = labels[name]
                labels[name] = value
        stored.append(Series(point.name, labels, point.value, point.time))
    return stored


def read(series: Iterable[Series], exporters: Iterable[ExporterPod] = ()) -> Reading:
    return normalize(series, when=NOW, exporters=exporters)


def counts(reading: Reading) -> dict[Code, int]:
    return {finding.code: finding.count for finding in reading.findings}


def sample(reading: Reading, uuid: str, instance: str = "") -> Sample:
    (match,) = [
        candidate
        for candidate in reading.samples
        if (candidate.device.uuid, candidate.device.instance) == (uuid, instance)
    ]
    return match


def line(name: str, value: object, uuid: str = HELD, **labels: str) -> str:
    """One line of an exporter, with only the labels that normalization needs."""
    all_labels = {"gpu": "0", "UUID": uuid, "modelName": "NVIDIA H100 80GB HBM3", "Hostname": "n1"} | labels
    inside = ",".join(f'{label}="{text}"' for label, text in all_labels.items())
    return f"{name}{{{inside}}} {value}\n"
