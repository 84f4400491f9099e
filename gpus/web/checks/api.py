"""REST of active checks: the catalog with the site's images, and runs on nodes."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.response import Response

from clusters.reports.selectors import clusters_visible_to
from common.api import ApiView, ApiViewSet
from common.bodies import Body, without_body
from common.errors import Invalid
from common.requests import UserApiRequest
from gpus.models import CheckRun
from gpus.services.checks import reports, starting, targets
from gpus.services.checks.reports import CatalogLine, CheckRunFilter


class CheckMeasureOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    title = serializers.CharField()
    unit = serializers.CharField()
    is_higher_better = serializers.BooleanField()


class ActiveCheckOut(serializers.Serializer[Any]):
    name = serializers.CharField(source="check.name")
    title = serializers.CharField(source="check.title")
    about = serializers.CharField(source="check.about")
    needs = serializers.CharField(source="check.needs", help_text="What must be in its image.")
    command = serializers.ListField(child=serializers.CharField(), source="check.command")
    limit_seconds = serializers.IntegerField(source="check.limit.seconds")
    takes_gpus = serializers.BooleanField(
        source="check.takes_gpus",
        help_text="It requests all GPUs of its node; else it runs beside pods that hold them.",
    )
    takes_targets = serializers.BooleanField(source="check.takes_targets", help_text="Whether a run may name targets.")
    measures = CheckMeasureOut(many=True, source="check.measures")
    sources = serializers.ListField(child=serializers.CharField(), source="check.sources")
    image = serializers.CharField(allow_blank=True, help_text="Empty: an administrator has named none; it is off.")


class CheckImageIn(Body[Any]):
    image = serializers.CharField(
        max_length=500, allow_blank=True, help_text="registry/name@sha256:… or registry/name:tag. Empty turns it off."
    )


class CheckRunOut(serializers.ModelSerializer[CheckRun]):
    check_name = serializers.CharField(help_text="As /gpus/checks has it.")
    outcome = serializers.ChoiceField(
        choices=CheckRun.Outcome.choices, allow_blank=True, help_text="Empty: it has not ended."
    )
    cluster_name = serializers.CharField(source="cluster.name")
    node_name = serializers.CharField(source="node.name")
    measures = serializers.DictField(child=serializers.FloatField(), help_text="In the units of the check's measures.")
    targets = serializers.ListField(
        child=serializers.CharField(), help_text="That a check of the network reaches besides the cluster's own."
    )
    notes = serializers.ListField(child=serializers.CharField(), help_text="The program's words about what failed.")

    class Meta:
        model = CheckRun
        fields = [
            "id", "check_name", "schedule", "cluster", "cluster_name", "node", "node_name", "image", "model", "gpus",
            "targets",
            "at_once", "status", "outcome", "reason", "measures", "notes", "program_version", "stopped_by",
            "created_by", "created_at", "started_at", "ended_at",
        ]  # fmt: skip
        read_only_fields = fields


class QueuedRunsOut(serializers.Serializer[Any]):
    results = CheckRunOut(many=True, help_text="One a node.")


class CheckRunIn(Body[Any]):
    check_name = serializers.CharField(max_length=40)
    cluster = serializers.UUIDField()
    nodes = serializers.ListField(
        child=serializers.CharField(max_length=253), max_length=starting.MOST_NODES, help_text="Names of nodes."
    )
    at_once = serializers.IntegerField(
        default=1, min_value=1, max_value=starting.MOST_AT_ONCE, help_text="Never more than the cluster's budget."
    )
    targets = serializers.ListField(
        child=serializers.CharField(max_length=targets.LONGEST),
        default=list,
        max_length=targets.MOST,
        help_text="Of a check that takes them: whole DNS names to resolve, and host:port to connect to.",
    )


class ChecksView(ApiView):
    """The catalog of checks."""

    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(operation_id="gpus_checks_list", responses=ActiveCheckOut(many=True))
    def get(self, request: UserApiRequest) -> Response:
        return Response(ActiveCheckOut(reports.catalog(), many=True).data)


class CheckImageView(ApiView):
    request: UserApiRequest
    scope_for = {"PUT": "admin"}

    @extend_schema(operation_id="gpus_checks_image_update", request=CheckImageIn, responses=ActiveCheckOut)
    def put(self, request: UserApiRequest, name: str) -> Response:
        """Set the site's image of a check. Runs that wait keep the one that they were started with."""
        check = starting.find(name)
        starting.may_set_image(request.user)
        body = CheckImageIn(data=request.data)
        body.is_valid(raise_exception=True)
        row = starting.set_image(name, body.validated_data["image"], by=request.user)
        return Response(ActiveCheckOut(CatalogLine(check, row.image if row else "")).data)


class CheckRunViewSet(mixins.ListModelMixin, ApiViewSet):
    """Runs of checks on nodes, the newest first."""

    request: UserApiRequest
    queryset = CheckRun.objects.none()
    serializer_class = CheckRunOut
    filterset_class = CheckRunFilter
    lookup_value_converter = "uuid"
    ordering_fields = ("created_at", "ended_at")
    scope_for = {"GET": "read", "POST": "apply"}

    def get_queryset(self) -> QuerySet[CheckRun]:
        return reports.runs(self.request.user)

    @extend_schema(request=CheckRunIn, responses={201: QueuedRunsOut})
    def create(self, request: UserApiRequest) -> Response:
        """Queue one run a node. Each begins when its node is idle, and is given up after two hours."""
        starting.may_start_anywhere(request.user)
        body = CheckRunIn(data=request.data)
        body.is_valid(raise_exception=True)
        given = body.validated_data
        cluster = clusters_visible_to(request.user).filter(pk=given["cluster"]).first()
        if cluster is None:
            reason = "It does not exist, or is outside your permissions."
            raise Invalid("No check was queued.", fields={"cluster": [reason]})
        more = {"at_once": given["at_once"], "targets": given["targets"], "by": request.user}
        runs = starting.start(given["check_name"], cluster, given["nodes"], **more)
        return Response(QueuedRunsOut({"results": runs}).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=None, responses=CheckRunOut)
    @action(detail=True, methods=["post"], url_path="actions/stop")
    @without_body
    def stop(self, request: UserApiRequest, pk: str) -> Response:
        """End it soon: its pod is removed."""
        run = get_object_or_404(self.get_queryset(), pk=pk)
        return Response(CheckRunOut(starting.stop(run, by=request.user)).data)
