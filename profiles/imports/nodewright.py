"""NodeWright, formerly Skyhook: `sysctl.conf` and `grub.conf` of NVIDIA's package `tuning`.

What the package does with each: NVIDIA/nodewright-packages, tuning/README.md.
"""

from __future__ import annotations

import re

from profiles.imports import kernel_arguments, sysctl_d
from profiles.imports.draft import ImportedDraft
from profiles.imports.manifest import Manifest

KINDS = (("nodewright.nvidia.com", "NodeWright"), ("skyhook.nvidia.com", "Skyhook"))
_IMAGE = re.compile(r".*/tuning(?::[^/]*)?(?:@.*)?")


def read(text: str) -> ImportedDraft:
    """Return the draft of the packages `tuning`. Raises Invalid."""
    manifest = Manifest(text, KINDS)
    manifest.name_rest(("spec",), {"packages"}, "which nodes, and how many at once, are a rollout's in Setpoint")
    for name, package in manifest.mapping("spec", "packages").items():
        path = ("spec", "packages", name)
        image = package.get("image") if isinstance(package, dict) else None
        if name == "tuning" or (isinstance(image, str) and _IMAGE.fullmatch(image)):
            manifest.name_rest(path, {"configMap"}, "is about the package, not about the node")
            _take(manifest, (*path, "configMap"))
        else:
            manifest.refuse(path, "is another package than tuning")
    return manifest.builder.finish()


def _take(manifest: Manifest, path: tuple[str, ...]) -> None:
    for name, content in manifest.mapping(*path).items():
        at = (*path, name)
        if not isinstance(content, str):
            manifest.refuse(at, "must be text")
        elif name == "sysctl.conf":
            sysctl_d.take(content, manifest.builder, manifest.line_of(*at))
        elif name == "grub.conf":
            line_of = manifest.line_of(*at)
            words = [
                (word, line_of(number)) for number, line in enumerate(content.split("\n"), 1) for word in line.split()
            ]
            kernel_arguments.take(words, manifest.builder, pages_are_settings=True)
        else:
            manifest.builder.refuse(manifest.line(*at), ".".join(at), "Setpoint sets no limits of users or services")
