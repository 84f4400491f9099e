from __future__ import annotations

from django.urls import path

from notices.web import channel_views, rule_views, views

app_name = "notices"
urlpatterns = [
    path("alerts/", views.alerts, name="alerts"),
    path("alerts/<uuid:pk>/", views.alert, name="alert"),
    path("alerts/<uuid:pk>/acknowledge/", views.alert_act, {"verb": "acknowledge"}, name="acknowledge"),
    path("alerts/<uuid:pk>/silence/", views.alert_act, {"verb": "silence"}, name="silence"),
    path("alerts/<uuid:pk>/unsilence/", views.alert_act, {"verb": "unsilence"}, name="unsilence"),
    path("alerts/rules/", rule_views.rules, name="rules"),
    path("alerts/rules/<slug:name>/", rule_views.rule, name="rule"),
    path("alerts/rules/<slug:name>/reset/", rule_views.rule_reset, name="rule_reset"),
    path("alerts/channels/", channel_views.channels, name="channels"),
    path("alerts/channels/new/", channel_views.channel_new, name="channel_new"),
    path("alerts/channels/<uuid:pk>/", channel_views.channel, name="channel"),
    path("alerts/channels/<uuid:pk>/delete/", channel_views.channel_delete, name="channel_delete"),
    path("alerts/deliveries/", channel_views.deliveries, name="deliveries"),
    path("alerts/deliveries/<uuid:pk>/retry/", channel_views.delivery_retry, name="delivery_retry"),
]
