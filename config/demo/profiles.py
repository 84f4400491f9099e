"""What the demo's teams want of their nodes. Each is published through the same service as anybody's profile."""

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
