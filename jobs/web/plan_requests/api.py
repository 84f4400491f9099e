"""REST of plans that a worker makes."""

from __future__ import annotations

from django.db.models import QuerySet

from common.api import ApiViewSet
from common.requests import UserApiRequest
from jobs.models import PlanRequest
from jobs.reports import selectors
from jobs.web.plan_requests.serializers import PlanRequestOut


class PlanRequestViewSet(ApiViewSet):
    """A plan that was asked for and is made outside of the request. It is kept for a day after its end."""

    request: UserApiRequest
    queryset = PlanRequest.objects.none()
    serializer_class = PlanRequestOut
    lookup_value_converter = "uuid"
    scope_for = {"GET": "read"}

    def get_queryset(self) -> QuerySet[PlanRequest]:
        return selectors.visible_plan_requests(self.request.user)
