from __future__ import annotations

from django.urls import path

from clusters.web import node_views, views

app_name = "clusters"
urlpatterns = [
    path("clusters/", views.clusters, name="clusters"),
    path("clusters/connect/", views.connect, name="connect"),
    path("clusters/setpoint.yaml", views.manifest, name="manifest"),
    path("clusters/<uuid:pk>/", views.cluster, name="cluster"),
    path("clusters/<uuid:pk>/nodes/live/", views.worst, name="worst"),
    path("clusters/<uuid:pk>/update/", views.update, name="update"),
    path("clusters/<uuid:pk>/test/", views.test, name="test"),
    path("clusters/<uuid:pk>/refresh/", views.refresh, name="refresh"),
    path("clusters/<uuid:pk>/credential/", views.rotate, name="rotate"),
    path("clusters/<uuid:pk>/disconnect/", views.disconnect, name="disconnect"),
    path("clusters/<uuid:pk>/pools/new/", node_views.pool_new, name="pool_new"),
    path("pools/<int:pk>/", node_views.pool, name="pool"),
    path("pools/<int:pk>/delete/", node_views.pool_delete, name="pool_delete"),
    path("nodes/", node_views.node_list, name="nodes"),
    path("nodes/<int:pk>/", node_views.node, name="node"),
    path("nodes/<int:pk>/refresh/", node_views.node_refresh, name="node_refresh"),
]
