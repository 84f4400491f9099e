"""Every address. Each room brings `urls` (pages) and `api_urls` (under /api/v1/)."""

from __future__ import annotations

from importlib.util import find_spec

from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularJSONAPIView

from config import health, metrics, openapi

ROOMS = ("accounts", "audit", "clusters", "profiles", "compliance", "jobs")


def of_rooms(module: str) -> list[URLResolver]:
    found = [f"{room}.{module}" for room in ROOMS if find_spec(f"{room}.{module}")]
    return [path("", include(name)) for name in found]


api: list[URLPattern | URLResolver] = [
    path("openapi.json", SpectacularJSONAPIView.as_view(), name="openapi"),
    path("docs", openapi.docs, name="api-docs"),
    *of_rooms("api_urls"),
]
urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", metrics.metrics, name="metrics"),
    path("api/v1/", include(api)),
    *of_rooms("urls"),
]

handler400 = "config.errors.bad_request"
handler403 = "config.errors.permission_denied"
handler404 = "config.errors.not_found"
handler500 = "config.errors.server_error"
