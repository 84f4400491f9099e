"""What holds of every real chart's archive, rendered by helm without a cluster.

No third party's chart is committed. The archives are read from ../shared/data/charts/archives beside the checkout, or
from the folder `archives` in the one that SETPOINT_CHARTS names.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from components import helm, rendering
from tests.components.test_real_charts import CHARTS

ARCHIVES = CHARTS / "archives"
ALL = sorted(ARCHIVES.glob("*.tgz"))

pytestmark = pytest.mark.skipif(not ALL, reason=f"needs charts: there are no archives in {ARCHIVES}")


def template(archive: Path, *arguments: str) -> bytes | None:
    """None: it does not render with its own values alone."""
    command = [helm.program().program, "template", "one", str(archive), "--kube-version=v1.35.0", *arguments]
    done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    return None if done.returncode else done.stdout


@pytest.mark.parametrize("archive", ALL, ids=lambda path: path.stem)
def test_definitions_of_the_folder_crds_are_told_from_templates(archive):
    """helm itself can leave them out: what is left then are the templates."""
    whole, rest = template(archive, "--include-crds"), template(archive)
    if whole is None or rest is None:
        return

    found = [
        (raw["kind"], raw["metadata"]["name"], is_crd) for raw, is_crd in rendering.split(whole, archive.read_bytes())
    ]

    templates = sorted((raw["kind"], raw["metadata"]["name"]) for raw, _ in rendering.split(rest))
    assert sorted((kind, name) for kind, name, is_crd in found if not is_crd) == templates
    assert {kind for kind, _, is_crd in found if is_crd} <= {"CustomResourceDefinition"}


def test_the_archives_have_definitions_in_their_folders_crds():
    """The law above is not empty."""
    known = [path for path in ALL if path.name.startswith(("gpu-operator-v", "kube-prometheus-stack", "node-feature"))]
    rendered = [(path, template(path, "--include-crds") or b"") for path in known]
    found = [is_crd for path, text in rendered for _, is_crd in rendering.split(text, path.read_bytes())]
    assert sum(found) >= 20
