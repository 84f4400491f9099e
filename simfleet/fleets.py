"""Ready-made clusters that look like those that platform teams run: GPU nodes in racks and zones, and work on them.

    atlas = training_cluster("atlas", nodes=48, gpus=8, seed=1)          # 3 control-plane nodes besides

Names, labels, pods and drift follow from the arguments alone, so a page, a test and a screenshot can rely on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from simfleet.clock import Clock
from simfleet.controllers import exporters, tenants
from simfleet.controllers.tenants import TOLERATION
from simfleet.core import SimCluster
from simfleet.machines.hardware import CPU_SERVER, Hardware
from simfleet.machines.instances import Layout
from simfleet.manifests import EXPORTER_IMAGES

NODES_IN_RACK = 8
ZONES = ("a", "b", "c")
RACK_LABEL = "topology.setpoint.dev/rack"
POOL_LABEL = "example.com/pool"
OPERATOR = "gpu-operator"
NO_EXPORTER = {"nvidia.com/gpu.deploy.dcgm-exporter": "false"}
NODES_OF_GANG = 16
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
NO_NETWORK = {"key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule"}

UBUNTU = {
    "vm.max_map_count": "1048576",
    "fs.inotify.max_user_instances": "8192",
    "net.ipv4.tcp_rmem": "4096\t131072\t33554432",
}
H100 = Hardware(gpus=8, sysctls=UBUNTU, boot_seconds=45.0)
"""Boots in 45 s rather than the ten minutes of a real one: a demo has to be watched."""
L40S = Hardware(
    gpus=4,
    gpu_product="NVIDIA-L40S",
    instance_type="gpu.l40s.4",
    cpus=128,
    memory_gib=512,
    nvme_disks=2,
    release="6.8.0-39-generic",
    boot_seconds=30.0,
    sysctls=UBUNTU,
)
OLD_KERNEL = Hardware(
    gpus=8,
    release="5.15.0-118-generic",
    os_image="Ubuntu 22.04.5 LTS",
    lacks=frozenset({"vm.compaction_proactiveness", "net.ipv4.tcp_notsent_lowat"}),
    boot_seconds=45.0,
)


def training_cluster(
    name: str,
    *,
    nodes: int = 48,
    gpus: int = 8,
    seed: int = 1,
    clock: Clock | None = None,
    live: bool = False,
    control_planes: int = 3,
    is_busy: bool = True,
    pad: int = 0,
    pools: Mapping[str, int] | None = None,
    mig: Mapping[int, Layout] | None = None,
    boot_seconds: float | None = None,
    is_equipped: bool = True,
) -> SimCluster:
    """GPU nodes `<name>-gpu-001`…, control-plane nodes `<name>-cp-1`…; with `is_busy`, teams at work on two thirds.

    Every twelfth node of 8 GPUs runs an older kernel. `pad`: bytes to blow each Node up by, as an image list does.
    `pools`: how many nodes, in their order, carry each pool's label. `mig`: by number, nodes whose GPUs are split, and
    how; notebooks and small models run there, whether busy or not. `boot_seconds` replaces the hardware's own.
    Without `is_equipped` no network or device plugin is installed yet: GPU nodes offer no GPU and have NO_NETWORK,
    until they are.
    """
    cluster = SimCluster(seed, clock, name=name, live=live)
    with cluster.lock:
        for number in range(1, control_planes + 1):
            labels = _place(name, number - 1)
            cluster.add_node(f"{name}-cp-{number}", hardware=CPU_SERVER, labels=labels, control_plane=True, pad=pad)
            for part in ("etcd", "kube-apiserver"):
                node = f"{name}-cp-{number}"
                cluster.add_pod(f"{part}-{node}", node=node, namespace="kube-system", mirror=True)
        labels_of = _pool_labels(pools or {}, nodes)
        split = {number: layout for number, layout in (mig or {}).items() if number <= nodes}
        gpu_nodes = [
            _add_gpu_node(
                cluster,
                name,
                number,
                gpus=gpus,
                pad=pad,
                pool_label=labels_of[number - 1],
                boot_seconds=boot_seconds,
                is_equipped=is_equipped,
                layout=split.get(number, ()),
            )
            for number in range(1, nodes + 1)
        ]
        if is_equipped:
            _daemons(cluster, gpu_nodes)
        if is_busy:
            _teams(cluster, gpu_nodes, gpus)
        for number in sorted(split):
            tenants.settle(cluster, gpu_nodes[number - 1], split[number])
        if is_equipped:
            _telemetry(cluster, gpu_nodes, gpus, is_busy=is_busy)
        cluster.tick(0 if live else 5)
    return cluster


def more_gpu_nodes(
    cluster: SimCluster,
    name: str,
    *,
    first: int,
    count: int,
    gpus: int,
    pool: str,
    boot_seconds: float | None = None,
) -> None:
    """`count` more GPU nodes from number `first` on, as `training_cluster` makes them, in one pool, with exporters.

    Two thirds of them are at work. Where there are racks full of them, the exporter is switched off on the
    last: the GPU Operator goes by its label NO_EXPORTER.
    """
    last = first + count - 1 if count >= NODES_IN_RACK else None
    with cluster.lock:
        nodes = []
        for number in range(first, first + count):
            labels = {POOL_LABEL: pool} | (NO_EXPORTER if number == last else {})
            nodes.append(
                _add_gpu_node(cluster, name, number, gpus=gpus, pad=0, pool_label=labels, boot_seconds=boot_seconds)
            )
        watched = nodes if last is None else nodes[:-1]
        cluster.pods.spread("nvidia-device-plugin-daemonset", namespace=OPERATOR, nodes=nodes)
        cluster.pods.spread(exporters.NAME, namespace=OPERATOR, nodes=watched)
        _gangs(cluster, nodes[: 2 * count // 3], gpus)


def _pool_labels(pools: Mapping[str, int], nodes: int) -> list[dict[str, str]]:
    pool_labels = [{POOL_LABEL: pool} for pool, count in pools.items() for _ in range(count)]
    return (pool_labels + [{} for _ in range(nodes)])[:nodes]


def _add_gpu_node(
    cluster: SimCluster,
    name: str,
    number: int,
    *,
    gpus: int,
    pad: int,
    pool_label: Mapping[str, str],
    boot_seconds: float | None,
    is_equipped: bool = True,
    layout: Layout = (),
) -> str:
    hardware = L40S if gpus < 8 else OLD_KERNEL if number % 12 == 0 else H100
    if hardware.gpus != gpus:
        hardware = Hardware(gpus=gpus, boot_seconds=45.0, sysctls=UBUNTU)
    if boot_seconds is not None:
        hardware = replace(hardware, boot_seconds=boot_seconds)
    if not is_equipped:
        hardware = replace(hardware, has_plugin=False)
    if layout:
        hardware = replace(hardware, mig=layout)
    node = f"{name}-gpu-{number:03d}"
    labels = _place(name, number - 1) | {"node-role.kubernetes.io/gpu": "", "nvidia.com/gpu.present": "true"}
    labels |= pool_label
    taints = [TAINT] if is_equipped else [TAINT, NO_NETWORK]
    cluster.add_node(node, hardware=hardware, labels=labels, taints=taints, pad=pad)
    return node


def _place(name: str, index: int) -> dict[str, str]:
    rack = index // NODES_IN_RACK
    zone = ZONES[rack % len(ZONES)]
    return {
        "topology.kubernetes.io/region": f"{name}-1",
        "topology.kubernetes.io/zone": f"{name}-1{zone}",
        RACK_LABEL: f"{zone}{rack + 1:02d}",
    }


def _daemons(cluster: SimCluster, gpu_nodes: Sequence[str]) -> None:
    cluster.pods.workload("DaemonSet", "cilium", namespace="kube-system")
    cluster.pods.workload("DaemonSet", "nvidia-device-plugin-daemonset", namespace=OPERATOR, nodes=gpu_nodes)
    image = EXPORTER_IMAGES[exporters.OLD]
    cluster.pods.workload("DaemonSet", exporters.NAME, namespace=OPERATOR, nodes=gpu_nodes, image=image)


def _telemetry(cluster: SimCluster, nodes: Sequence[str], gpus: int, *, is_busy: bool) -> None:
    """Set up telemetry for the GPU pages: exporters in the middle of an upgrade, one that is silent, and one ill GPU.

    Small clusters run the exporter's default counters, without SM activity.
    """
    cluster.exporters.whole_list = len(nodes) >= 2 * NODES_IN_RACK
    if not is_busy or len(nodes) < NODES_IN_RACK or gpus < 2:
        return
    third = len(nodes) // 3
    for node in nodes[-third:]:
        cluster.exporters.upgrade(node)
    cluster.exporters.silent.add(nodes[-2])
    cluster.gpus.fall_ill(nodes[third + 2], 1, xid=48)


def _gangs(cluster: SimCluster, nodes: Sequence[str], gpus: int) -> None:
    """Jobs over whole nodes, as many of each as a gang has."""
    for place, first in enumerate(range(0, len(nodes), NODES_OF_GANG)):
        its = nodes[first : first + NODES_OF_GANG]
        cluster.pods.workload(
            "Job",
            f"pretrain-{place + 1:03d}",
            namespace=("team-llm", "team-vision", "team-speech")[place % 3],
            replicas=len(its),
            gpus=gpus,
            nodes=its,
            tolerations=[TOLERATION],
        )


def _teams(cluster: SimCluster, nodes: Sequence[str], gpus: int) -> None:
    """Two thirds of the GPUs in use, and one of everything that makes a drain difficult."""
    work = cluster.pods.workload
    tolerations = [TOLERATION]
    third = max(1, len(nodes) // 3)
    training, shared = nodes[:third], nodes[third : 2 * third]
    work(
        "Job",
        "llm-pretrain",
        namespace="team-llm",
        replicas=len(training),
        gpus=gpus,
        nodes=training,
        grace=120,
        stop_seconds=20,
        tolerations=tolerations,
    )
    for place, node in enumerate(shared):
        team = ("team-llm", "team-vision", "team-speech")[place % 3]
        work(
            "Job",
            f"finetune-{place + 1:02d}",
            namespace=team,
            gpus=max(1, gpus // 2),
            nodes=[node],
            empty_dir=place % 2 == 0,
            stop_seconds=5,
            tolerations=tolerations,
        )
    _services(cluster, shared, gpus)


def _services(cluster: SimCluster, shared: Sequence[str], gpus: int) -> None:
    """Create serving pods: some with disruption budgets or data on their node, and one that no controller recreates."""
    work = cluster.pods.workload
    tolerations = [TOLERATION]
    serving = shared[: max(2, len(shared) // 4)]
    work(
        "ReplicaSet",
        "chat-6f7c9d",
        namespace="team-serving",
        replicas=len(serving),
        gpus=1 if gpus > 1 else 0,
        nodes=serving,
        labels={"app": "chat"},
        owner=("Deployment", "chat"),
        tolerations=tolerations,
    )
    cluster.pods.budget("chat", namespace="team-serving", labels={"app": "chat"}, maxUnavailable=1)
    work(
        "StatefulSet",
        "vector-db",
        namespace="team-serving",
        replicas=min(3, len(shared)),
        nodes=shared[-3:],
        tolerations=tolerations,
    )
    cluster.pods.budget(
        "vector-db", namespace="team-serving", labels={"app": "vector-db"}, minAvailable=min(3, len(shared))
    )
    if shared:
        cluster.add_pod(
            "notebook-ines",
            node=shared[0],
            namespace="team-vision",
            gpus=1 if gpus > 2 else 0,
            empty_dir=True,
            tolerations=tolerations,
        )
