"""The files that people apply of a release: packaged chart and manifests, with the images by digest alone."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.platform.chart.rendering import CHART, ROOT, run
from tests.platform.chart.value_sets import VALUE_SETS
from tests.platform.release.test_layout import layer, layout
from tools.release import deployables, images, provenance
from tools.release.errors import ReleaseRefused
from tools.release.layout import Layout

REGISTRY = "registry.example:5000/a/team"
ON_GITHUB = {
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "owner/setpoint",
    "GITHUB_SHA": "a" * 40,
    "GITHUB_REF": "refs/tags/v1.2.3",
    "GITHUB_WORKFLOW_REF": "owner/setpoint/.github/workflows/release.yml@refs/tags/v1.2.3",
    "GITHUB_RUN_ID": "7",
    "GITHUB_RUN_ATTEMPT": "2",
}


@pytest.fixture
def built(tmp_path: Path) -> dict[str, Layout]:
    """Return three different images where `images` leaves them."""
    target = tmp_path / "dist"
    return {name: layout(target / name, layer(("name", name.encode()))) for name in images.DOCKERFILES}


def named_images(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "image" and isinstance(inner, str):
                yield inner
            yield from named_images(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from named_images(inner)


def documents(text: str) -> list[Any]:
    return list(yaml.load_all(text, yaml.CSafeLoader))


def test_chart_and_manifests_name_every_image_of_ours_by_its_digest(built: dict[str, Layout]) -> None:
    target = built["setpoint-agent"].folder.parent
    *manifests, chart = deployables.write(ROOT, target, REGISTRY)
    reference = {name: f"{REGISTRY}/{name}@{image.digest}" for name, image in built.items()}
    assert len(set(reference.values())) == 3

    done = run("template", "x", str(chart), values=VALUE_SETS["highly-available"])
    assert done.returncode == 0, done.stderr
    assert set(named_images(documents(done.stdout))) == {reference["setpoint-server"], reference["setpoint-backup"]}

    assert {path.name for path in manifests} == {path.name for path in (ROOT / "deploy").glob("*.yaml")}
    held = [name for path in manifests for name in named_images(documents(path.read_text()))]
    assert set(held) == {reference["setpoint-agent"]}
    for path in manifests:
        before, after = ((folder / path.name).read_text().splitlines() for folder in (ROOT / "deploy", target))
        assert all("image:" in line for line in set(after) - set(before)), path.name

    with tarfile.open(chart) as archive:
        member = archive.extractfile("setpoint/values.yaml")
        assert member
        after = member.read().decode().splitlines()
    before = (CHART / "values.yaml").read_text().splitlines()
    changed = [line for line, old in zip(after, before, strict=True) if line != old]
    assert changed == [
        f'  registry: "{REGISTRY}"',
        f'  digest: "{built["setpoint-server"].digest}"',
        f'  digest: "{built["setpoint-backup"].digest}"',
    ]


@pytest.mark.parametrize("registry", ["", "https://ghcr.io/a", "ghcr.io/a/", "Ghcr.io/A", 'ghcr.io/a" b: "c', "a\nb"])
def test_what_is_no_registry_is_refused(built: dict[str, Layout], registry: str) -> None:
    target = built["setpoint-agent"].folder.parent
    with pytest.raises(ReleaseRefused, match="like ghcr"):
        deployables.write(ROOT, target, registry)
    assert {path.name for path in target.iterdir()} == set(images.DOCKERFILES)


@pytest.mark.parametrize("path", ["deploy/setpoint.yaml", "deploy/chart/setpoint/values.yaml"])
def test_a_file_that_would_keep_its_tag_is_refused(built: dict[str, Layout], tmp_path: Path, path: str) -> None:
    root = tmp_path / "checkout"
    for name in ("deploy/setpoint.yaml", "deploy/chart/setpoint/values.yaml", "deploy/chart/setpoint/Chart.yaml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes((ROOT / name).read_bytes())
    text = (root / path).read_text()
    (root / path).write_text(text.replace("image: setpoint-agent:", "image: other:").replace('  digest: ""', "  d: ''"))
    with pytest.raises(ReleaseRefused, match=Path(path).name):
        deployables.write(root, built["setpoint-agent"].folder.parent, REGISTRY)


def test_provenance_names_the_workflow_the_commit_and_the_base() -> None:
    value = json.loads(provenance.predicate(ON_GITHUB, images.base(ROOT)))
    given = value["buildDefinition"]
    workflow = given["externalParameters"]["workflow"]
    assert workflow["repository"] == "https://github.com/owner/setpoint"
    assert (ROOT / workflow["path"]).is_file()
    assert workflow["ref"] == "refs/tags/v1.2.3"
    source, base = given["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": "a" * 40}
    assert images.base(ROOT) == f"{base['uri'].removeprefix('docker://')}@sha256:{base['digest']['sha256']}"
    assert value["runDetails"]["builder"]["id"] == f"https://github.com/{ON_GITHUB['GITHUB_WORKFLOW_REF']}"
    assert value["runDetails"]["metadata"]["invocationId"].endswith("/owner/setpoint/actions/runs/7/attempts/2")


@pytest.mark.parametrize("name", ON_GITHUB)
def test_there_is_no_provenance_of_a_build_elsewhere(name: str) -> None:
    with pytest.raises(ReleaseRefused, match=name):
        provenance.predicate({**ON_GITHUB, name: ""}, images.base(ROOT))
