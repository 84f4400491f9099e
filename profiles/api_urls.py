from __future__ import annotations

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from profiles.web import api, catalog_api, revision_api

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("profiles", api.Profiles, basename="api-profile")
router.register("revisions", revision_api.Revisions, basename="api-revision")
router.register("settings", catalog_api.Settings, basename="api-setting")

urlpatterns = [path("", include(router.urls))]
