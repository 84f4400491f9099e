"""Every address. Each room brings `urls` (pages) and `api_urls` (under /api/v1/)."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from config import health, metrics, openapi, search

ROOMS = ("accounts", "audit", "clusters", "profiles", "components", "compliance", "jobs", "notices", "gpus")

api: list[URLPattern | URLResolver] = [
    path("openapi.json", openapi.Document.as_view(), name="openapi"),
    path("docs", openapi.docs, name="api-docs"),
    path("search", search.Search.as_view(), name="api-search"),
    *(path("", include(f"{room}.api_urls")) for room in ROOMS),
]
urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", metrics.metrics, name="metrics"),
    path("search/", search.page, name="search"),
    path("search/found/", search.fragment, name="search_found"),
    path("api/v1/", include(api)),
    *(path("", include(f"{room}.urls")) for room in ROOMS),
]

handler400 = "config.errors.bad_request"
handler403 = "config.errors.permission_denied"
handler404 = "config.errors.not_found"
handler500 = "config.errors.server_error"
