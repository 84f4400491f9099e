"""Takeovers over REST: what is newer than this database in one cluster, and the two people's words."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from clusters.models import Cluster
from clusters.reports import selectors
from common.api import ApiView, accepted, created
from common.bodies import Body, without_body
from common.requests import UserApiRequest
from jobs.models import Takeover, TakeoverNode
from jobs.rollouts import takeovers
from jobs.web.request_bodies import read_body


class TakeoverSettingOut(serializers.Serializer[Any]):
    key = serializers.CharField()
    asked = serializers.CharField(allow_null=True, help_text="What the object asks; null: its original back.")
    now = serializers.CharField(allow_null=True, help_text="What the kernel answers.")
    original = serializers.CharField(allow_null=True, help_text="Before the first write, by the host's journal.")
    is_written = serializers.BooleanField()


class TakeoverNodeOut(serializers.ModelSerializer[TakeoverNode]):
    node = serializers.IntegerField(source="node_id")
    settings = TakeoverSettingOut(many=True)

    class Meta:
        model = TakeoverNode
        fields = ["node", "name", "uid", "step", "settings", "restart", "cordon", "done_at", "result"]


class TakeoverOut(serializers.ModelSerializer[Takeover]):
    requested_by = serializers.CharField(source="requested_by.email", default=None, allow_null=True)
    approved_by = serializers.CharField(source="approved_by.email", default=None, allow_null=True)

    class Meta:
        model = Takeover
        fields = ["id", "status", "digest", "message", "release_cordons", "requested_by", "requested_at",
                  "approved_by", "approved_at", "finished_at"]  # fmt: skip


class NewerOut(serializers.Serializer[Any]):
    takeover = TakeoverOut(allow_null=True, help_text="The open one, else the last; null: none was asked for.")
    newer = TakeoverNodeOut(many=True, help_text="Of an open takeover what was shown; else what is there now.")


class TakeoverIn(Body[Any]):
    message = serializers.CharField(max_length=500, help_text="Why they are newer.")
    release_cordons = serializers.BooleanField(required=False, default=False)


class ApproveTakeoverIn(Body[Any]):
    digest = serializers.CharField(max_length=71, help_text="Of what was read.")


def _cluster(request: UserApiRequest, pk: UUID) -> Cluster:
    return get_object_or_404(selectors.clusters_with_counts(request.user), pk=pk)


class TakeoverView(ApiView):
    """State in a cluster that is newer than this database; asking to take it over."""

    scope_for = {"GET": "read", "POST": "admin"}

    @extend_schema(responses={200: NewerOut})
    def get(self, request: UserApiRequest, cluster_pk: UUID) -> Response:
        cluster = _cluster(request, cluster_pk)
        row = Takeover.objects.filter(cluster=cluster).select_related("requested_by", "approved_by").first()
        is_open = row is not None and row.status in Takeover.OPEN
        newer = list(row.nodes.all()) if row and is_open else takeovers.find_nodes(cluster)
        return Response(NewerOut({"takeover": row, "newer": newer}).data)

    @extend_schema(request=TakeoverIn, responses={201: TakeoverOut})
    def post(self, request: UserApiRequest, cluster_pk: UUID) -> Response:
        cluster = _cluster(request, cluster_pk)
        row = takeovers.request(cluster, by=request.user, **read_body(TakeoverIn, request))
        return created(TakeoverOut(row).data, f"/api/v1/clusters/{cluster_pk}/takeover")


class ApproveTakeoverView(ApiView):
    """The second person's word; it is carried out then."""

    scope_for = {"POST": "approve"}

    @extend_schema(request=ApproveTakeoverIn, responses={202: TakeoverOut})
    def post(self, request: UserApiRequest, cluster_pk: UUID) -> Response:
        cluster = _cluster(request, cluster_pk)
        body = read_body(ApproveTakeoverIn, request)
        row = takeovers.approve(takeovers.open_takeover(cluster), by=request.user, **body)
        return accepted(TakeoverOut(row).data, f"/api/v1/clusters/{cluster_pk}/takeover")


class WithdrawTakeoverView(ApiView):
    """Withdraw a takeover before it is approved."""

    scope_for = {"POST": "admin"}

    @extend_schema(request=None, responses={202: TakeoverOut})
    @without_body
    def post(self, request: UserApiRequest, cluster_pk: UUID) -> Response:
        row = takeovers.withdraw(_cluster(request, cluster_pk), by=request.user)
        return accepted(TakeoverOut(row).data, f"/api/v1/clusters/{cluster_pk}/takeover")
