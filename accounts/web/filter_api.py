"""REST: filters kept under a name, one's own and shared ones. The service checks; these classes only translate."""

from __future__ import annotations

from django.db.models import Q, QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.response import Response

from accounts import filters
from accounts.models import SavedFilter
from common.api import ApiViewSet, created
from common.bodies import Body
from common.requests import UserApiRequest


class SavedFilterOut(serializers.ModelSerializer[SavedFilter]):
    owner = serializers.EmailField(source="owner.email", read_only=True)
    href = serializers.SerializerMethodField(help_text="The page, narrowed so; without the host.")

    class Meta:
        model = SavedFilter
        fields = ["id", "owner", "page", "name", "query", "is_shared", "created_at", "href"]

    def get_href(self, row: SavedFilter) -> str:
        return filters.url_of(row)


class SavedFilterIn(Body[SavedFilter]):
    page = serializers.ChoiceField(sorted(filters.PAGES))
    name = serializers.CharField(max_length=60, help_text="One's own filter of this name and page is replaced.")
    query = serializers.CharField(
        max_length=filters.LONGEST, help_text="As in the page's URL, such as: cluster=atlas&compliance=drifted"
    )
    is_shared = serializers.BooleanField(default=False, help_text="Visible to everyone; it grants no permissions.")


class SavedFilters(mixins.ListModelMixin, ApiViewSet):
    """Filters of lists under a name: one's own, and those that others share. A node filter chooses for bulk actions."""

    request: UserApiRequest
    scope_for = {"GET": "read", "POST": "plan", "DELETE": "plan"}
    serializer_class = SavedFilterOut
    ordering_fields = ("created_at", "name")
    filterset_fields = ["page", "is_shared"]
    lookup_value_converter = "int"

    def get_queryset(self) -> QuerySet[SavedFilter]:
        if getattr(self, "swagger_fake_view", False):
            return SavedFilter.objects.none()
        seen = Q(owner=self.request.user) | Q(is_shared=True, owner__is_active=True)
        return SavedFilter.objects.filter(seen).select_related("owner")

    @extend_schema(request=SavedFilterIn, responses={201: SavedFilterOut})
    def create(self, request: UserApiRequest) -> Response:
        body = SavedFilterIn(data=request.data)
        body.is_valid(raise_exception=True)
        row = filters.keep(**body.validated_data, by=request.user)
        return created(SavedFilterOut(row).data, f"/api/v1/saved-filters/{row.pk}")

    @extend_schema(responses={204: None})
    def destroy(self, request: UserApiRequest, pk: int) -> Response:
        filters.drop(pk=int(pk), by=request.user)
        return Response(status=status.HTTP_204_NO_CONTENT)
