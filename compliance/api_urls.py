from __future__ import annotations

from django.urls import path
from rest_framework.routers import SimpleRouter

from compliance.web import api, component_api, timeline_views

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("compliance/nodes", api.NodeComplianceViewSet, basename="node-compliance")
router.register("compliance/settings", api.SettingStateViewSet, basename="setting-state")
router.register("compliance/changes", api.SettingChangeViewSet, basename="setting-change")
router.register("compliance/outliers", api.OutlierViewSet, basename="outlier")
router.register("compliance/components", component_api.ComponentStandingViewSet, basename="component-standing")
router.register("compliance/assignments", api.AssignmentViewSet, basename="assignment")
urlpatterns = [
    path("compliance/summary", api.SummaryView.as_view(), name="compliance-summary"),
    path("compliance/matrix", api.MatrixView.as_view(), name="compliance-matrix"),
    path("clusters/<uuid:pk>/timeline", timeline_views.ClusterTimeline.as_view(), name="cluster-timeline"),
    path("nodes/<int:pk>/timeline", timeline_views.NodeTimeline.as_view(), name="node-timeline"),
    path("pools/<int:pk>/timeline", timeline_views.PoolTimeline.as_view(), name="pool-timeline"),
    path("profiles/<slug:name>/timeline", timeline_views.ProfileTimeline.as_view(), name="profile-timeline"),
    *router.urls,
]
