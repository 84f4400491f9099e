"""Exporters in a simulated cluster that say what a test wants, in the format and the words of dcgm-exporter 4.8."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from simfleet.core import SimCluster
from simfleet.memory import SimFleet

NAMESPACE = "gpu-operator"


@dataclass
class Gpu:
    uuid: str
    busy: float | None = 90
    power: float = 400.0
    holder: tuple[str, str] | None = ("team", "trainer-0")


@dataclass
class Exporting:
    """`gpus` by node; `refusing` maps a node to the status that its exporter answers with."""

    cluster: SimCluster = field(default_factory=lambda: SimCluster(seed=3))
    gpus: dict[str, list[Gpu]] = field(default_factory=dict)
    refusing: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fleet = SimFleet(self.cluster)
        self.cluster.proxies.answerers["pods"].append(self._answer)

    def node(self, name: str, *gpus: Gpu) -> None:
        self.gpus[name] = list(gpus)
        self.cluster.add_node(name, gpus=len(gpus))
        labels = {"app": "nvidia-dcgm-exporter"}
        self.cluster.add_pod(f"dcgm-{name}", node=name, namespace=NAMESPACE, labels=labels)

    def _answer(self, pod: Mapping[str, Any], port: str, path: str, _: Mapping[str, str]) -> tuple[int, str] | None:
        node = str(pod["spec"]["nodeName"])
        if (port, path) != ("9400", "metrics") or node not in self.gpus:
            return None
        self.asked.append(node)
        return self.refusing.get(node, 200), text(node, self.gpus[node])


def text(node: str, gpus: list[Gpu]) -> str:
    return "\n".join(_lines(node, gpus)) + "\n"


def _lines(node: str, gpus: list[Gpu]) -> Iterator[str]:
    for name, kind in (("GPU_UTIL", "busy"), ("POWER_USAGE", "power")):
        yield f"# TYPE DCGM_FI_DEV_{name} gauge"
        for index, gpu in enumerate(gpus):
            if (value := getattr(gpu, kind)) is not None:
                yield f"DCGM_FI_DEV_{name}{{{labels(node, index, gpu)}}} {value}"


def labels(node: str, index: int, gpu: Gpu) -> str:
    held = {"container": "main", "namespace": gpu.holder[0], "pod": gpu.holder[1]} if gpu.holder else {}
    label_values = {
        "gpu": str(index),
        "UUID": gpu.uuid,
        "pci_bus_id": f"00000000:{index:02X}:00.0",
        "device": f"nvidia{index}",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": node,
        "DCGM_FI_DRIVER_VERSION": "570.86.15",
    } | held
    return ",".join(f'{name}="{value}"' for name, value in label_values.items())
