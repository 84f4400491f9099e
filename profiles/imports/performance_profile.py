"""OpenShift's PerformanceProfile (performance.openshift.io/v2, and v1 and v1alpha1 before it).

Fields and the boot arguments that they are mapped to: docs/performanceprofile/performance_profile.md of
openshift/cluster-node-tuning-operator; those of the isolated CPUs, and what balanceIsolated makes of them:
assets/performanceprofile/tuned/openshift-node-performance there. What the operator adds by itself is not in the text.
"""

from __future__ import annotations

from contract import isolation, resource_managers
from profiles.catalog.host_paths import PAGE_SIZES
from profiles.imports import kernel_arguments
from profiles.imports.draft import ImportedDraft, canonical_isolation
from profiles.imports.manifest import Manifest

KINDS = (("performance.openshift.io", "PerformanceProfile"),)
_SIZES = {spelling: key for key, (_, spelling) in PAGE_SIZES.items()}
_OPERATOR_DERIVES = "the operator makes arguments, files and services of it by rules of its own version"
_WHY_NOT = {
    "numa": "the topology manager's policy is the kubelet's, and Setpoint only observes it",
    "machineConfigLabel": "names machine configs, which Setpoint does not write",
    "machineConfigPoolSelector": "which nodes have it is the target of a pool in Setpoint",
    "nodeSelector": "which nodes have it is the target of a pool in Setpoint",
    "realTimeKernel": "Setpoint installs no kernel",
    "kernelPageSize": "Setpoint installs no kernel",
    "net": "a profile sets no queues of network devices",
    "hardwareTuning": "a profile sets no frequencies of single CPUs",
    "workloadHints": _OPERATOR_DERIVES,
    "globallyDisableIrqLoadBalancing": "a profile says nothing of interrupts",
}
_OF_CPU = {
    "offlined": "a profile takes no CPU offline",
    "shared": "is about the kubelet's and the container runtime's CPU sets",
}


def read(text: str) -> ImportedDraft:
    """Return the draft of the object. Raises Invalid."""
    manifest = Manifest(text, KINDS)
    for name in manifest.mapping("spec"):
        if name == "hugepages":
            _hugepages(manifest)
        elif name == "cpu":
            _cpu(manifest)
        elif name == "additionalKernelArgs":
            _arguments(manifest)
        else:
            manifest.refuse(("spec", name), _WHY_NOT.get(name, "is no field that Setpoint knows"))
    return manifest.builder.finish()


def _hugepages(manifest: Manifest) -> None:
    path = ("spec", "hugepages")
    default = manifest.at(*path, "defaultHugepagesSize")
    if isinstance(default, str):
        manifest.builder.assign(
            "cmdline.default_hugepagesz",
            default,
            line=manifest.line(*path, "defaultHugepagesSize"),
            text=f"spec.hugepages.defaultHugepagesSize: {default}",
        )
    elif default is not None:
        manifest.refuse((*path, "defaultHugepagesSize"), "must be 2M or 1G")
    for number, page in enumerate(manifest.items(*path, "pages")):
        _page(manifest, (*path, "pages", number), page)
    manifest.name_rest(path, {"defaultHugepagesSize", "pages"}, "is no field that Setpoint knows")


def _page(manifest: Manifest, path: tuple[str | int, ...], page: object) -> None:
    if not isinstance(page, dict):
        manifest.refuse(path, "must be a mapping with size and count")
        return
    size, count, node = page.get("size"), page.get("count"), page.get("node")
    manifest.name_rest(path, {"size", "count", "node"}, "is no field that Setpoint knows")
    text = f"size: {size}, count: {count}" + ("" if node is None else f", node: {node}")
    line = manifest.line(*path)
    key = _SIZES.get(size) if isinstance(size, str) else None
    if key is None:
        manifest.builder.refuse(line, text, f"a page's size is {' or '.join(_SIZES)}")
    elif isinstance(count, bool) or not isinstance(count, int):
        manifest.builder.refuse(line, text, "a count is a whole number")
    elif node is not None and (isinstance(node, bool) or not isinstance(node, int) or not 0 <= node <= 9999):
        manifest.builder.refuse(line, text, "a node is the number of a NUMA node")
    else:
        key = key if node is None else f"{key}.node{node}"
        manifest.builder.assign(key, str(count), line=line, text=text)


def _cpu(manifest: Manifest) -> None:
    path = ("spec", "cpu")
    for name, value in manifest.mapping(*path).items():
        at = (*path, name)
        is_list = isinstance(value, str | int) and not isinstance(value, bool)
        text = f"spec.cpu.{name}: {value}"
        if name == "isolated" and is_list:
            is_static = manifest.at(*path, "balanceIsolated") is False
            listed = canonical_isolation(str(value), *([isolation.DOMAIN] if is_static else []))
            manifest.builder.assign(isolation.KEY, listed, line=manifest.line(*at), text=text)
        elif name == "reserved" and is_list:
            cpus = resource_managers.cpu_list(str(value))
            listed = resource_managers.cpu_text(cpus) if cpus else str(value)
            manifest.builder.assign(resource_managers.CPUS, listed, line=manifest.line(*at), text=text)
        elif not (name == "balanceIsolated" and isinstance(value, bool) and manifest.at(*path, "isolated")):
            manifest.refuse(at, _OF_CPU.get(name, "is no list of CPUs, or no field that Setpoint knows"))


def _arguments(manifest: Manifest) -> None:
    path = ("spec", "additionalKernelArgs")
    words: list[kernel_arguments.Word] = []
    for number, argument in enumerate(manifest.items(*path)):
        if isinstance(argument, str) and argument.strip():
            words += [(word, manifest.line(*path, number)) for word in argument.split()]
        else:
            manifest.refuse((*path, number), "must be text")
    kernel_arguments.take(words, manifest.builder, pages_are_settings=False)
