"""REST addresses of telemetry sources, under /api/v1/."""

from __future__ import annotations

from django.urls import path

from gpus import source_api

urlpatterns = [
    path("clusters/<uuid:cluster_pk>/telemetry", source_api.Telemetry.as_view(), name="cluster-telemetry"),
    path(
        "clusters/<uuid:cluster_pk>/telemetry/actions/test",
        source_api.TelemetryTest.as_view(),
        name="cluster-telemetry-test",
    ),
]
