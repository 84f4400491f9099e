from __future__ import annotations

from django.urls import path
from rest_framework.routers import SimpleRouter

from jobs.web import bulk_api, freeze_api, plan_api, rollout_api, rule_api, takeover_api, timeline_views
from jobs.web.calendars import api as calendar_api
from jobs.web.fleet import api as fleet_api
from jobs.web.glass import api as glass_api
from jobs.web.plan_requests import api as plan_request_api
from jobs.web.policy import api as policy_api
from jobs.web.tickets import api as ticket_api

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("plans", plan_api.PlanViewSet, basename="plan")
router.register("plans/<uuid:plan_pk>/nodes", plan_api.PlanNodeViewSet, basename="plan-node")
router.register("plans/<uuid:plan_pk>/components", plan_api.PlanComponentViewSet, basename="plan-component")
router.register("plan-requests", plan_request_api.PlanRequestViewSet, basename="plan-request")
router.register("fleet-runs", fleet_api.FleetRunViewSet, basename="fleet-run")
router.register("rollouts", rollout_api.RolloutViewSet, basename="rollout")
router.register("rollouts/<uuid:rollout_pk>/steps", rollout_api.StepViewSet, basename="step")
router.register("rollouts/<uuid:rollout_pk>/events", rollout_api.EventViewSet, basename="event")
router.register("approval-rules", rule_api.RuleViewSet, basename="approval-rule")
router.register("policy-versions", policy_api.PolicyVersionViewSet, basename="policy-version")
router.register("change-record-rules", ticket_api.ChangeRecordRuleViewSet, basename="change-record-rule")
router.register("ticket-connections", ticket_api.TicketConnectionViewSet, basename="ticket-connection")
router.register("calendar-rules", calendar_api.CalendarRuleViewSet, basename="calendar-rule")
router.register("freezes", freeze_api.FreezeViewSet, basename="freeze")
urlpatterns = [
    path("break-glass", glass_api.GlassSetupView.as_view(), name="break-glass"),
    path("nodes/selection", bulk_api.NodeSelectionView.as_view(), name="node-selection"),
    path("nodes/selection/actions/plan", bulk_api.PlanAllView.as_view(), name="node-selection-plan"),
    path("nodes/selection/actions/refresh", bulk_api.RefreshAllView.as_view(), name="node-selection-refresh"),
    path("plans/<uuid:pk>/timeline", timeline_views.PlanTimeline.as_view(), name="plan-timeline"),
    path("rollouts/<uuid:pk>/timeline", timeline_views.RolloutTimeline.as_view(), name="rollout-timeline"),
    path("clusters/<uuid:cluster_pk>/takeover", takeover_api.TakeoverView.as_view(), name="takeover"),
    path(
        "clusters/<uuid:cluster_pk>/takeover/actions/approve",
        takeover_api.ApproveTakeoverView.as_view(),
        name="takeover-approve",
    ),
    path(
        "clusters/<uuid:cluster_pk>/takeover/actions/withdraw",
        takeover_api.WithdrawTakeoverView.as_view(),
        name="takeover-withdraw",
    ),
    *router.urls,
]
