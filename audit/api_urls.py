from __future__ import annotations

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from audit import api

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("audit", api.Records, basename="api-audit")

urlpatterns = [path("", include(router.urls))]
