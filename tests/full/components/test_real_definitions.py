"""Real archives that bring definitions, planned and installed where the archives are at hand."""

from __future__ import annotations

import time

import pytest

from components.catalog import catalog
from components.charts import archives
from components.helm import client, rendering
from components.models import ClusterValues
from tests.full.components.kinds_chart import ARCHIVES, World, blocks, codes, world
from tests.full.harness.client import eventually

__all__ = ["world"]
pytestmark = pytest.mark.django_db


needs_charts = pytest.mark.skipif(not ARCHIVES.is_dir(), reason=f"needs charts: there are none in {ARCHIVES}")


def stored(world: World, name: str, version: str) -> list[str]:
    """The archive put in; names of the definitions in its crds/, with none of them in the cluster."""
    component = catalog.get(name)
    path = next(ARCHIVES.glob(f"{component.chart.chart}-*{version.removeprefix('v')}.tgz"))
    content = path.read_bytes()
    archives.store(content, origin="uploaded", by="admin")
    text = client.program().template(
        client.HelmJob("x", "x", deadline=time.monotonic() + 120), content, {}, kube_version="v1.35.0"
    )
    names = [str(raw["metadata"]["name"]) for raw, is_crd in rendering.split(text, content) if is_crd]
    world.forget(names)
    return names


@needs_charts
@pytest.mark.parametrize(
    ("name", "version"),
    [("gpu-operator", "v26.7.0"), ("node-feature-discovery", "0.19.0"), ("kube-prometheus-stack", "88.5.3")],
)
def test_a_real_chart_with_kinds_of_its_own_is_planned_for_a_cluster_without_them(
    world: World, name: str, version: str
) -> None:
    definitions = stored(world, name, version)

    prepared = world.prepare(version, name)

    assert definitions
    assert [text for text in blocks(prepared) if "Kubernetes" not in text] == []
    made = {difference.name for difference in prepared.objects if difference.kind == "CustomResourceDefinition"}
    assert made == {*definitions}
    assert "revert-leaves" in codes(prepared)


@needs_charts
def test_the_real_nfd_is_installed_removed_and_planned_again(world: World) -> None:
    definitions = stored(world, "node-feature-discovery", "0.19.0")
    place = catalog.get("node-feature-discovery").namespace
    eventually(lambda: world.admin.find("namespaces", place) is None, lambda: f"{place} is still there")
    first = world.prepare("0.19.0", "node-feature-discovery")
    try:
        world.carry_out(first)
        assert world.prepare("0.19.0", "node-feature-discovery").action == "none"
        world.carry_out(first, "revert")
        again = world.prepare("0.19.0", "node-feature-discovery")
        assert blocks(again) == []
        assert again.action == "install"
        world.carry_out(again)
        world.carry_out(again, "revert")
    finally:
        ClusterValues.objects.all().delete()
        world.plane.kubectl("delete", "secret", "-l", "owner=helm", "-n", first.namespace, "--ignore-not-found")
        world.plane.kubectl("delete", "namespace", first.namespace, "--wait=false", "--ignore-not-found")
        world.forget(definitions)
