"""REST addresses of clusters' telemetry sources and of what could start there, under /api/v1/."""

from __future__ import annotations

from django.urls import path

from gpus.web import capacity_api, source_api

urlpatterns = [
    path("clusters/<uuid:cluster_pk>/gpu-fit", capacity_api.FitView.as_view(), name="cluster-gpu-fit"),
    path("clusters/<uuid:cluster_pk>/telemetry", source_api.Telemetry.as_view(), name="cluster-telemetry"),
    path(
        "clusters/<uuid:cluster_pk>/telemetry/actions/test",
        source_api.TelemetryTest.as_view(),
        name="cluster-telemetry-test",
    ),
]
