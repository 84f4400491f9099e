from __future__ import annotations

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from components.web import api, archive_api, import_api, repository_api, site_api, values_api

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("components", api.Components, basename="api-component")
router.register("chart-archives", archive_api.Archives, basename="api-chart-archive")
router.register("chart-repositories", repository_api.Repositories, basename="api-chart-repository")
router.register("site-entries", site_api.SiteEntries, basename="api-site-entry")
router.register(
    "clusters/<uuid:cluster_pk>/component-values", values_api.ComponentValues, basename="api-component-values"
)

urlpatterns = [
    path("clusters/<uuid:pk>/actions/draft-profile", import_api.Installed.as_view(), name="api-cluster-draft-profile"),
    path("", include(router.urls)),
]
