from __future__ import annotations

from django.db.models import QuerySet
from rest_framework import mixins, serializers

from audit.models import Record
from audit.selectors import ORDERS, RecordFilter, visible_to
from common.api import ApiViewSet
from common.requests import UserApiRequest


class RecordOut(serializers.ModelSerializer[Record]):
    class Meta:
        model = Record
        fields = [
            "id", "at", "actor", "action", "target", "target_name", "cluster_id", "request_id", "message", "before",
            "after", "seq", "seal",
        ]  # fmt: skip


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
