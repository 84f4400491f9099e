from __future__ import annotations

from django.urls import path, re_path

from jobs.web import (
    bulk_views,
    list_views,
    overview_views,
    rule_views,
    takeover_views,
    timeline_views,
    views,
)
from jobs.web.calendars import file_views as calendar_file_views
from jobs.web.calendars import views as calendar_views
from jobs.web.fleet import views as fleet_views
from jobs.web.glass import views as glass_views
from jobs.web.plan_requests import views as plan_request_views
from jobs.web.policy import views as policy_views
from jobs.web.tickets import hook_views as ticket_hook_views
from jobs.web.tickets import views as ticket_views

app_name = "jobs"
urlpatterns = [
    path("", overview_views.overview, name="overview"),
    path("nodes/all/", bulk_views.nodes_bulk, name="nodes_bulk"),
    path("plans/", list_views.plans, name="plans"),
    path("plans/new/", views.plan_new, name="plan_new"),
    path("plans/requests/<uuid:pk>/", plan_request_views.plan_request, name="plan_request"),
    path("plans/requests/<uuid:pk>/live/", plan_request_views.plan_request_live, name="plan_request_live"),
    path("plans/P-<int:number>/", views.plan, name="plan"),
    path("plans/P-<int:number>/components/<int:pk>/role.yaml", views.plan_role, name="plan_role"),
    path("plans/P-<int:number>/timeline/", timeline_views.plan, name="plan_timeline"),
    re_path(
        r"^plans/P-(?P<number>[0-9]{1,9})/(?P<verb>request|verdict|approve|request-changes|reject|retract|withdraw|start)/$",
        views.plan_act,
        name="plan_act",
    ),
    path("plans/P-<int:number>/change-record/", ticket_views.plan_change_record, name="plan_change_record"),
    path("plans/P-<int:number>/break-glass/", glass_views.plan_break_glass, name="plan_break_glass"),
    path("approvals/", list_views.approvals, name="approvals"),
    path("approvals/rules/", rule_views.rule_list, name="rules"),
    path("approvals/rules/<int:pk>/", rule_views.rule, name="rule"),
    path("approvals/rules/<int:pk>/rest/", rule_views.rule_rest, name="rule_rest"),
    path("approvals/rules/<int:pk>/delete/", rule_views.rule_delete, name="rule_delete"),
    path("approvals/change-records/", ticket_views.change_records, name="change_records"),
    path("approvals/change-records/rules/<int:pk>/delete/", ticket_views.rule_delete, name="change_record_rule_delete"),
    path("approvals/change-records/connections/", ticket_views.connection_new, name="ticket_connection_new"),
    path(
        "approvals/change-records/connections/<uuid:pk>/delete/",
        ticket_views.connection_delete,
        name="ticket_connection_delete",
    ),
    path("hooks/change-records/<uuid:key>", ticket_hook_views.change_record_hook, name="change_record_hook"),
    path("approvals/policy/", policy_views.policy, name="policy"),
    path("approvals/policy/v<int:number>/", policy_views.policy_version, name="policy_version"),
    re_path(
        r"^approvals/policy/v(?P<number>[0-9]{1,9})/(?P<verb>activate|withdraw)/$",
        policy_views.policy_act,
        name="policy_act",
    ),
    path("fleet-runs/", fleet_views.fleet_run_list, name="fleet_runs"),
    path("fleet-runs/new/", fleet_views.fleet_run_new, name="fleet_run_new"),
    path("fleet-runs/F-<int:number>/", fleet_views.fleet_run, name="fleet_run"),
    re_path(
        r"^fleet-runs/F-(?P<number>[0-9]{1,9})/(?P<verb>request|start|hold|release|open-ring|leave-out|add|cancel)/$",
        fleet_views.fleet_run_act,
        name="fleet_run_act",
    ),
    path("rollouts/", list_views.rollouts, name="rollouts"),
    path("rollouts/R-<int:number>/", views.rollout, name="rollout"),
    path("rollouts/R-<int:number>/nodes/", list_views.rollout_nodes, name="rollout_nodes"),
    path("rollouts/R-<int:number>/timeline/", timeline_views.rollout, name="rollout_timeline"),
    path("rollouts/R-<int:number>/live/", views.rollout_live, name="rollout_live"),
    path("rollouts/R-<int:number>/steps/<uuid:pk>/", views.step, name="step"),
    re_path(
        r"^rollouts/R-(?P<number>[0-9]{1,9})/(?P<verb>pause|resume|go-on|abort|retry-failed|skip|revert|keep-cordoned)/$",
        views.rollout_act,
        name="rollout_act",
    ),
    path("rollouts/R-<int:number>/review/", glass_views.rollout_review, name="rollout_review"),
    path("clusters/<uuid:cluster_pk>/takeover/", takeover_views.takeover, name="takeover"),
    path("windows/", calendar_views.window_list, name="windows"),
    path("windows/import/", calendar_file_views.window_import, name="window_import"),
    path("windows/export.ics", calendar_file_views.window_export, name="window_export"),
    path("windows/<int:pk>/", calendar_views.window, name="window"),
    path("windows/<int:pk>/end/", calendar_views.window_end, name="window_end"),
    path("freezes/", views.freeze_list, name="freezes"),
    path("freezes/<int:pk>/lift/", views.freeze_lift, name="freeze_lift"),
]
