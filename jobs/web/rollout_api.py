"""REST of rollouts, their steps and events, over the same services and selectors as the pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import mixins
from rest_framework.decorators import action
from rest_framework.response import Response

from accounts.access import freshness
from accounts.models import User
from common.api import ApiViewSet, accepted
from common.bodies import without_body
from common.errors import Invalid
from common.requests import UserApiRequest
from jobs import tasks
from jobs.approvals import glass_reviews
from jobs.models import Rollout, Step, StepEvent
from jobs.reports import selectors
from jobs.rollouts import rollout_actions
from jobs.rollouts.step_actions import StepOffers
from jobs.web import filters, rollout_serializers
from jobs.web.request_bodies import read_body


class RolloutViewSet(mixins.ListModelMixin, ApiViewSet):
    """Rollouts: the carrying out of approved plans."""

    request: UserApiRequest
    queryset = Rollout.objects.none()
    serializer_class = rollout_serializers.RolloutOut
    lookup_value_converter = "uuid"
    filterset_class = filters.RolloutFilter
    orders = filters.ROLLOUT_ORDERS
    is_versioned = True
    scope_for = {
        "GET": "read",
        "pause": "apply",
        "resume": "apply",
        "go_on": "apply",
        "abort": "apply",
        "retry_failed": "apply",
        "skip": "apply",
        "revert": "apply",
        "review_break_glass": "approve",
    }

    def get_queryset(self) -> QuerySet[Rollout]:
        rows = selectors.visible_rollouts(self.request.user).prefetch_related("glass__reviews__person")
        return filters.sortable_rollouts(rows) if self.action == "list" else rows

    def get_serializer_class(self) -> type[Any]:
        return rollout_serializers.RolloutOut if self.action == "list" else rollout_serializers.RolloutDetailOut

    def _act(self, verb: Callable[..., Rollout], accepts: type[Any] | None = None) -> Response:
        rollout = self.get_object()
        fields = read_body(accepts, self.request) if accepts else {}
        if (pk := fields.pop("step", None)) is not None:
            fields["step"] = _step_of(rollout, pk)
        verb(rollout, by=self.request.user, **fields)
        tasks.wake(rollout.pk)
        data = rollout_serializers.RolloutDetailOut(
            self.get_queryset().get(pk=rollout.pk), context=self.get_serializer_context()
        ).data
        return accepted(data, f"/api/v1/rollouts/{rollout.pk}")

    @extend_schema(request=None, responses={202: rollout_serializers.RolloutDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/pause")
    @without_body
    def pause(self, request: UserApiRequest, pk: object) -> Response:
        return self._act(rollout_actions.pause)

    @extend_schema(request=None, responses={202: rollout_serializers.RolloutDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/resume")
    @without_body
    def resume(self, request: UserApiRequest, pk: object) -> Response:
        return self._act(rollout_actions.resume)

    @extend_schema(request=None, responses={202: rollout_serializers.RolloutDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/go-on")
    @without_body
    def go_on(self, request: UserApiRequest, pk: object) -> Response:
        """Starts the next batch in spite of the gate, or the control's time, that holds it."""
        return self._act(rollout_actions.go_on)

    @extend_schema(request=rollout_serializers.AbortIn, responses={202: rollout_serializers.RolloutDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/abort")
    def abort(self, request: UserApiRequest, pk: object) -> Response:
        return self._act(rollout_actions.abort, rollout_serializers.AbortIn)

    @extend_schema(request=rollout_serializers.StepIn, responses={202: rollout_serializers.RolloutDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/retry-failed")
    def retry_failed(self, request: UserApiRequest, pk: object) -> Response:
        return self._act(rollout_actions.retry_failed, rollout_serializers.StepIn)

    @extend_schema(request=rollout_serializers.SkipIn, responses={202: rollout_serializers.RolloutDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/skip")
    def skip(self, request: UserApiRequest, pk: object) -> Response:
        return self._act(rollout_actions.skip, rollout_serializers.SkipIn)

    @extend_schema(request=rollout_serializers.RevertIn, responses={202: rollout_serializers.RolloutDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/revert")
    def revert(self, request: UserApiRequest, pk: object) -> Response:
        return self._act(rollout_actions.revert, rollout_serializers.RevertIn)

    @extend_schema(request=rollout_serializers.GlassReviewIn, responses={202: rollout_serializers.RolloutDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/review-break-glass")
    def review_break_glass(self, request: UserApiRequest, pk: object) -> Response:
        """Review a start by break-glass, as one who could have approved its plan. Two people other than its starter do.

        Where approving the plan takes a recent log-in (`fresh-login-needed`), a token cannot.
        """
        return self._act(self._review, rollout_serializers.GlassReviewIn)

    def _review(self, rollout: Rollout, *, by: User, verdict: str, text: str) -> Rollout:
        proved_at = freshness.proved_at(self.request)
        glass_reviews.review(rollout, by=by, verdict=verdict, text=text, proved_at=proved_at)
        return rollout


def _step_of(rollout: Rollout, pk: UUID) -> Step:
    step = Step.objects.filter(rollout=rollout, pk=pk).first()
    if step is None:
        raise Invalid(f"{rollout} has no such step.", fields={"step": [f"Not a step of {rollout}."]})
    return step


class _RolloutPartViewSet(mixins.ListModelMixin, ApiViewSet):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    def rollout(self) -> Rollout:
        return get_object_or_404(selectors.visible_rollouts(self.request.user), pk=self.kwargs["rollout_pk"])


class StepViewSet(_RolloutPartViewSet):
    """The steps of one rollout: one a node, one a component, one a group of policy objects."""

    scope_for = {"GET": "read", "keep_cordoned": "apply"}
    queryset = Step.objects.none()
    serializer_class = rollout_serializers.StepOut
    filterset_class = filters.StepFilter
    orders = filters.STEP_ORDERS

    def get_queryset(self) -> QuerySet[Step]:
        if getattr(self, "swagger_fake_view", False):
            return Step.objects.none()
        rows = Step.objects.filter(rollout=self.rollout()).order_by("batch", "position", "pk")
        return filters.sortable_steps(rows)

    def get_serializer_context(self) -> dict[str, Any]:
        context = dict(super().get_serializer_context())
        if not getattr(self, "swagger_fake_view", False):
            context["offers"] = StepOffers(self.rollout(), self.request.user)
        return context

    @extend_schema(request=None, responses={202: rollout_serializers.StepOut})
    @action(detail=True, methods=["post"], url_path="actions/keep-cordoned")
    @without_body
    def keep_cordoned(self, request: UserApiRequest, rollout_pk: object, pk: object) -> Response:
        """Keep the node cordoned when its step gives it back; from then on the cordon is yours."""
        step = self.get_object()
        rollout = rollout_actions.keep_cordoned(self.rollout(), step, by=request.user)
        data = rollout_serializers.StepOut(
            self.get_queryset().get(pk=step.pk), context=self.get_serializer_context()
        ).data
        return accepted(data, f"/api/v1/rollouts/{rollout.pk}/steps/{step.pk}")


class EventViewSet(_RolloutPartViewSet):
    """The log of one rollout, the oldest first; follow it with `?start=<last id>`."""

    queryset = StepEvent.objects.none()
    serializer_class = rollout_serializers.EventOut
    ordering_fields = ("id",)

    def get_queryset(self) -> QuerySet[StepEvent]:
        if getattr(self, "swagger_fake_view", False):
            return StepEvent.objects.none()
        return StepEvent.objects.filter(rollout=self.rollout()).select_related("step").order_by("pk")
