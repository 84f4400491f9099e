"""Exporters of a real API server, with the rights that deploy/ gives the controller and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.connection import registry
from clusters.fleet import Backend, Forbidden
from clusters.kube.fleet import KubeFleet
from gpus.capacity import pending
from gpus.models import GpuDevice, TelemetrySource
from gpus.services import polling
from gpus.telemetry.exporters import MEND
from tests.clusters.factories import ClusterFactory
from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.controlplane.pod_host import PodHost
from tests.full.harness.client import eventually
from tests.full.harness.prometheus import serving
from tests.gpus.exporting import NAMESPACE, Gpu, text

pytestmark = [pytest.mark.full, pytest.mark.django_db]
MANIFEST = Path(__file__).resolve().parents[3] / "deploy" / "setpoint-gpus.yaml"
NODE, POD = "telemetry-node", "telemetry-exporter"


@pytest.fixture
def exporter(deployed: Plane, cluster_admin: Admin) -> Iterator[None]:
    """A pod that answers as an exporter does, where the API server reaches it."""
    host = PodHost()
    metrics = host.serve(serving({"/metrics": text(NODE, [Gpu("GPU-1"), Gpu("GPU-2", busy=0, holder=None)])}))
    # Applied: the namespace may be there from a file that ran before on the same control plane.
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    deployed.kubectl("apply", "-f", "-", text=json.dumps(space))
    cluster_admin.node(NODE, gpus=2)
    port = {"name": "metrics", "containerPort": metrics}
    spec = {"containers": [{"name": "exporter", "image": "exporter:4.8.2", "ports": [port]}]}
    labels = {"app": "nvidia-dcgm-exporter"}
    cluster_admin.pod(POD, node=NODE, namespace=NAMESPACE, labels=labels, spec=spec, address=host.address)
    yield
    cluster_admin.delete("pods", POD, NAMESPACE, grace=0)
    cluster_admin.delete("nodes", NODE)
    deployed.kubectl("delete", "namespace", NAMESPACE)
    host.close()


def read(source: TelemetrySource) -> TelemetrySource:
    TelemetrySource.objects.filter(pk=source.pk).update(due_at="2020-01-01T00:00Z")
    assert polling.tick(source.pk)
    source.refresh_from_db()
    return source


def test_the_optional_manifest_is_what_reading_exporters_takes(deployed, controller_fleet: KubeFleet, exporter):
    cluster = ClusterFactory()
    source = TelemetrySource.objects.create(cluster=cluster)
    with registry.override(cluster.pk, controller_fleet):
        assert read(source).state == source.State.FAILED
        assert "cannot get resource" in source.sentence
        assert MEND in source.sentence
        assert {what for what, _ in pending.read(controller_fleet).refused} > {"volcano’s podgroups"}
        deployed.kubectl("apply", "-f", str(MANIFEST))
        # The API server knows of a new role after a moment.
        eventually(lambda: read(source).state == source.State.WELL)
    # Schedulers that are not installed are not served, which is no refusal.
    eventually(lambda: not pending.read(controller_fleet).refused)
    assert pending.read(controller_fleet).systems == []
    assert (source.sentence, source.exporter_versions) == ("", ["4.8.2"])
    rows = GpuDevice.objects.filter(cluster=cluster).values_list("uuid", "node_name", "values")
    assert sorted(rows) == [
        ("GPU-1", NODE, {"busy": 0.9, "power": 400}),
        ("GPU-2", NODE, {"busy": 0, "power": 400}),
    ]
    with pytest.raises(Forbidden):
        controller_fleet.through(Backend("pods", "default", "any", "80"), "", limit=1000)
