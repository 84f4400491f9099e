"""Files that people apply, with the images of a release by digest: the chart as an archive, and the manifests."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tools.release.errors import ReleaseRefused
from tools.release.layout import Layout

AGENT = re.compile(r"\bimage: setpoint-agent:\S+$", re.MULTILINE)
BY_TAG = re.compile(r"\bimage: ([^@\s]+)$", re.MULTILINE)
REGISTRY = re.compile(r"[a-z0-9.:-]+(?:/[a-z0-9._-]+)*")
SECONDS = 120


def write(root: Path, target: Path, registry: str) -> list[Path]:
    """Write the files beside the layouts that `images` made. Raises ReleaseRefused."""
    if not REGISTRY.fullmatch(registry):
        raise ReleaseRefused(f"{registry!r} is no registry with a path. It would be like ghcr.io/example.")
    agent = Layout.opened(target / "setpoint-agent").digest
    server, backup = (Layout.opened(target / f"setpoint-{name}").digest for name in ("server", "backup"))
    written = []
    for manifest in sorted((root / "deploy").glob("*.yaml")):
        text = AGENT.sub(f"image: {registry}/setpoint-agent@{agent}", manifest.read_text(encoding="utf-8"))
        if by_tag := BY_TAG.findall(text):
            raise ReleaseRefused(f"{manifest.name} names images that are none of this release: {', '.join(by_tag)}.")
        (target / manifest.name).write_text(text, encoding="utf-8")
        written.append(target / manifest.name)
    values = {"image": {"registry": registry, "digest": server}, "backup": {"digest": backup}}
    return [*written, _chart(root / "deploy/chart/setpoint", target, values)]


def _chart(chart: Path, target: Path, values: Mapping[str, Mapping[str, str]]) -> Path:
    """Package the chart. Its values are edited as text, which keeps the comments that describe them."""
    with tempfile.TemporaryDirectory(prefix="setpoint-chart-") as name:
        copy = Path(name, chart.name)
        shutil.copytree(chart, copy, ignore=shutil.ignore_patterns("__pycache__"))
        text = (copy / "values.yaml").read_text(encoding="utf-8")
        for group, pairs in values.items():
            before, start, rest = text.partition(f"\n{group}:\n")
            for key, value in pairs.items():
                rest, count = re.subn(rf'^  {key}: ""$', f'  {key}: "{value}"', rest, count=1, flags=re.MULTILINE)
                if not count:
                    raise ReleaseRefused(f"The chart's values.yaml has no empty {group}.{key}.")
            text = before + start + rest
        (copy / "values.yaml").write_text(text, encoding="utf-8")
        helm = Path(sys.executable).with_name("helm")
        words = [str(helm), "package", str(copy), "--destination", str(target)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS)
    if done.returncode:
        raise ReleaseRefused(f"helm package ended with {done.returncode}: {done.stderr.strip()}")
    return Path(done.stdout.strip().rpartition(": ")[2])
