from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins, serializers
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from audit import following
from audit.models import Record
from audit.selectors import ORDERS, RecordFilter, visible_to
from common.api import ApiViewSet
from common.errors import Invalid
from common.requests import UserApiRequest


class RecordOut(serializers.ModelSerializer[Record]):
    class Meta:
        model = Record
        fields = [
            "id", "at", "actor", "action", "target", "target_name", "cluster_id", "request_id", "message", "before",
            "after", "seq", "seal",
        ]  # fmt: skip


FOLLOWED = 500
"""Records of one answer, unless asked for fewer or more."""
MOST_FOLLOWED = 1000


class FollowedOut(serializers.Serializer[Any]):
    """Records in the order of their seals, and the cursor to continue from."""

    results = RecordOut(many=True)
    cursor = serializers.CharField(help_text="Give it as `after` next time. Opaque.")
    has_more = serializers.BooleanField(help_text="Ask again at once; false: everything that is sealed was read.")


class Records(mixins.ListModelMixin, ApiViewSet):
    """Audit records, newest first. Read only: records are written with the change that they describe."""

    request: UserApiRequest
    scope_for = {"GET": "read"}
    serializer_class = RecordOut
    filterset_class = RecordFilter
    orders = ORDERS
    lookup_value_converter = "uuid"

    def get_queryset(self) -> QuerySet[Record]:
        if getattr(self, "swagger_fake_view", False):
            return Record.objects.none()
        return visible_to(self.request.user)

    @extend_schema(
        operation_id="audit_follow",
        parameters=[
            OpenApiParameter("after", str, description="The cursor of the answer before; without: the first record."),
            OpenApiParameter("limit", int, description=f"From 1 to {MOST_FOLLOWED}; {FOLLOWED} unless given."),
        ],
        responses=FollowedOut,
        filters=False,
    )
    @action(detail=False, pagination_class=None, filterset_class=None)
    def follow(self, request: UserApiRequest) -> Response:
        """Sealed records behind a cursor, oldest first: none is left out and none comes twice, however late its
        transaction was committed. Poll it; 409 with the code `audit-restored`: the database was restored."""
        if unknown := set(request.query_params) - {"after", "limit"}:
            raise ValidationError({name: ["Unknown; there are after and limit."] for name in unknown})
        try:
            stretch = following.read(
                self.get_queryset(), after=request.query_params.get("after", ""), limit=_limit(request)
            )
        except Invalid as error:
            raise ValidationError(error.fields) from error
        return Response(FollowedOut(stretch).data)


def _limit(request: UserApiRequest) -> int:
    text = request.query_params.get("limit", str(FOLLOWED))
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:5]) <= MOST_FOLLOWED):
        raise ValidationError({"limit": [f"Give a number from 1 to {MOST_FOLLOWED}."]})
    return int(text)
