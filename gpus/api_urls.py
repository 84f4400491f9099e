from __future__ import annotations

from django.urls import path
from rest_framework.routers import SimpleRouter

from gpus import export_views, figures_api, source_urls

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("gpus/devices", figures_api.GpuViewSet, basename="gpu")
urlpatterns = [
    *source_urls.urlpatterns,
    path("gpus/summary", figures_api.SummaryView.as_view(), name="gpu-summary"),
    path("gpus/held-idle", figures_api.HeldIdleView.as_view(), name="gpu-held-idle"),
    path("gpus/prometheus-rule", export_views.PrometheusRule.as_view(), name="gpu-prometheus-rule"),
    path("gpus/grafana-dashboard", export_views.GrafanaDashboard.as_view(), name="gpu-grafana-dashboard"),
    *router.urls,
]
