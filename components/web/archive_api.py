"""REST: chart archives, uploaded as multipart/form-data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers, status
from rest_framework.parsers import MultiPartParser
from rest_framework.response import Response

from accounts.models import User
from accounts.permissions import ANYWHERE, Role, require
from common.api import ApiViewSet, created
from common.bodies import Body
from common.errors import Invalid
from common.hooks import WorkRef
from common.requests import UserApiRequest
from common.strict_json import StrictJsonParser
from components.charts import uploads
from components.helm import kube_version
from components.models import Archive


class ArchiveOut(serializers.ModelSerializer[Archive]):
    components = serializers.SerializerMethodField(help_text="Of the catalog, installed from a chart of this name.")
    plans = serializers.SerializerMethodField(
        help_text="Numbers of the plans that name it, the newest hundred of those that you may see."
    )
    is_used = serializers.SerializerMethodField(help_text="A plan names it, seen or not; while one does, it stays.")

    warnings = serializers.SerializerMethodField(
        help_text="When it is stored: connected clusters on which it does not run. Empty otherwise."
    )

    class Meta:
        model = Archive
        fields = [
            "sha256", "name", "version", "app_version", "size", "origin", "fetched_from", "stored_at", "stored_by",
            "components", "plans", "is_used", "warnings",
        ]  # fmt: skip

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_warnings(self, archive: Archive) -> list[str]:
        return list(getattr(archive, "warnings", ()))

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_components(self, archive: Archive) -> list[str]:
        return [component.name for component in uploads.components_of(archive.name)]

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_plans(self, archive: Archive) -> list[str]:
        return [f"P-{plan.number}" for plan in self._uses(archive, self.context["request"].user).get(archive.pk, ())]

    def get_is_used(self, archive: Archive) -> bool:
        return archive.pk in self._uses(archive, None)

    def _uses(self, archive: Archive, user: User | None) -> Mapping[str, Sequence[WorkRef]]:
        """Return the uses of the whole page, where one is shown."""
        page = self.context.get("page")
        kept: dict[Any, Any] = self.context["uses"]
        if user not in kept:
            kept[user] = uploads.uses(page if page is not None else [archive.pk], user)
        uses_by_archive: Mapping[str, Sequence[WorkRef]] = kept[user]
        return uses_by_archive


class ArchiveIn(Body[Any]):
    archive = serializers.FileField(help_text="A chart as `helm package` makes it, at most 10 MiB.")


class Archives(mixins.ListModelMixin, ApiViewSet):
    """Chart archives by the SHA-256 of their bytes, fetched or uploaded. They never change."""

    request: UserApiRequest
    scope_for = {"GET": "read", "POST": "admin", "DELETE": "admin"}
    serializer_class = ArchiveOut
    parser_classes = (MultiPartParser, StrictJsonParser)
    once_only = False
    ordering_fields = ("name", "stored_at", "size")
    filterset_fields = ["name", "version"]
    lookup_field = "sha256"
    lookup_value_converter = "slug"

    def get_queryset(self) -> QuerySet[Archive]:
        if getattr(self, "swagger_fake_view", False):
            return Archive.objects.none()
        require(self.request.user, Role.VIEWER, ANYWHERE, "see the chart archives")
        return uploads.known()

    def paginate_queryset(self, queryset: Any) -> Any:
        page = super().paginate_queryset(queryset)
        self._keys = [archive.pk for archive in page or ()]
        return page

    def get_serializer_context(self) -> dict[str, Any]:
        return dict(super().get_serializer_context()) | {"page": getattr(self, "_keys", None), "uses": {}}

    @extend_schema(request={"multipart/form-data": ArchiveIn}, responses={201: ArchiveOut})
    def create(self, request: UserApiRequest) -> Response:
        """Store an archive. It is judged first; the same bytes are stored once, however often they are sent."""
        uploads.may_upload(request.user)
        file = request.data.get("archive") if hasattr(request.data, "get") else None
        if not isinstance(file, UploadedFile):
            raise Invalid("Send the chart as multipart/form-data.", fields={"archive": ["Is missing, or is no file."]})
        archive, _ = uploads.upload(file, by=request.user)
        archive.warnings = kube_version.unfit(bytes(archive.content))  # type: ignore[attr-defined]  # of this answer only
        return created(self.get_serializer(archive).data, f"/api/v1/chart-archives/{archive.pk}")

    @extend_schema(responses={204: None})
    def destroy(self, request: UserApiRequest, sha256: str) -> Response:
        """Delete one that no plan names."""
        uploads.may_upload(request.user)
        uploads.delete(self.get_object(), by=request.user)
        return Response(status=status.HTTP_204_NO_CONTENT)
