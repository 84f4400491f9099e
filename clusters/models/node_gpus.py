"""GPUs of a node as the API server tells of them: devices, the parts of split ones, and the shares of shared ones."""

from __future__ import annotations

from collections import Counter

from django.db import models

from clusters import objects


class NodeGpus(models.Model):
    """GPUs that a node offers, and those that pods hold."""

    allocatable = models.JSONField(default=dict)
    gpu_product = models.CharField(max_length=120, blank=True)
    gpu_count = models.PositiveIntegerField(
        default=0, help_text="GPUs, and parts of split ones; a device that is offered in shares counts once."
    )
    gpu_allocated = models.PositiveIntegerField(
        default=0, help_text="Of gpu_count, those that pods hold; of devices in shares the fewest that theirs take."
    )
    gpu_plugin = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Of gpu_count, those that a device plugin offers."
    )
    gpu_virtual = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Of gpu_count, those for virtual machines: vGPUs, boards passed through."
    )
    gpus_by_claim = models.JSONField(
        default=dict,
        db_default={},
        help_text="Devices that a driver offers to claims, by profile; empty: whole GPUs.",
    )
    gpu_shares = models.JSONField(
        default=dict,
        help_text="By profile of the devices (empty: whole GPUs), [shares offered, devices]. Empty: none is shared.",
    )
    gpu_shares_held = models.PositiveIntegerField(default=0, help_text="Shares that pods hold.")

    class Meta:
        abstract = True

    @property
    def instances(self) -> dict[str, int]:
        """Parts of GPUs that it offers, by profile; part of `gpu_count`."""
        by_claim = Counter({profile: count for profile, count in self.gpus_by_claim.items() if profile})
        return dict(sorted((self.plugin_instances + by_claim).items()))

    @property
    def plugin_instances(self) -> Counter[str]:
        """Those that a device plugin offers."""
        return objects.instances(self.allocatable)

    @property
    def gpu_words(self) -> str:
        """Text for what `gpu_count` counts: 4 × NVIDIA-H100-80GB-HBM3, 8 × 3g.40gb."""
        split = {name: count for name, count in self.instances.items() if objects.unshared(name) not in self.gpu_shares}
        split |= {name: devices for name, (_, devices) in self.gpu_shares.items() if name}
        unoffered = max(0, self.gpu_virtual - objects.virtual_count(self.allocatable))
        whole = self.gpu_count - unoffered - sum(split.values())
        product, parts = self.gpu_product or "unknown", [f"{count} × {profile}" for profile, count in split.items()]
        shares = f" in {self.gpu_shares_offered} shares" if self.gpu_shares else ""
        if not split and whole <= 0 and self.gpu_virtual:
            return f"{self.gpu_virtual} for virtual machines"
        if whole > 0 or not split:
            return ", ".join([f"{whole} × {product}", *parts]) + shares
        # Nothing labels a node whose GPUs are virtual machines', and a profile there names the board.
        return ", ".join(parts) + (f" of {product}" if self.gpu_product or not self.gpu_virtual else "") + shares

    @property
    def gpu_shares_offered(self) -> int:
        return sum(offered for offered, _ in self.gpu_shares.values())
