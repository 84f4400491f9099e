from __future__ import annotations

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from components import api

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("components", api.Components, basename="api-component")

urlpatterns = [path("", include(router.urls))]
