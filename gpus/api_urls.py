from __future__ import annotations

from django.urls import path
from rest_framework.routers import SimpleRouter

from gpus.web import (
    api,
    effects_api,
    export_views,
    forecast_api,
    history_api,
    host_api,
    inference_api,
    jobs_api,
    peers_api,
    queue_api,
    source_urls,
)
from gpus.web.checks import api as checks_api
from gpus.web.checks import schedule_api
from gpus.web.cost import api as cost_api
from gpus.web.cost import statement_api, team_api
from gpus.web.starts import api as starts_api
from gpus.web.training import api as training_api

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("gpus/devices", api.GpuViewSet, basename="gpu")
router.register("gpus/paces", peers_api.PaceViewSet, basename="gpu-pace")
router.register("gpus/jobs", jobs_api.GpuJobViewSet, basename="gpu-job")
router.register("gpus/waits", queue_api.WorkloadWaitViewSet, basename="gpu-wait")
router.register("gpus/starts", starts_api.PodStartViewSet, basename="gpu-start")
router.register("gpus/effects", effects_api.StudyViewSet, basename="gpu-effect")
router.register("gpus/effects/<uuid:rollout_pk>/nodes", effects_api.StudyNodeViewSet, basename="gpu-effect-node")
router.register("gpus/check-runs", checks_api.CheckRunViewSet, basename="gpu-check-run")
router.register("gpus/check-schedules", schedule_api.CheckScheduleViewSet, basename="gpu-check-schedule")
router.register("gpus/prices", cost_api.GpuPriceViewSet, basename="gpu-price")
router.register("gpus/teams", cost_api.GpuTeamViewSet, basename="gpu-team")
urlpatterns = [
    *source_urls.urlpatterns,
    path("gpus/summary", api.SummaryView.as_view(), name="gpu-summary"),
    path("gpus/held-idle", api.HeldIdleView.as_view(), name="gpu-held-idle"),
    path("gpus/held-idle/export", api.HeldIdleExportView.as_view(), name="gpu-held-idle-export"),
    path("gpus/bands", history_api.BandsView.as_view(), name="gpu-bands"),
    path("gpus/usage", history_api.UsageView.as_view(), name="gpu-usage"),
    path("gpus/history", history_api.DeviceHistoryView.as_view(), name="gpu-history"),
    path("gpus/plans/<uuid:pk>/forecast", forecast_api.StudyForecastView.as_view(), name="gpu-plan-forecast"),
    path("gpus/nodes/<int:pk>/host", host_api.NodeHostView.as_view(), name="gpu-node-host"),
    path("gpus/jobs/<int:pk>/hosts", host_api.JobHostsView.as_view(), name="gpu-job-hosts"),
    path("gpus/queues", queue_api.QueuesView.as_view(), name="gpu-queues"),
    path("gpus/queues/reclaim", queue_api.ReclaimView.as_view(), name="gpu-queues-reclaim"),
    path("gpus/starts/summary", starts_api.StartSummaryView.as_view(), name="gpu-starts-summary"),
    path("gpus/inference", inference_api.InferenceView.as_view(), name="gpu-inference"),
    path("gpus/jobs/<int:pk>/inference", inference_api.JobInferenceView.as_view(), name="gpu-job-inference"),
    path("gpus/jobs/<int:pk>/training", training_api.JobTrainingView.as_view(), name="gpu-job-training"),
    path("gpus/prometheus-rule", export_views.PrometheusRule.as_view(), name="gpu-prometheus-rule"),
    path("gpus/grafana-dashboard", export_views.GrafanaDashboard.as_view(), name="gpu-grafana-dashboard"),
    path("gpus/checks", checks_api.ChecksView.as_view(), name="gpu-checks"),
    path("gpus/checks/<slug:name>/image", checks_api.CheckImageView.as_view(), name="gpu-check-image"),
    path("gpus/statement", statement_api.StatementView.as_view(), name="gpu-statement"),
    path("gpus/statement/lines", statement_api.StatementLinesView.as_view(), name="gpu-statement-lines"),
    path("gpus/statement/export", statement_api.StatementExportView.as_view(), name="gpu-statement-export"),
    path("gpus/teams/<int:pk>/week", team_api.TeamWeekView.as_view(), name="gpu-team-week"),
    path("gpus/team-rules", cost_api.TeamRulesView.as_view(), name="gpu-team-rules"),
    path("gpus/team-rules/preview", cost_api.TeamRulesPreviewView.as_view(), name="gpu-team-rules-preview"),
    *router.urls,
]
