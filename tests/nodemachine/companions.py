"""Images of the components' own programs, built from their Go modules: no registry serves a machine in QEMU.

Each image is called as its chart calls it, and holds the programs where the component's own Dockerfile puts them.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane.plane import binaries as of_the_plane
from tests.full.harness.images import Images, cache_folder

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Image:
    reference: str
    programs: Mapping[str, str]
    """Binaries by their paths in the image; the first one starts."""
    user: str = ""
    base: str = "scratch"


COMPANIONS = {
    "node-feature-discovery": (
        Image(
            "registry.k8s.io/nfd/node-feature-discovery:v0.19.0",
            {f"/usr/bin/{name}": name for name in ("nfd-master", "nfd-worker", "nfd-gc")},
            user="65534:65534",
        ),
    ),
    "kueue": (Image("registry.k8s.io/kueue/kueue:v0.19.2", {"/manager": "kueue"}, user="65532:65532"),),
    "rdma-shared-device-plugin": (
        Image(
            "ghcr.io/mellanox/k8s-rdma-shared-dev-plugin:v1.5.3",
            {"/bin/k8s-rdma-shared-dp": "k8s-rdma-shared-dp"},
        ),
    ),
    "volcano": (
        Image("docker.io/volcanosh/vc-scheduler:v1.15.1", {"/vc-scheduler": "scheduler"}),
        Image("docker.io/volcanosh/vc-controller-manager:v1.15.1", {"/vc-controller-manager": "controller-manager"}),
        Image(
            "docker.io/volcanosh/vc-webhook-manager:v1.15.1",
            {
                "/vc-webhook-manager": "webhook-manager",
                "/gen-admission-secret.sh": "gen-admission-secret.sh",
                "/usr/local/bin/kubectl": "kubectl",
            },
            base="localhost/base",
        ),
    ),
}
"""Images of each component."""


def images(component: str) -> list[Path]:
    """Return archives of a component's images, made on first use and kept by the hash of what they were made of."""
    built = binaries(component)
    wanted = COMPANIONS[component]
    key = hashlib.sha256(repr((built.name, wanted)).encode()).hexdigest()[:16]
    folder = cache_folder() / "node" / f"images-{component}-{key}"
    if not folder.is_dir():
        unfinished = Path(tempfile.mkdtemp(prefix=".images-", dir=folder.parent))
        with Images() as made:
            for number, image in enumerate(wanted):
                files = {path: _program(built, name) for path, name in image.programs.items()}
                target = unfinished / f"{component}-{number}.tar"
                made.of_programs(files, image.reference, target, user=image.user, base=image.base)
        unfinished.rename(folder)
    return sorted(folder.iterdir())


def binaries(component: str) -> Path:
    """Return the folder of a component's programs, built on first use in minutes. Raises RuntimeError."""
    done = subprocess.run([HERE / "programs" / "build.sh", component], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the programs of {component} were not built: {done.stderr[-3000:]}")
    return Path(done.stdout.strip())


def _program(built: Path, name: str) -> Path:
    """Return a program of the component's own, or kubectl of the control plane."""
    return next(path for path in (built / name, of_the_plane() / name) if path.exists())
