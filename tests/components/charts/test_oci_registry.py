"""Setpoint fetches the chart that helm itself pushed into a plain OCI registry, the same that helm pulls from there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from components.catalog.entry import ChartReference
from components.charts import store
from components.helm import client
from tests.components.chart_server import AUTHORITY
from tests.components.factories import RepositoryFactory
from tests.components.packing import CHART, packed
from tests.components.registry import Registry

pytestmark = pytest.mark.django_db


@pytest.fixture
def registry(tmp_path, settings):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    made = Registry(AUTHORITY, tmp_path)
    yield made
    made.close()


def run(folder: Path, *words: str) -> None:
    environment = {"HOME": str(folder), "PATH": "/nonexistent"}
    command = [client.program().program, *words, "--plain-http"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60, cwd=folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("version", ["1.2.3", "1.2.3+build.5"])
def test_a_chart_that_helm_pushed_is_fetched_and_is_what_helm_pulls(registry, tmp_path, version):
    content = packed({"Chart.yaml": CHART.replace("1.2.3", version), "values.yaml": "color: green\n"})
    (tmp_path / f"tiny-{version}.tgz").write_bytes(content)
    run(tmp_path, "push", f"tiny-{version}.tgz", f"oci://{registry.plain}/charts")
    RepositoryFactory(url=f"oci://{registry.place}/charts", ca=AUTHORITY.pem)
    chart = ChartReference("oci", f"oci://{registry.place}/charts", "tiny", ())

    assert store.versions(chart) == [version]
    fetched = bytes(store.fetch(chart, version).content)
    pulled = tmp_path / "pulled"
    pulled.mkdir()
    run(tmp_path, "pull", f"oci://{registry.plain}/charts/tiny", "--version", version, "--destination", str(pulled))
    [file] = pulled.iterdir()
    assert fetched == file.read_bytes() == content
