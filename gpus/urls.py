from __future__ import annotations

from django.urls import path

from gpus.web import (
    effects_views,
    export_views,
    host_views,
    inference_views,
    job_views,
    peers_views,
    queue_views,
    source_views,
    views,
)
from gpus.web.checks import schedule_views
from gpus.web.checks import views as check_views
from gpus.web.cost import team_views
from gpus.web.cost import views as cost_views
from gpus.web.starts import views as start_views
from gpus.web.training import views as training_views

app_name = "gpus"
urlpatterns = [
    path("gpus/", views.fleet, name="fleet"),
    path("gpus/jobs/", job_views.jobs, name="jobs"),
    path("gpus/jobs/<int:pk>/", job_views.job, name="job"),
    path("gpus/jobs/<int:pk>/hosts/live/", host_views.job, name="job_hosts"),
    path("gpus/jobs/<int:pk>/inference/live/", inference_views.job, name="job_inference"),
    path("gpus/jobs/<int:pk>/training/live/", training_views.job, name="job_training"),
    path("gpus/inference/", inference_views.inference, name="inference"),
    path("gpus/inference/clusters/<uuid:pk>/live/", inference_views.cluster, name="inference_live"),
    path("gpus/queues/", queue_views.queues, name="queues"),
    path("gpus/queues/clusters/<uuid:pk>/reclaim/live/", queue_views.reclaim, name="reclaim"),
    path("gpus/queues/waits.csv", queue_views.export, {"form": "csv"}, name="waits_csv"),
    path("gpus/queues/waits.json", queue_views.export, {"form": "json"}, name="waits_json"),
    path("gpus/nodes/<int:pk>/host/live/", host_views.node, name="node_host"),
    path("gpus/clusters/<uuid:pk>/jobs/<slug:key>/", job_views.job_of, name="job_of"),
    path("gpus/starts/", start_views.starts, name="starts"),
    path("gpus/slower/", peers_views.slower, name="slower"),
    path("gpus/clusters/<uuid:pk>/", views.cluster, name="cluster"),
    path("gpus/clusters/<uuid:pk>/fit/", views.cluster_fit, name="fit"),
    path("gpus/clusters/<uuid:pk>/source/", source_views.source, name="source"),
    path("gpus/slower/live/", peers_views.live, name="slower_live"),
    path("gpus/slower.csv", peers_views.export, {"form": "csv"}, name="slower_csv"),
    path("gpus/slower.json", peers_views.export, {"form": "json"}, name="slower_json"),
    path("gpus/rollouts/R-<int:number>/starts/live/", effects_views.starts, name="rollout_starts"),
    path("gpus/plans/P-<int:number>/forecast/live/", effects_views.forecast, name="forecast"),
    path("gpus/checks/", check_views.checks, name="checks"),
    path("gpus/checks/<slug:name>/image/", check_views.image, name="check_image"),
    path("gpus/checks/runs/<uuid:pk>/stop/", check_views.stop, name="check_stop"),
    path("gpus/checks/schedules/", schedule_views.add, name="check_schedules"),
    path("gpus/checks/schedules/<int:pk>/", schedule_views.change, name="check_schedule"),
    path("gpus/checks/schedules/<int:pk>/remove/", schedule_views.remove, name="check_schedule_remove"),
    path("gpus/cost/", cost_views.cost, name="cost"),
    path("gpus/cost/statement.csv", cost_views.cost_file, {"form": "csv"}, name="cost_csv"),
    path("gpus/cost/focus.csv", cost_views.cost_file, {"form": "focus"}, name="cost_focus"),
    path("gpus/prices/", cost_views.price_list, name="prices"),
    path("gpus/prices/<int:pk>/withdraw/", cost_views.price_withdraw, name="price_withdraw"),
    path("gpus/teams/", cost_views.team_list, name="teams"),
    path("gpus/teams/rules/", cost_views.team_rules, name="team_rules"),
    path("gpus/teams/<int:pk>/", cost_views.team_change, name="team"),
    path("gpus/teams/<int:pk>/remove/", cost_views.team_remove, name="team_remove"),
    path("team/", team_views.own_teams, name="own_teams"),
    path("team/<int:pk>/", team_views.team_week, name="team_week"),
    path("gpus/alerts/prometheus-rule.yaml", export_views.rule_file, name="rule_file"),
    path("gpus/alerts/grafana.json", export_views.dashboard_file, name="dashboard_file"),
]
