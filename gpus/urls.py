from __future__ import annotations

from django.urls import path

from gpus.web import export_views, peers_views, source_views, views

app_name = "gpus"
urlpatterns = [
    path("gpus/", views.fleet, name="fleet"),
    path("gpus/slower/", peers_views.slower, name="slower"),
    path("gpus/clusters/<uuid:pk>/", views.cluster, name="cluster"),
    path("gpus/clusters/<uuid:pk>/fit/", views.cluster_fit, name="fit"),
    path("gpus/clusters/<uuid:pk>/source/", source_views.source, name="source"),
    path("gpus/slower/live/", peers_views.live, name="slower_live"),
    path("gpus/slower.csv", peers_views.export, {"form": "csv"}, name="slower_csv"),
    path("gpus/slower.json", peers_views.export, {"form": "json"}, name="slower_json"),
    path("gpus/alerts/prometheus-rule.yaml", export_views.rule_file, name="rule_file"),
    path("gpus/alerts/grafana.json", export_views.dashboard_file, name="dashboard_file"),
]
