"""REST of freezes, over the same services and selectors as the pages."""

from __future__ import annotations

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins
from rest_framework.decorators import action
from rest_framework.response import Response

from accounts.permissions import restrict
from clusters.models import Cluster
from common.api import ApiViewSet, accepted, created
from common.bodies import without_body
from common.errors import Invalid
from common.requests import UserApiRequest
from jobs.models import Freeze
from jobs.reports import selectors
from jobs.rollouts import freezes
from jobs.web import freeze_serializers
from jobs.web.request_bodies import read_body


class FreezeViewSet(mixins.ListModelMixin, ApiViewSet):
    """Freezes: while one is active, no step starts."""

    request: UserApiRequest
    queryset = Freeze.objects.none()
    serializer_class = freeze_serializers.FreezeOut
    lookup_value_converter = "int"
    ordering_fields = ("created_at",)
    scope_for = {"GET": "read", "create": "apply", "lift": "apply"}

    def get_queryset(self) -> QuerySet[Freeze]:
        return selectors.visible_freezes(self.request.user)

    @extend_schema(request=freeze_serializers.FreezeIn, responses={201: freeze_serializers.FreezeOut})
    def create(self, request: UserApiRequest) -> Response:
        body = read_body(freeze_serializers.FreezeIn, request)
        cluster = None
        if body["cluster"] is not None:
            cluster = restrict(Cluster.objects.all(), request.user, prefix="").filter(pk=body["cluster"]).first()
            if cluster is None:
                raise Invalid(
                    "The freeze cannot be set.",
                    fields={"cluster": ["It does not exist, or is outside your permissions."]},
                )
        row = freezes.freeze(cluster=cluster, reason=body["reason"], until=body["until"], by=request.user)
        return created(freeze_serializers.FreezeOut(row).data, f"/api/v1/freezes/{row.pk}")

    @extend_schema(request=None, responses={202: freeze_serializers.FreezeOut})
    @action(detail=True, methods=["post"], url_path="actions/lift")
    @without_body
    def lift(self, request: UserApiRequest, pk: object) -> Response:
        row = freezes.lift(self.get_object(), by=request.user)
        return accepted(freeze_serializers.FreezeOut(row).data, f"/api/v1/freezes/{row.pk}")
