"""REST over the same services and selectors as the pages: views translate, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import mixins
from rest_framework.decorators import action
from rest_framework.response import Response

from accounts.people.pending import Proposed
from accounts.permissions import restrict
from accounts.web.pending_api import PendingChangeOut, proposed
from clusters.models import Cluster, Pool
from common.api import ApiViewSet, accepted, created, expected_version, with_etag
from common.bodies import without_body
from common.errors import Invalid
from common.requests import UserApiRequest
from jobs import tasks
from jobs.approvals import plan_actions, reviews, rulebook
from jobs.forecast.strategy import parse
from jobs.models import ApprovalRule, Freeze, Plan, PlanComponent, PlanNode, Rollout, Step, StepEvent
from jobs.planning import planner
from jobs.reports import selectors
from jobs.rollouts import freezes, rollout_actions
from jobs.rollouts.step_actions import StepOffers
from jobs.web import filters, serializers
from profiles.services import editing


def _read(serializer: type[Any], request: UserApiRequest) -> dict[str, Any]:
    form = serializer(data=request.data)
    form.is_valid(raise_exception=True)
    return dict(form.validated_data)


class PlanViewSet(mixins.ListModelMixin, ApiViewSet):
    """Plans: the frozen difference between a revision and the nodes of a pool."""

    request: UserApiRequest
    queryset = Plan.objects.none()
    serializer_class = serializers.PlanOut
    lookup_value_converter = "uuid"
    filterset_class = filters.PlanFilter
    orders = filters.PLAN_ORDERS
    is_versioned = True
    scope_for = {
        "GET": "read",
        "create": "plan",
        **plan_actions.TOKEN_SCOPE_FOR,
        "ask": plan_actions.TOKEN_SCOPE_FOR["request"],
        "request_changes": plan_actions.TOKEN_SCOPE_FOR["request-changes"],
    }

    def get_queryset(self) -> QuerySet[Plan]:
        # What a caller may do depends on the authors and on one's own verdicts: read once for a whole page.
        rows = selectors.visible_plans(self.request.user).prefetch_related("revision__authors", "approvals__person")
        return filters.sortable_plans(rows) if self.action == "list" else rows

    def get_serializer_class(self) -> type[Any]:
        return serializers.PlanOut if self.action == "list" else serializers.PlanDetailOut

    @extend_schema(request=serializers.PlanIn, responses={201: serializers.PlanDetailOut})
    def create(self, request: UserApiRequest) -> Response:
        wanted = _read(serializers.PlanIn, request)
        pool = restrict(Pool.objects.select_related("cluster"), request.user).filter(pk=wanted["pool"]).first()
        revision = editing.meant(wanted["revision"])
        missing = {
            name: ["There is none like this that you can see."]
            for name, found in (("pool", pool), ("revision", revision))
            if found is None
        }
        if pool is None or revision is None:
            raise Invalid("The plan cannot be made.", fields=missing)
        strategy = parse(wanted.get("strategy"))
        plan = planner.make(pool=pool, revision=revision, strategy=strategy, by=request.user, message=wanted["message"])
        plan.refresh_from_db()
        return created(self._one(plan), f"/api/v1/plans/{plan.pk}", plan)

    def _one(self, plan: Plan) -> Any:
        return serializers.PlanDetailOut(plan, context=self.get_serializer_context()).data

    def _done(self, plan: Plan) -> Response:
        plan = self.get_queryset().get(pk=plan.pk)
        return accepted(self._one(plan), f"/api/v1/plans/{plan.pk}")

    @extend_schema(request=serializers.CommentIn, responses={202: serializers.PlanDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/request", url_name="request")
    def ask(self, request: UserApiRequest, pk: object) -> Response:
        plan = self.get_object()
        return self._done(
            reviews.request(plan, by=request.user, message=_read(serializers.CommentIn, request)["comment"])
        )

    @extend_schema(request=serializers.ApproveIn, responses={202: serializers.PlanDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/approve")
    def approve(self, request: UserApiRequest, pk: object) -> Response:
        """Approve a plan, as it was read.

        One that destroys objects asks for `consent`: its `summary.consent`, typed again.
        """
        plan = self.get_object()
        return self._done(reviews.approve(plan, by=request.user, **_read(serializers.ApproveIn, request)))

    @extend_schema(request=serializers.VerdictIn, responses={202: serializers.PlanDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/request-changes")
    def request_changes(self, request: UserApiRequest, pk: object) -> Response:
        """Send the plan back to its author; the comment is required."""
        plan = self.get_object()
        return self._done(reviews.request_changes(plan, by=request.user, **_read(serializers.VerdictIn, request)))

    @extend_schema(request=serializers.VerdictIn, responses={202: serializers.PlanDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/reject")
    def reject(self, request: UserApiRequest, pk: object) -> Response:
        plan = self.get_object()
        return self._done(reviews.reject(plan, by=request.user, **_read(serializers.VerdictIn, request)))

    @extend_schema(request=None, responses={202: serializers.PlanDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/retract")
    @without_body
    def retract(self, request: UserApiRequest, pk: object) -> Response:
        return self._done(reviews.retract(self.get_object(), by=request.user))

    @extend_schema(request=serializers.CommentIn, responses={202: serializers.PlanDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/withdraw")
    def withdraw(self, request: UserApiRequest, pk: object) -> Response:
        plan = self.get_object()
        return self._done(reviews.withdraw(plan, by=request.user, **_read(serializers.CommentIn, request)))

    @extend_schema(request=serializers.StartIn, responses={202: serializers.RolloutDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/start")
    def start(self, request: UserApiRequest, pk: object) -> Response:
        plan = self.get_object()
        rollout = rollout_actions.start(plan, by=request.user, at=_read(serializers.StartIn, request)["at"])
        tasks.wake(rollout.pk)
        data = serializers.RolloutDetailOut(rollout, context=self.get_serializer_context()).data
        return accepted(data, f"/api/v1/rollouts/{rollout.pk}")


class PlanNodeViewSet(mixins.ListModelMixin, ApiViewSet):
    """The nodes of one plan: in which batch, with which change set, or why left out."""

    request: UserApiRequest
    queryset = PlanNode.objects.none()
    serializer_class = serializers.PlanNodeOut
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
    serializer_class = serializers.PlanComponentOut
    ordering_fields = ("position", "component")
    scope_for = {"GET": "read"}

    def get_queryset(self) -> QuerySet[PlanComponent]:
        if getattr(self, "swagger_fake_view", False):
            return PlanComponent.objects.none()
        plan = get_object_or_404(selectors.visible_plans(self.request.user), pk=self.kwargs["plan_pk"])
        return PlanComponent.objects.filter(plan=plan).order_by("position", "pk")


class RolloutViewSet(mixins.ListModelMixin, ApiViewSet):
    """Rollouts: the carrying out of approved plans."""

    request: UserApiRequest
    queryset = Rollout.objects.none()
    serializer_class = serializers.RolloutOut
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
    }

    def get_queryset(self) -> QuerySet[Rollout]:
        rows = selectors.visible_rollouts(self.request.user)
        return filters.sortable_rollouts(rows) if self.action == "list" else rows

    def get_serializer_class(self) -> type[Any]:
        return serializers.RolloutOut if self.action == "list" else serializers.RolloutDetailOut

    def _act(self, verb: Callable[..., Rollout], accepts: type[Any] | None = None) -> Response:
        rollout = self.get_object()
        fields = _read(accepts, self.request) if accepts else {}
        if (pk := fields.pop("step", None)) is not None:
            fields["step"] = _step_of(rollout, pk)
        verb(rollout, by=self.request.user, **fields)
        tasks.wake(rollout.pk)
        data = serializers.RolloutDetailOut(
            self.get_queryset().get(pk=rollout.pk), context=self.get_serializer_context()
        ).data
        return accepted(data, f"/api/v1/rollouts/{rollout.pk}")

    @extend_schema(request=None, responses={202: serializers.RolloutDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/pause")
    @without_body
    def pause(self, request: UserApiRequest, pk: object) -> Response:
        return self._act(rollout_actions.pause)

    @extend_schema(request=None, responses={202: serializers.RolloutDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/resume")
    @without_body
    def resume(self, request: UserApiRequest, pk: object) -> Response:
        return self._act(rollout_actions.resume)

    @extend_schema(request=None, responses={202: serializers.RolloutDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/go-on")
    @without_body
    def go_on(self, request: UserApiRequest, pk: object) -> Response:
        """Starts the next batch in spite of the gate, or the control's time, that holds it."""
        return self._act(rollout_actions.go_on)

    @extend_schema(request=serializers.AbortIn, responses={202: serializers.RolloutDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/abort")
    def abort(self, request: UserApiRequest, pk: object) -> Response:
        return self._act(rollout_actions.abort, serializers.AbortIn)

    @extend_schema(request=serializers.StepIn, responses={202: serializers.RolloutDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/retry-failed")
    def retry_failed(self, request: UserApiRequest, pk: object) -> Response:
        return self._act(rollout_actions.retry_failed, serializers.StepIn)

    @extend_schema(request=serializers.SkipIn, responses={202: serializers.RolloutDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/skip")
    def skip(self, request: UserApiRequest, pk: object) -> Response:
        return self._act(rollout_actions.skip, serializers.SkipIn)

    @extend_schema(request=serializers.RevertIn, responses={202: serializers.RolloutDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/revert")
    def revert(self, request: UserApiRequest, pk: object) -> Response:
        return self._act(rollout_actions.revert, serializers.RevertIn)


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
    serializer_class = serializers.StepOut
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

    @extend_schema(request=None, responses={202: serializers.StepOut})
    @action(detail=True, methods=["post"], url_path="actions/keep-cordoned")
    @without_body
    def keep_cordoned(self, request: UserApiRequest, rollout_pk: object, pk: object) -> Response:
        """Keep the node cordoned when its step gives it back; from then on the cordon is yours."""
        step = self.get_object()
        rollout = rollout_actions.keep_cordoned(self.rollout(), step, by=request.user)
        data = serializers.StepOut(self.get_queryset().get(pk=step.pk), context=self.get_serializer_context()).data
        return accepted(data, f"/api/v1/rollouts/{rollout.pk}/steps/{step.pk}")


class EventViewSet(_RolloutPartViewSet):
    """The log of one rollout, the oldest first; follow it with `?start=<last id>`."""

    queryset = StepEvent.objects.none()
    serializer_class = serializers.EventOut
    ordering_fields = ("id",)

    def get_queryset(self) -> QuerySet[StepEvent]:
        if getattr(self, "swagger_fake_view", False):
            return StepEvent.objects.none()
        return StepEvent.objects.filter(rollout=self.rollout()).select_related("step").order_by("pk")


class RuleViewSet(mixins.ListModelMixin, ApiViewSet):
    """Approval rules. All that fit a plan apply, so adding one never makes approval easier."""

    request: UserApiRequest
    queryset = ApprovalRule.objects.none()
    serializer_class = serializers.RuleOut
    lookup_value_converter = "int"
    ordering_fields = ("name", "approvers", "changed_at")
    is_versioned = True
    scope_for = {"GET": "read", "create": "admin", "partial_update": "admin", "destroy": "admin"}

    def get_queryset(self) -> QuerySet[ApprovalRule]:
        return selectors.visible_rules(self.request.user)

    @extend_schema(request=serializers.RuleIn, responses={201: serializers.RuleOut})
    def create(self, request: UserApiRequest) -> Response:
        row = rulebook.create(by=request.user, **self._wanted(_read(serializers.RuleIn, request)))
        return created(serializers.RuleOut(row).data, f"/api/v1/approval-rules/{row.pk}", row)

    @extend_schema(
        request=serializers.RuleIn(partial=True), responses={200: serializers.RuleOut, 202: PendingChangeOut}
    )
    def partial_update(self, request: UserApiRequest, pk: object) -> Response:
        """202: what would ask for less waits for a second administrator's consent."""
        row = self.get_object()
        version = expected_version(request, row)
        form = serializers.RuleIn(data=request.data, partial=True)
        form.is_valid(raise_exception=True)
        done = rulebook.change(row, by=request.user, version=version, **self._wanted(form.validated_data))
        if isinstance(done, Proposed):
            return proposed(done)
        row = done
        return with_etag(Response(serializers.RuleOut(row).data), row)

    @extend_schema(responses={202: PendingChangeOut, 204: None})
    def destroy(self, request: UserApiRequest, pk: object) -> Response:
        """202: a rule that holds is deleted only with a second administrator's consent."""
        row = self.get_object()
        done = rulebook.delete(row, by=request.user, version=expected_version(request, row))
        return proposed(done) if isinstance(done, Proposed) else Response(status=204)

    def _wanted(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The cluster as an object. Raises Invalid."""
        out = dict(fields)
        if out.get("cluster") is not None:
            out["cluster"] = (
                restrict(Cluster.objects.all(), self.request.user, prefix="").filter(pk=out["cluster"]).first()
            )
            if out["cluster"] is None:
                raise Invalid(
                    "The rule is not valid.", fields={"cluster": ["There is none like this that you can see."]}
                )
        return out


class FreezeViewSet(mixins.ListModelMixin, ApiViewSet):
    """Freezes: while one stands, no step starts."""

    request: UserApiRequest
    queryset = Freeze.objects.none()
    serializer_class = serializers.FreezeOut
    lookup_value_converter = "int"
    ordering_fields = ("created_at",)
    scope_for = {"GET": "read", "create": "apply", "lift": "apply"}

    def get_queryset(self) -> QuerySet[Freeze]:
        return selectors.visible_freezes(self.request.user)

    @extend_schema(request=serializers.FreezeIn, responses={201: serializers.FreezeOut})
    def create(self, request: UserApiRequest) -> Response:
        wanted = _read(serializers.FreezeIn, request)
        cluster = None
        if wanted["cluster"] is not None:
            cluster = restrict(Cluster.objects.all(), request.user, prefix="").filter(pk=wanted["cluster"]).first()
            if cluster is None:
                raise Invalid(
                    "The freeze cannot be set.", fields={"cluster": ["There is none like this that you can see."]}
                )
        row = freezes.freeze(cluster=cluster, reason=wanted["reason"], until=wanted["until"], by=request.user)
        return created(serializers.FreezeOut(row).data, f"/api/v1/freezes/{row.pk}")

    @extend_schema(request=None, responses={202: serializers.FreezeOut})
    @action(detail=True, methods=["post"], url_path="actions/lift")
    @without_body
    def lift(self, request: UserApiRequest, pk: object) -> Response:
        row = freezes.lift(self.get_object(), by=request.user)
        return accepted(serializers.FreezeOut(row).data, f"/api/v1/freezes/{row.pk}")
