"""REST: chart repositories. Passwords go in and never come out."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.response import Response

from common.api import ApiViewSet, created, expected_version, with_etag
from common.bodies import Body, without_body
from common.requests import UserApiRequest
from components.charts import repositories
from components.models import Repository


class RepositoryOut(serializers.ModelSerializer[Repository]):
    hosts = serializers.ListField(child=serializers.CharField())
    has_password = serializers.SerializerMethodField()

    class Meta:
        model = Repository
        fields = [
            "id", "name", "url", "stands_for", "username", "has_password", "ca", "hosts", "is_enabled", "version",
            "changed_by", "changed_at",
        ]  # fmt: skip

    def get_has_password(self, row: Repository) -> bool:
        return bool(row.password)


class RepositoryIn(Body[Any]):
    name = serializers.CharField(max_length=63)
    url = serializers.CharField(max_length=500, help_text="https://… of a repository with an index.yaml, or oci://…")
    stands_for = serializers.CharField(
        required=False, allow_blank=True, max_length=500, help_text="The catalog's repository that it mirrors."
    )
    username = serializers.CharField(required=False, allow_blank=True, max_length=200)
    password = serializers.CharField(
        required=False,
        allow_blank=True,
        write_only=True,
        trim_whitespace=False,
        max_length=repositories.LONGEST_PASSWORD,
        help_text="Left out of a change: the stored one stays; empty: it is forgotten.",
    )
    ca = serializers.CharField(required=False, allow_blank=True, max_length=131_072, help_text="PEM.")
    hosts = serializers.ListField(
        child=serializers.CharField(max_length=260), required=False, help_text="Where it may redirect downloads to."
    )
    is_enabled = serializers.BooleanField(required=False)


class ServedOut(serializers.Serializer[Any]):
    component = serializers.CharField()
    chart = serializers.CharField()
    is_there = serializers.BooleanField(help_text="It has the newest version that the catalog checked.")
    text = serializers.CharField()


class ReachedOut(serializers.Serializer[Any]):
    is_reached = serializers.BooleanField()
    text = serializers.CharField()
    served = ServedOut(many=True)


class Repositories(mixins.ListModelMixin, ApiViewSet):
    """Chart repositories that an administrator set up; all other charts are fetched as the catalog says."""

    request: UserApiRequest
    scope_for = {"GET": "admin", "POST": "admin", "PATCH": "admin", "DELETE": "admin", "test": "admin"}
    serializer_class = RepositoryOut
    ordering_fields = ("name", "changed_at")
    filterset_fields = ["name", "is_enabled"]
    lookup_value_converter = "uuid"
    is_versioned = True

    def get_queryset(self) -> QuerySet[Repository]:
        if getattr(self, "swagger_fake_view", False):
            return Repository.objects.none()
        repositories.may_change(self.request.user)
        return Repository.objects.order_by("name")

    @extend_schema(request=RepositoryIn, responses={201: RepositoryOut})
    def create(self, request: UserApiRequest) -> Response:
        repositories.may_change(request.user)
        body = RepositoryIn(data=request.data)
        body.is_valid(raise_exception=True)
        row = repositories.create(by=request.user, **body.validated_data)
        return created(RepositoryOut(row).data, f"/api/v1/chart-repositories/{row.pk}", row)

    @extend_schema(request=RepositoryIn, responses=RepositoryOut)
    def partial_update(self, request: UserApiRequest, pk: object) -> Response:
        row = self.get_object()
        body = RepositoryIn(data=request.data, partial=True)
        body.is_valid(raise_exception=True)
        version = expected_version(request, row)
        row = repositories.update(row, by=request.user, version=version, **body.validated_data)
        return with_etag(Response(RepositoryOut(row).data), row)

    @extend_schema(responses={204: None})
    def destroy(self, request: UserApiRequest, pk: object) -> Response:
        """Delete one that serves no chart of a plan; what it stood for is asked itself again."""
        row = self.get_object()
        repositories.delete(row, by=request.user, version=expected_version(request, row))
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=None, responses=ReachedOut)
    @action(detail=True, methods=["post"], url_path="actions/test", url_name="test")
    @without_body
    def test(self, request: UserApiRequest, pk: object) -> Response:
        """Ask it now: does it answer, and has it what the catalog wants of it?"""
        return Response(ReachedOut(repositories.probe(self.get_object(), by=request.user)).data)
