from __future__ import annotations

from django.urls import path
from rest_framework.routers import SimpleRouter

from notices.web import api, channel_api

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("alerts", api.Alerts, basename="alert")
router.register("notice-channels", channel_api.Channels, basename="notice-channel")
router.register("notice-deliveries", channel_api.Deliveries, basename="notice-delivery")
urlpatterns = [
    path("alert-rules", api.AlertRules.as_view(), name="alert-rules"),
    path("alert-rules/<slug:name>", api.EverywhereAlertRule.as_view(), name="alert-rule"),
    path("clusters/<uuid:cluster_pk>/alert-rules", api.ClusterAlertRules.as_view(), name="cluster-alert-rules"),
    path(
        "clusters/<uuid:cluster_pk>/alert-rules/<slug:name>", api.ClusterAlertRule.as_view(), name="cluster-alert-rule"
    ),
    *router.urls,
]
