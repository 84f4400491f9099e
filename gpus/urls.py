from __future__ import annotations

from django.urls import path

from gpus import source_views, views

app_name = "gpus"
urlpatterns = [
    path("gpus/", views.fleet, name="fleet"),
    path("gpus/clusters/<uuid:pk>/", views.cluster, name="cluster"),
    path("gpus/clusters/<uuid:pk>/fit/", views.cluster_fit, name="fit"),
    path("gpus/clusters/<uuid:pk>/source/", source_views.source, name="source"),
]
