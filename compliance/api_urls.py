from __future__ import annotations

from django.urls import path
from rest_framework.routers import SimpleRouter

from compliance import api

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("compliance/nodes", api.NodeComplianceViewSet, basename="node-compliance")
router.register("compliance/settings", api.SettingStateViewSet, basename="setting-state")
router.register("compliance/changes", api.SettingChangeViewSet, basename="setting-change")
router.register("compliance/outliers", api.OutlierViewSet, basename="outlier")
router.register("compliance/assignments", api.AssignmentViewSet, basename="assignment")
urlpatterns = [
    path("compliance/summary", api.SummaryView.as_view(), name="compliance-summary"),
    path("compliance/matrix", api.MatrixView.as_view(), name="compliance-matrix"),
    *router.urls,
]
