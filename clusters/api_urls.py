from __future__ import annotations

from django.urls import path
from rest_framework.routers import SimpleRouter

from clusters.web import api, views

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("clusters", api.ClusterViewSet, basename="cluster")
router.register("clusters/<uuid:cluster_pk>/pools", api.ClusterPoolViewSet, basename="cluster-pool")
router.register("pools", api.PoolViewSet, basename="pool")
router.register("nodes", api.NodeViewSet, basename="node")
urlpatterns = [path("manifest", views.manifest, name="manifest"), *router.urls]
