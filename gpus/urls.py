from __future__ import annotations

from django.urls import path

from gpus import export_views, pace_views, source_views, views

app_name = "gpus"
urlpatterns = [
    path("gpus/", views.fleet, name="fleet"),
    path("gpus/slower/", pace_views.slower, name="slower"),
    path("gpus/clusters/<uuid:pk>/", views.cluster, name="cluster"),
    path("gpus/clusters/<uuid:pk>/fit/", views.cluster_fit, name="fit"),
    path("gpus/clusters/<uuid:pk>/source/", source_views.source, name="source"),
    path("gpus/slower/live/", pace_views.live, name="slower_live"),
    path("gpus/slower.csv", pace_views.export, {"form": "csv"}, name="slower_csv"),
    path("gpus/slower.json", pace_views.export, {"form": "json"}, name="slower_json"),
    path("gpus/alerts/prometheus-rule.yaml", export_views.rule_file, name="rule_file"),
    path("gpus/alerts/grafana.json", export_views.dashboard_file, name="dashboard_file"),
]
