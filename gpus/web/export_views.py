"""The alerts as files for people's own Prometheus and Grafana, and the same over REST."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_GET
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from accounts.models import User
from clusters.models import Cluster
from clusters.reports.selectors import clusters_visible_to
from common.api import ApiView
from common.hooks import Panel
from common.requests import UserApiRequest, UserRequest
from gpus.alerts import export
from gpus.alerts.export import ScrapeSettings

HONORS = {"": False, "false": False, "true": True}


def panel(request: HttpRequest) -> Iterable[Panel]:
    """Yield the panel of the alert rules page that links the rules' export."""
    yield Panel("gpus/_alert_export.html", {"cluster": request.GET.get("cluster", "")})


def _place(user: User, name: str) -> UUID | None:
    cluster: Cluster | None = get_object_or_404(clusters_visible_to(user), name=name) if name else None
    return cluster.pk if cluster else None


def _file(text: str, name: str, kind: str) -> HttpResponse:
    answer = HttpResponse(text, content_type=f"{kind}; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


@require_GET
@login_required
def rule_file(request: UserRequest) -> HttpResponse:
    """`form=plain`: a rules file of Prometheus itself; else an object of the Prometheus Operator."""
    way = ScrapeSettings(HONORS.get(request.GET.get("honor_labels", ""), False))
    place = _place(request.user, request.GET.get("cluster", ""))
    if request.GET.get("form") == "plain":
        text = export.as_yaml({"groups": export.groups(way, place)})
        return _file(text, "setpoint-rules.yaml", "application/yaml")
    text = export.as_yaml(export.prometheus_rule(way, place))
    return _file(text, "setpoint-prometheusrule.yaml", "application/yaml")


@require_GET
@login_required
def dashboard_file(request: UserRequest) -> HttpResponse:
    way = ScrapeSettings(HONORS.get(request.GET.get("honor_labels", ""), False))
    dashboard = export.dashboard(way, _place(request.user, request.GET.get("cluster", "")))
    return _file(json.dumps(dashboard, indent=2), "setpoint-grafana.json", "application/json")


_PARAMETERS = [
    OpenApiParameter("cluster", str, description="A cluster's name: with what is set for it. Else, for everywhere."),
    OpenApiParameter("honor_labels", bool, description="Whether the scrape honors labels; by default it does not."),
]


class _Exported(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    def checked_parameters(self) -> tuple[ScrapeSettings, UUID | None]:
        params = self.request.query_params
        wrong = {name: ["There is no such parameter."] for name in set(params) - {"cluster", "honor_labels", "format"}}
        if params.get("honor_labels", "").lower() not in HONORS:
            wrong["honor_labels"] = ["Write true or false."]
        if wrong:
            raise ValidationError(wrong)
        way = ScrapeSettings(HONORS[params.get("honor_labels", "").lower()])
        try:
            return way, _place(self.request.user, params.get("cluster", ""))
        except Http404 as error:  # a parameter, not the address, names what is not there
            raise ValidationError({"cluster": ["There is no cluster of that name that you may see."]}) from error


class PrometheusRule(_Exported):
    @extend_schema(operation_id="gpus_prometheus_rule", parameters=_PARAMETERS, responses=dict[str, Any])
    def get(self, request: UserApiRequest) -> Response:
        """The alerts as a PrometheusRule; JSON is YAML, so kubectl takes it as it is."""
        return Response(export.prometheus_rule(*self.checked_parameters()))


class GrafanaDashboard(_Exported):
    @extend_schema(operation_id="gpus_grafana_dashboard", parameters=_PARAMETERS, responses=dict[str, Any])
    def get(self, request: UserApiRequest) -> Response:
        """A dashboard to import: what the GPUs do, and each alert's subjects."""
        return Response(export.dashboard(*self.checked_parameters()))
