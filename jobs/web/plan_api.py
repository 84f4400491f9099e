"""REST of plans, over the same services and selectors as the pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins
from rest_framework.decorators import action
from rest_framework.response import Response

from accounts.access import freshness
from accounts.permissions import restrict
from clusters.models import Pool
from common.api import REPLAYED, ApiViewSet, accepted, created
from common.bodies import without_body
from common.errors import Invalid
from common.requests import UserApiRequest
from jobs import tasks
from jobs.approvals import glass, plan_actions, reviews
from jobs.approvals.tickets import references
from jobs.calendars import targets
from jobs.forecast.strategy import parse
from jobs.models import Plan, PlanComponent, PlanNode
from jobs.planning import plan_requests
from jobs.reports import selectors, window_forecasts
from jobs.rollouts import rollout_actions
from jobs.web import component_serializers, filters, plan_serializers, rollout_serializers
from jobs.web.calendars import fit_serializers
from jobs.web.plan_requests.serializers import PlanRequestOut
from jobs.web.request_bodies import read_body
from jobs.web.tickets.serializers import ChangeRecordIn
from profiles.services import editing

RESPOND_ASYNC = "respond-async"
"""RFC 7240: the answer is not waited for."""


class PlanViewSet(mixins.ListModelMixin, ApiViewSet):
    """Plans: the frozen difference between a revision and the nodes of a pool."""

    request: UserApiRequest
    queryset = Plan.objects.none()
    serializer_class = plan_serializers.PlanOut
    lookup_value_converter = "uuid"
    filterset_class = filters.PlanFilter
    orders = filters.PLAN_ORDERS
    is_versioned = True
    scope_for = {
        "GET": "read",
        "create": "plan",
        **plan_actions.TOKEN_SCOPE_FOR,
        "ask": plan_actions.TOKEN_SCOPE_FOR["request"],
        "change_record": "plan",
        "request_changes": plan_actions.TOKEN_SCOPE_FOR["request-changes"],
    }

    def get_queryset(self) -> QuerySet[Plan]:
        # What a caller may do depends on the authors and on one's own verdicts: read once for a whole page.
        rows = selectors.visible_plans(self.request.user).prefetch_related("revision__authors", "approvals__person")
        return filters.sortable_plans(rows) if self.action == "list" else rows

    def get_serializer_class(self) -> type[Any]:
        return plan_serializers.PlanOut if self.action == "list" else plan_serializers.PlanDetailOut

    @extend_schema(
        request=plan_serializers.PlanIn,
        responses={201: plan_serializers.PlanDetailOut, 202: PlanRequestOut},
        parameters=[OpenApiParameter("Prefer", str, OpenApiParameter.HEADER, description="`respond-async`: 202.")],
    )
    def create(self, request: UserApiRequest) -> Response:
        """Make a plan. For a pool of many nodes, or with `Prefer: respond-async`, a worker makes it: 202 then answers,
        and its Location says how far it is, and which plan came of it."""
        body = read_body(plan_serializers.PlanIn, request)
        pool = restrict(Pool.objects.select_related("cluster"), request.user).filter(pk=body["pool"]).first()
        revision = editing.meant(body["revision"])
        missing = {
            name: ["It does not exist, or is outside your permissions."]
            for name, referent in (("pool", pool), ("revision", revision))
            if referent is None
        }
        if pool is None or revision is None:
            raise Invalid("The plan cannot be made.", fields=missing)
        strategy = parse(body.get("strategy"))
        is_async = RESPOND_ASYNC in {word.strip() for word in request.headers.get("Prefer", "").lower().split(",")}
        made = plan_requests.submit(
            key=request.headers.get("Idempotency-Key", ""),
            pool=pool,
            revision=revision,
            strategy=strategy,
            by=request.user,
            message=body["message"],
            within=0 if is_async else None,
        )
        if isinstance(made, plan_requests.PendingPlan):
            tasks.wake_planning()
            answer = accepted(PlanRequestOut(made.request).data, f"/api/v1/plan-requests/{made.request.pk}")
            if is_async:
                answer["Preference-Applied"] = RESPOND_ASYNC
        else:
            plan = made.plan
            plan.refresh_from_db()
            answer = created(self._detail(plan), f"/api/v1/plans/{plan.pk}", plan)
        if made.is_repeated:
            answer[REPLAYED] = "true"
        return answer

    @extend_schema(responses={200: fit_serializers.WindowForecastOut})
    @action(detail=True, methods=["get"])
    def windows(self, request: UserApiRequest, pk: object) -> Response:
        """Forecast which nodes fit into which window of the target, and the end, if the plan started now."""
        plan = self.get_object()
        calendar = targets.entries_of(plan.cluster, plan.pool_id)
        freeze = targets.active_freeze(plan.cluster, plan.pool_id, calendar)
        forecast = window_forecasts.window_forecast(plan, calendar, freeze)
        return Response(fit_serializers.WindowForecastOut(forecast).data)

    def _detail(self, plan: Plan) -> Any:
        return plan_serializers.PlanDetailOut(plan, context=self.get_serializer_context()).data

    def _done(self, plan: Plan) -> Response:
        plan = self.get_queryset().get(pk=plan.pk)
        return accepted(self._detail(plan), f"/api/v1/plans/{plan.pk}")

    @extend_schema(request=plan_serializers.CommentIn, responses={202: plan_serializers.PlanDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/request", url_name="request")
    def ask(self, request: UserApiRequest, pk: object) -> Response:
        plan = self.get_object()
        return self._done(
            reviews.request(plan, by=request.user, message=read_body(plan_serializers.CommentIn, request)["comment"])
        )

    @extend_schema(request=plan_serializers.ApproveIn, responses={202: plan_serializers.PlanDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/approve")
    def approve(self, request: UserApiRequest, pk: object) -> Response:
        """Approve a plan, as it was read.

        One that destroys objects asks for `consent`: its `summary.consent`, typed again. Where a recent log-in is
        asked for (`fresh-login-needed`), a token cannot approve.
        """
        plan = self.get_object()
        proved_at, body = freshness.proved_at(request), read_body(plan_serializers.ApproveIn, request)
        return self._done(reviews.approve(plan, by=request.user, proved_at=proved_at, **body))

    @extend_schema(request=plan_serializers.VerdictIn, responses={202: plan_serializers.PlanDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/request-changes")
    def request_changes(self, request: UserApiRequest, pk: object) -> Response:
        """Send the plan back to its author; the comment is required."""
        plan = self.get_object()
        return self._done(
            reviews.request_changes(plan, by=request.user, **read_body(plan_serializers.VerdictIn, request))
        )

    @extend_schema(request=plan_serializers.VerdictIn, responses={202: plan_serializers.PlanDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/reject")
    def reject(self, request: UserApiRequest, pk: object) -> Response:
        plan = self.get_object()
        return self._done(reviews.reject(plan, by=request.user, **read_body(plan_serializers.VerdictIn, request)))

    @extend_schema(request=None, responses={202: plan_serializers.PlanDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/retract")
    @without_body
    def retract(self, request: UserApiRequest, pk: object) -> Response:
        return self._done(reviews.retract(self.get_object(), by=request.user))

    @extend_schema(request=plan_serializers.CommentIn, responses={202: plan_serializers.PlanDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/withdraw")
    def withdraw(self, request: UserApiRequest, pk: object) -> Response:
        plan = self.get_object()
        return self._done(reviews.withdraw(plan, by=request.user, **read_body(plan_serializers.CommentIn, request)))

    @extend_schema(request=ChangeRecordIn, responses={202: plan_serializers.PlanDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/change-record")
    def change_record(self, request: UserApiRequest, pk: object) -> Response:
        """Enter the plan's change record in the ticket system. It is no part of what is approved."""
        plan = self.get_object()
        return self._done(references.enter(plan, by=request.user, **read_body(ChangeRecordIn, request)))

    @extend_schema(request=plan_serializers.StartIn, responses={202: rollout_serializers.RolloutDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/start")
    def start(self, request: UserApiRequest, pk: object) -> Response:
        """Start an approved plan. By break-glass, without approval, a person starts it on its page only."""
        plan = self.get_object()
        if isinstance(request.data, Mapping) and "break_glass" in request.data:
            raise glass.NeverOverRest
        rollout = rollout_actions.start(plan, by=request.user, at=read_body(plan_serializers.StartIn, request)["at"])
        tasks.wake(rollout.pk)
        data = rollout_serializers.RolloutDetailOut(rollout, context=self.get_serializer_context()).data
        return accepted(data, f"/api/v1/rollouts/{rollout.pk}")


class PlanNodeViewSet(mixins.ListModelMixin, ApiViewSet):
    """The nodes of one plan: in which batch, with which change set, or why left out."""

    request: UserApiRequest
    queryset = PlanNode.objects.none()
    serializer_class = plan_serializers.PlanNodeOut
    ordering_fields = ("position", "name")
    scope_for = {"GET": "read"}

    def get_queryset(self) -> QuerySet[PlanNode]:
        if getattr(self, "swagger_fake_view", False):
            return PlanNode.objects.none()
        plan = get_object_or_404(selectors.visible_plans(self.request.user), pk=self.kwargs["plan_pk"])
        return PlanNode.objects.filter(plan=plan).order_by("batch", "position", "pk")


class PlanComponentViewSet(mixins.ListModelMixin, ApiViewSet):
    """The components and policy objects of one plan, in their order: what is done, object by object, or why nothing.

    `kind` is `release` for a component, and `policies` for a group of policy objects.
    """

    request: UserApiRequest
    queryset = PlanComponent.objects.none()
    serializer_class = component_serializers.PlanComponentOut
    ordering_fields = ("position", "component")
    scope_for = {"GET": "read"}

    def get_queryset(self) -> QuerySet[PlanComponent]:
        if getattr(self, "swagger_fake_view", False):
            return PlanComponent.objects.none()
        plan = get_object_or_404(selectors.visible_plans(self.request.user), pk=self.kwargs["plan_pk"])
        return PlanComponent.objects.filter(plan=plan).order_by("position", "pk")
