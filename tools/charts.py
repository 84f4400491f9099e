"""Fetches the real charts that the full tier tries, from the repositories of the catalog. `make charts` calls it.

Into FOLDER (default: ../shared/data/charts, where tests look without SETPOINT_CHARTS) go `archives/NAME-VERSION.tgz`
and, of each chart's newest version, a folder with its values and schema. Every archive is held against the digest that
its repository states, the one that is pinned here, and the one of an earlier run (`archives/SHA256SUMS`).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import django

ROOT = Path(__file__).resolve().parent.parent
SUMS = "SHA256SUMS"
SECONDS = 120.0
"""For one chart: its index, and its archive."""
UNPACKED = ("Chart.yaml", "values.yaml", "values.schema.json")
VERSIONS: Mapping[str, tuple[str, ...]] = {
    "amd-gpu-operator": ("v1.5.1",),
    "argo-cd": ("10.1.1",),
    "aws-efa-k8s-device-plugin": ("v0.5.30",),
    "cert-manager": ("v1.21.1",),
    "cilium": ("1.19.6", "1.20.0"),
    "cluster-autoscaler": ("9.59.0",),
    "csi-driver-nfs": ("4.13.4",),
    "dcgm-exporter": ("4.8.2",),
    "dra-driver-nvidia-gpu": ("0.4.1",),
    "external-secrets": ("2.9.0",),
    "fluent-bit": ("0.58.1",),
    "fluid": ("1.0.8",),
    "gpu-operator": ("v26.3.3", "v26.7.0"),
    "hami": ("2.10.0",),
    "intel-device-plugins-gpu": ("0.36.0",),
    "intel-device-plugins-operator": ("0.36.0",),
    "istio-base": ("1.30.3",),
    "istiod": ("1.30.3",),
    "jobset": ("0.12.0",),
    "kai-scheduler": ("v0.17.0",),
    "keda": ("2.20.2",),
    "kserve": ("v0.20.0",),
    "kserve-crd": ("v0.20.0",),
    "kube-prometheus-stack": ("88.5.3",),
    "kubeflow-trainer": ("2.3.0",),
    "kuberay-operator": ("1.7.0",),
    "kueue": ("0.18.6", "0.19.2"),
    "kyverno": ("3.9.0",),
    "local-static-provisioner": ("2.0.0", "2.9.0"),
    "loki": ("18.11.0",),
    "lws": ("0.10.0",),
    "metrics-server": ("3.13.1",),
    "network-operator": ("26.1.2", "26.4.1"),
    "node-feature-discovery": ("0.18.3", "0.19.0"),
    "node-problem-detector": ("2.4.1",),
    "nvidia-device-plugin": ("0.20.0",),
    "opencost": ("2.5.17",),
    "prometheus-adapter": ("5.3.0",),
    "rook-ceph": ("v1.20.6",),
    "slurm-operator": ("1.2.1",),
    "slurm-operator-crds": ("1.2.1",),
    "spegel": ("0.7.4",),
    "sriov-network-operator": ("1.6.0",),
    "trivy-operator": ("0.34.0",),
    "velero": ("12.1.0",),
    "vertical-pod-autoscaler": ("0.11.0",),
    "volcano": ("1.14.4", "1.15.1"),
    "whereabouts": ("0.9.4",),
}
"""By component, the newest last: what tests render, and what tests/full/harness/charts/cases.py installs."""
PINNED = {
    "cilium-1.19.6.tgz": "21c43cf53841f9ab0375047d95aa4c64051ea52bbd2c679416e6408f5f1c9179",
    "cilium-1.20.0.tgz": "c5f013912360d1a334f44ef25f36da59ba3414cdb48f466ee12d0c4fdff27883",
}
"""Digests that no repository may change."""


class CannotFetch(SystemExit):
    """Ends the program with the reason."""


def fetch(folder: Path, versions: Mapping[str, Sequence[str]], *, networks: Sequence[str] = (), ca: str = "") -> int:
    """Fetch what is not there yet, and return how many archives that were. Raises CannotFetch.

    `networks`, `ca`: private networks that may be asked, and the authority to trust, for a mirror.
    """
    from clusters.fleet import FleetError
    from clusters.kube.http import HttpClient
    from clusters.net.egress import Policy
    from common.errors import Refusal
    from components.catalog import catalog
    from components.charts import archives, fetching

    place, made = folder / "archives", 0
    place.mkdir(parents=True, exist_ok=True)
    sums = _sums(place)
    door = HttpClient(Policy.of(networks), ca=ca)
    try:
        for name, wanted in versions.items():
            chart = catalog.get(name).chart
            source = fetching.ChartSource(chart.url.rstrip("/"), chart.chart, chart.hosts)
            for version in wanted:
                path = place / f"{chart.chart}-{version}.tgz"
                if not path.exists():
                    archive = fetching.download(door, source, version, time.monotonic() + SECONDS).content
                    _check(path.name, archive, sums)
                    archives.judge(archive, name=chart.chart, version=version)
                    unfinished = path.with_suffix(".unfinished")
                    unfinished.write_bytes(archive)
                    unfinished.replace(path)  # a write that was cut short leaves nothing that looks fetched
                    made += 1
                    print(f"{path.name} from {chart.url}")
                content = path.read_bytes()
                sums[path.name] = _check(path.name, content, sums)
            _unpack(folder / chart.chart, archives.files(content))
    except (Refusal, FleetError) as error:
        raise CannotFetch(f"{error}\nwhat came before it is in {place}; run it again to continue") from error
    finally:
        door.close()
        (place / SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())))
    return made


def _sums(place: Path) -> dict[str, str]:
    """Return the digests of an earlier run by file name."""
    if not (place / SUMS).exists():
        return {}
    pairs = (line.split() for line in (place / SUMS).read_text(encoding="utf-8").splitlines())
    return {name: digest for digest, name in pairs}


def _check(name: str, content: bytes, sums: Mapping[str, str]) -> str:
    """Return the digest. Raises CannotFetch where it is another than was pinned, or than it was."""
    digest = hashlib.sha256(content).hexdigest()
    for pinned, by in ((PINNED.get(name), "tools/charts.py pins"), (sums.get(name), f"{SUMS} has")):
        if pinned and pinned != digest:
            raise CannotFetch(f"{name} has the SHA-256 {digest}, and {by} {pinned}")
    return digest


def _unpack(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(exist_ok=True)
    for name in UNPACKED:
        if name in files:
            (folder / name).write_bytes(files[name])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    default = os.environ.get("SETPOINT_CHARTS") or ROOT.parent / "shared" / "data" / "charts"
    parser.add_argument("--to", metavar="FOLDER", type=Path, default=Path(default))
    folder = parser.parse_args(arguments).to
    made = fetch(folder, VERSIONS)
    print(f"{made} charts fetched; SETPOINT_CHARTS={folder}")
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    sys.exit(main(sys.argv[1:]))
