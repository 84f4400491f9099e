"""Profiles of the demo's teams. Each is published through the same service as any other profile."""

from __future__ import annotations

TRAINING_R1 = """\
extends: gpu-baseline
description: H100 nodes that train over RDMA.
settings:
  vm.zone_reclaim_mode:
    value: 0
    why: "A rank that runs out of local memory should use the other socket's, not wait for reclaim."
  vm.compaction_proactiveness:
    value: 0
    why: "Background compaction shows up as jitter in all-reduce."
  net.core.rmem_max:
    value: ">= 512Mi"
    why: "Checkpoints go to object storage over TCP at 100 Gbit/s."
  net.core.wmem_max:
    value: ">= 512Mi"
    why: "As net.core.rmem_max."
labels:
  example.com/tuned-for: training
"""

TRAINING_R2 = TRAINING_R1.replace("labels:\n", "{more}labels:\n").format(
    more="""\
  cmdline.iommu:
    value: pt
    why: "GPUDirect RDMA is half as fast through a translating IOMMU."
  module.nvidia_peermem:
    value: loaded
    why: "Lets the NIC read GPU memory."
"""
)

INFERENCE_R1 = """\
extends: gpu-baseline
description: L40S nodes that serve models.
settings:
  vm.swappiness:
    value: 1
    why: "A page of a model that was swapped out costs a request its deadline."
  net.core.somaxconn:
    value: ">= 16384"
    why: "Bursts of short connections from the gateways."
  net.ipv4.tcp_slow_start_after_idle:
    value: 0
    why: "Token streams pause; they must not begin slowly again."
"""

INFERENCE_R2 = (
    INFERENCE_R1
    + """\
  hugepages-2Mi:
    value: 4096
    why: "8 GiB for the runtime's pinned pools, reserved before anything fragments them."
"""
)

INFERENCE_R3 = (
    INFERENCE_R1
    + """\
components:
  gpu-operator:
    presets: [operator-driver, one-node-at-a-time]
    why: "The runtime's next release needs driver 580."
"""
)

DEVELOPMENT_R1 = """\
extends: training-h100
description: As the nodes that train, without a batch scheduler of its own.
components:
  volcano:
    remove: true
    why: "It was tried here; gangs run in atlas-training."
"""

PLATFORM_R1 = """\
description: What a bare GPU cluster needs before any training starts.
components:
  volcano:
    presets: [gang-and-reclaim]
    why: "Distributed jobs start whole or not at all."
    values:
      basic:
        image_registry: mirror.example
"""

PLATFORM_R2 = """\
extends: gpu-baseline
description: What a bare GPU cluster needs before any training starts.
labels:
  example.com/tuned-for: training
components:
  cilium:
    presets: [kube-proxy-replacement, native-routing, ebpf-host-routing, bandwidth-manager]
    why: "Checkpoints leave the nodes at line rate: no tunnel, no iptables."
    values:
      k8sServiceHost: auto
      autoDirectNodeRoutes: true
      ipv4NativeRoutingCIDR: 10.244.0.0/16
      ipam:
        operator:
          clusterPoolIPv4PodCIDRList: [10.244.0.0/16]
  gpu-operator:
    presets: [operator-driver, one-node-at-a-time]
    why: "One driver on every GPU node, and the GPUs are offered to pods."
  volcano:
    presets: [gang-and-reclaim]
    why: "Distributed jobs start whole or not at all."
policies:
  - apiVersion: v1
    kind: Namespace
    metadata:
      name: pretraining
      labels: {pod-security.kubernetes.io/enforce: baseline}
  - apiVersion: v1
    kind: ResourceQuota
    metadata: {name: gpus, namespace: pretraining}
    spec: {hard: {requests.nvidia.com/gpu: 32, pods: 200}}
  - apiVersion: v1
    kind: LimitRange
    metadata: {name: containers, namespace: pretraining}
    spec:
      limits:
        - type: Container
          defaultRequest: {cpu: 4, memory: 32Gi}
          max: {nvidia.com/gpu: 8}
  - apiVersion: scheduling.k8s.io/v1
    kind: PriorityClass
    metadata: {name: pretraining}
    value: 100000
    description: Runs of weeks, which experiments make room for.
  - apiVersion: scheduling.volcano.sh/v1beta1
    kind: Queue
    metadata: {name: pretraining}
    spec: {weight: 3, reclaimable: false}
  - apiVersion: scheduling.volcano.sh/v1beta1
    kind: Queue
    metadata: {name: experiments}
    spec: {weight: 1, reclaimable: true, capability: {nvidia.com/gpu: 16}}
"""

NOTEBOOKS_R1 = """\
extends: gpu-baseline
description: GPU nodes on which people work in notebooks.
settings:
  fs.inotify.max_user_watches:
    value: ">= 2097152"
    why: "Each notebook server watches its whole workspace; all of a node's run as one user."
"""
