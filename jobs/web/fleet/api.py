"""REST of fleet runs, over the same services and selectors as the pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins
from rest_framework.decorators import action
from rest_framework.response import Response

from common.api import ApiViewSet, accepted, created
from common.bodies import without_body
from common.errors import Invalid
from common.requests import UserApiRequest
from jobs import tasks
from jobs.models import FleetRun, Plan
from jobs.reports import selectors
from jobs.rollouts import fleet_runs
from jobs.rollouts.fleet_runs import WantedRing
from jobs.web.fleet import serializers
from jobs.web.request_bodies import read_body

DETAIL = {202: serializers.FleetRunDetailOut}


class FleetRunViewSet(mixins.ListModelMixin, ApiViewSet):
    """Fleet runs: plans of several pools and clusters that are carried out ring by ring."""

    request: UserApiRequest
    queryset = FleetRun.objects.none()
    serializer_class = serializers.FleetRunOut
    lookup_value_converter = "uuid"
    ordering_fields = ("number", "created_at")
    is_versioned = True
    scope_for = {
        "GET": "read", "create": "plan", "request_approval": "plan", "start": "apply", "hold": "apply",
        "release": "apply", "open_ring": "apply", "leave_out": "apply", "add": "plan", "cancel": "apply",
    }  # fmt: skip

    def get_queryset(self) -> QuerySet[FleetRun]:
        return selectors.visible_fleet_runs(self.request.user)

    def get_serializer_class(self) -> type[Any]:
        return serializers.FleetRunOut if self.action == "list" else serializers.FleetRunDetailOut

    @extend_schema(request=serializers.FleetRunIn, responses={201: serializers.FleetRunDetailOut})
    def create(self, request: UserApiRequest) -> Response:
        body = read_body(serializers.FleetRunIn, request)
        plans = self._plans([pk for ring in body["rings"] for pk in ring["plans"]], "rings")
        wanted = [
            WantedRing(ring["name"], ring["soak_minutes"], [plans[pk] for pk in ring["plans"]])
            for ring in body["rings"]
        ]
        run = fleet_runs.create(by=request.user, name=body["name"], wanted=wanted)
        return created(self._detail(run), f"/api/v1/fleet-runs/{run.pk}", run)

    @extend_schema(request=serializers.FleetRequestIn, responses=DETAIL)
    @action(detail=True, methods=["post"], url_path="actions/request")
    def request_approval(self, request: UserApiRequest, pk: object) -> Response:
        """Ask for the review of each of its drafts, all or none."""
        return self._act(fleet_runs.request, serializers.FleetRequestIn)

    @extend_schema(request=None, responses=DETAIL)
    @action(detail=True, methods=["post"], url_path="actions/start")
    @without_body
    def start(self, request: UserApiRequest, pk: object) -> Response:
        """Let its rings start, each plan once it is approved, in the caller's name."""
        return self._act(fleet_runs.start)

    @extend_schema(request=serializers.FleetReasonIn, responses=DETAIL)
    @action(detail=True, methods=["post"], url_path="actions/hold")
    def hold(self, request: UserApiRequest, pk: object) -> Response:
        """Start no plan and no further step of it; what is in progress finishes."""
        return self._act(fleet_runs.hold, serializers.FleetReasonIn)

    @extend_schema(request=None, responses=DETAIL)
    @action(detail=True, methods=["post"], url_path="actions/release")
    @without_body
    def release(self, request: UserApiRequest, pk: object) -> Response:
        """Let it continue, from now on in the caller's name."""
        return self._act(fleet_runs.release)

    @extend_schema(request=serializers.FleetReasonIn, responses=DETAIL)
    @action(detail=True, methods=["post"], url_path="actions/open-ring")
    def open_ring(self, request: UserApiRequest, pk: object) -> Response:
        """Open the next ring before the soak of the finished one is over, or in spite of its health."""
        return self._act(fleet_runs.open_ring, serializers.FleetReasonIn)

    @extend_schema(request=serializers.FleetLeaveOutIn, responses=DETAIL)
    @action(detail=True, methods=["post"], url_path="actions/leave-out")
    def leave_out(self, request: UserApiRequest, pk: object) -> Response:
        """Leave out a plan: one that has not started is withdrawn."""
        return self._act(fleet_runs.leave_out, serializers.FleetLeaveOutIn)

    @extend_schema(request=serializers.FleetAddIn, responses=DETAIL)
    @action(detail=True, methods=["post"], url_path="actions/add")
    def add(self, request: UserApiRequest, pk: object) -> Response:
        """Add a draft plan to a ring that has not finished."""
        return self._act(fleet_runs.add, serializers.FleetAddIn)

    @extend_schema(request=serializers.FleetReasonIn, responses=DETAIL)
    @action(detail=True, methods=["post"], url_path="actions/cancel")
    def cancel(self, request: UserApiRequest, pk: object) -> Response:
        """End it: plans that have not started are withdrawn; rollouts in progress continue, each on its own."""
        return self._act(fleet_runs.cancel, serializers.FleetReasonIn)

    def _act(self, verb: Callable[..., FleetRun], accepts: type[Any] | None = None) -> Response:
        run = self.get_object()
        fields = read_body(accepts, self.request) if accepts else {}
        if (pk := fields.get("plan")) is not None:
            fields["plan"] = self._plans([pk], "plan")[pk]
        run = verb(run, by=self.request.user, **fields)
        tasks.wake_fleet()
        return accepted(self._detail(run), f"/api/v1/fleet-runs/{run.pk}")

    def _detail(self, run: FleetRun) -> Any:
        return serializers.FleetRunDetailOut(run, context=self.get_serializer_context()).data

    def _plans(self, ids: Iterable[UUID], field: str) -> dict[UUID, Plan]:
        """Return them by id. Raises Invalid naming those that this person cannot see."""
        wanted = set(ids)
        plans = {plan.pk: plan for plan in selectors.visible_plans(self.request.user).filter(pk__in=wanted)}
        if missing := sorted(str(pk) for pk in wanted - plans.keys()):
            raise Invalid(
                "There is no such plan.",
                fields={field: [f"Not found, or outside your permissions: {', '.join(missing)}."]},
            )
        return plans
