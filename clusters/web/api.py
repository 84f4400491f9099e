"""REST over the same services and selectors as the pages: views translate, and nothing else."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import django_filters
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, status
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from accounts.people import owners
from accounts.people.pending import Proposed
from accounts.web.pending_api import PendingChangeOut, proposed
from clusters import tasks
from clusters.connection import registry
from clusters.models import Cluster, Node, Pool
from clusters.net.credentials import Credentials
from clusters.reports import node_filters, selectors
from clusters.services import label_selectors, lifecycle, nodes, pools
from clusters.web import serializers
from clusters.web.cluster_filters import CLUSTER_ORDERS, ClusterFilter, sortable_clusters
from common import hooks, look
from common.api import ApiViewSet, accepted, created, expected_version, with_etag
from common.bodies import without_body
from common.errors import Invalid
from common.filtering import ClusterReferenceFilter as ByCluster
from common.requests import UserApiRequest


def _read(serializer: type[Any], request: UserApiRequest) -> dict[str, Any]:
    form = serializer(data=request.data)
    form.is_valid(raise_exception=True)
    return dict(form.validated_data)


def _credential(fields: dict[str, Any]) -> Credentials:
    """Taken out of what was sent. Raises Invalid, naming the field."""
    names = ("kubeconfig", "context", "server", "ca", "token")
    return registry.read_credentials(**{name: fields.pop(name) for name in names if name in fields})


class ClusterViewSet(mixins.ListModelMixin, ApiViewSet):
    """Clusters, identified by the UID of their kube-system namespace."""

    request: UserApiRequest
    queryset = Cluster.objects.none()
    serializer_class = serializers.ClusterOut
    lookup_value_converter = "uuid"
    filterset_class = ClusterFilter
    orders = CLUSTER_ORDERS
    is_versioned = True
    scope_for = {
        "GET": "read",
        "create": "admin",
        "partial_update": "admin",
        "try_credential": "admin",
        "test": "plan",
        "refresh": "plan",
        "rotate_credential": "admin",
        "disconnect": "admin",
        "preview_pool": "read",
    }

    def get_queryset(self) -> QuerySet[Cluster]:
        return sortable_clusters(selectors.clusters_with_counts(self.request.user))

    def get_serializer_class(self) -> type[Any]:
        return serializers.ClusterOut if self.action == "list" else serializers.ClusterDetailOut

    def _detail(self, cluster: Cluster) -> Any:
        row = self.get_queryset().filter(pk=cluster.pk).first()
        return serializers.ClusterDetailOut(row, context=self.get_serializer_context()).data if row else None

    @extend_schema(request=serializers.ConnectIn, responses={201: serializers.ClusterDetailOut})
    def create(self, request: UserApiRequest) -> Response:
        """Connect a cluster: tested, marked as this installation's, stored. Its nodes appear within a minute."""
        body = _read(serializers.ConnectIn, request)
        credential = _credential(body)
        body.pop("context", None)
        cluster = lifecycle.connect_cluster(credential=credential, by=request.user, **body)
        return created(self._detail(cluster), f"/api/v1/clusters/{cluster.pk}", cluster)

    @extend_schema(
        request=serializers.ClusterChange, responses={200: serializers.ClusterDetailOut, 202: PendingChangeOut}
    )
    def partial_update(self, request: UserApiRequest, pk: object) -> Response:
        """202: another environment waits for a second administrator's consent."""
        cluster = self.get_object()
        version = expected_version(request, cluster)
        done = lifecycle.update(cluster, by=request.user, version=version, **_read(serializers.ClusterChange, request))
        if isinstance(done, Proposed):
            return proposed(done)
        cluster = done
        return with_etag(Response(self._detail(cluster)), cluster)

    @extend_schema(
        operation_id="clusters_try_credential", request=serializers.CredentialIn, responses=serializers.VerdictOut
    )
    @action(detail=False, methods=["post"], url_path="actions/test", url_name="try")
    def try_credential(self, request: UserApiRequest) -> Response:
        """Judge a credential before connecting. Stores nothing."""
        lifecycle.may_try(request.user)
        return Response(
            serializers.VerdictOut(
                lifecycle.test_connection(_credential(_read(serializers.CredentialIn, request)), request.user)
            ).data
        )

    @extend_schema(request=None, responses=serializers.VerdictOut)
    @action(detail=True, methods=["post"], url_path="actions/test")
    @without_body
    def test(self, request: UserApiRequest, pk: object) -> Response:
        """Judge the stored credential."""
        return Response(serializers.VerdictOut(lifecycle.recheck(self.get_object(), by=request.user)).data)

    @extend_schema(request=None, responses={202: serializers.ClusterDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/refresh")
    @without_body
    def refresh(self, request: UserApiRequest, pk: object) -> Response:
        """Read the whole cluster now instead of waiting for the watch."""
        cluster = self.get_object()
        lifecycle.may_refresh(cluster, request.user)
        tasks.refresh.delay(str(cluster.pk))
        return accepted(self._detail(cluster), f"/api/v1/clusters/{cluster.pk}")

    @extend_schema(request=serializers.CredentialIn, responses={202: serializers.ClusterDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/rotate-credential")
    def rotate_credential(self, request: UserApiRequest, pk: object) -> Response:
        cluster = self.get_object()
        credential = _credential(_read(serializers.CredentialIn, request))
        cluster = lifecycle.rotate_credential(cluster, credential=credential, by=request.user)
        return accepted(self._detail(cluster), f"/api/v1/clusters/{cluster.pk}")

    @extend_schema(responses=serializers.FarewellOut)
    @action(detail=True, methods=["get"], url_path="farewell")
    def farewell(self, request: UserApiRequest, pk: object) -> Response:
        """Return what disconnecting would leave behind, and what blocks it now."""
        return Response(serializers.FarewellOut(lifecycle.disconnect_preview(self.get_object())).data)

    @extend_schema(request=None, responses={202: serializers.FarewellOut})
    @action(detail=True, methods=["post"], url_path="actions/disconnect")
    @without_body
    def disconnect(self, request: UserApiRequest, pk: object) -> Response:
        left = lifecycle.disconnect(self.get_object(), by=request.user)
        return accepted(serializers.FarewellOut(left).data, "/api/v1/clusters")

    @extend_schema(request=serializers.SelectorIn, responses=serializers.PreviewOut)
    @action(detail=True, methods=["post"], url_path="pools/preview")
    def preview_pool(self, request: UserApiRequest, pk: object) -> Response:
        """Return the nodes that a selector would choose now. Stores nothing."""
        body = _read(serializers.SelectorIn, request)
        return Response(serializers.PreviewOut(pools.preview(self.get_object(), body["selector"])).data)


class PoolFilter(django_filters.FilterSet):  # type: ignore[misc]
    cluster = django_filters.UUIDFilter(field_name="cluster_id")
    name = django_filters.CharFilter(lookup_expr="icontains")
    owner = django_filters.CharFilter(method="of_owner", max_length=63, help_text="Name of the team that owns it.")

    class Meta:
        model = Pool
        fields: list[str] = []

    def of_owner(self, rows: QuerySet[Pool], name: str, value: str) -> QuerySet[Pool]:
        return rows.filter(owner_team=owners.team_id(value))


class PoolViewSet(mixins.ListModelMixin, ApiViewSet):
    """Pools: named, never empty node selectors inside one cluster."""

    request: UserApiRequest
    queryset = Pool.objects.none()
    serializer_class = serializers.PoolOut
    lookup_value_converter = "int"
    filterset_class = PoolFilter
    ordering_fields = ("name", "created_at")
    is_versioned = True
    scope_for = {"GET": "read", "PATCH": "plan", "DELETE": "plan"}

    def get_queryset(self) -> QuerySet[Pool]:
        return selectors.pools_visible_to(self.request.user)

    def get_serializer_class(self) -> type[Any]:
        return serializers.PoolOut if self.action == "list" else serializers.PoolDetailOut

    @extend_schema(request=serializers.PoolChange, responses=serializers.PoolDetailOut)
    def partial_update(self, request: UserApiRequest, pk: object) -> Response:
        pool = self.get_object()
        version = expected_version(request, pool)
        pool = lifecycle.update_pool(pool, by=request.user, version=version, **_read(serializers.PoolChange, request))
        return with_etag(Response(self.get_serializer(pool).data), pool)

    @extend_schema(responses={204: None})
    def destroy(self, request: UserApiRequest, pk: object) -> Response:
        lifecycle.delete_pool(self.get_object(), by=request.user)
        return Response(status=status.HTTP_204_NO_CONTENT)


class ClusterPoolViewSet(mixins.ListModelMixin, ApiViewSet):
    """The pools of one cluster."""

    request: UserApiRequest
    queryset = Pool.objects.none()
    serializer_class = serializers.PoolOut
    ordering_fields = ("name", "created_at")
    scope_for = {"GET": "read", "POST": "plan"}

    def _cluster(self) -> Cluster:
        return get_object_or_404(selectors.clusters_visible_to(self.request.user), pk=self.kwargs["cluster_pk"])

    def get_queryset(self) -> QuerySet[Pool]:
        if getattr(self, "swagger_fake_view", False):
            return Pool.objects.none()
        return selectors.pools_visible_to(self.request.user).filter(cluster=self._cluster())

    @extend_schema(request=serializers.PoolIn, responses={201: serializers.PoolDetailOut})
    def create(self, request: UserApiRequest, cluster_pk: UUID) -> Response:
        pool = lifecycle.create_pool(self._cluster(), by=request.user, **_read(serializers.PoolIn, request))
        data = serializers.PoolDetailOut(pool, context=self.get_serializer_context()).data
        return created(data, f"/api/v1/pools/{pool.pk}", pool)


class NodeFilter(django_filters.FilterSet):  # type: ignore[misc]
    """The page's filters under its words, and some more."""

    q = django_filters.CharFilter(field_name="name", lookup_expr="icontains", max_length=253)
    labels = django_filters.CharFilter(
        method="with_labels", max_length=1000, help_text="A selector as kubectl writes it: `pool=train,!spot`."
    )
    compliance = django_filters.ChoiceFilter(choices=[(name, name) for name in look.COMPLIANCE], method="contributed")
    cluster = ByCluster()
    pool = django_filters.NumberFilter(method="in_pool")
    name = django_filters.CharFilter(lookup_expr="icontains")
    ready = django_filters.BooleanFilter(field_name="is_ready")
    cordoned = django_filters.BooleanFilter(field_name="is_cordoned")
    control_plane = django_filters.BooleanFilter(field_name="is_control_plane")
    gpu_product = django_filters.CharFilter()
    reach = django_filters.MultipleChoiceFilter(field_name="cluster__reach", choices=Cluster.Reach.choices)
    health = django_filters.ChoiceFilter(choices=[(name, name) for name in selectors.HEALTH], method="in_health")

    class Meta:
        model = Node
        fields: list[str] = []

    def in_pool(self, rows: QuerySet[Node], name: str, value: int) -> QuerySet[Node]:
        return nodes.in_pool(rows, selectors.pools_visible_to(self.request.user).filter(pk=value).first())

    def with_labels(self, rows: QuerySet[Node], name: str, value: str) -> QuerySet[Node]:
        try:
            return label_selectors.nodes(label_selectors.parse(value, "labels"), rows)
        except Invalid as refusal:
            raise ValidationError({"labels": [str(refusal)]}) from refusal

    def contributed(self, rows: QuerySet[Node], name: str, value: str) -> QuerySet[Node]:
        """A filter that a room above knows how to apply."""
        for node_filter in hooks.node_filters():
            if node_filter.name == name:
                return node_filter.narrow(rows, value)
        return rows.none()

    def in_health(self, rows: QuerySet[Node], name: str, value: str) -> QuerySet[Node]:
        return selectors.in_health(rows, value)


class NodeViewSet(mixins.ListModelMixin, ApiViewSet):
    """Nodes as last watched. `health` is unreachable while the cluster does not answer, and unknown while it is not
    watched: rows then show the last known state."""

    request: UserApiRequest
    queryset = Node.objects.none()
    serializer_class = serializers.NodeOut
    lookup_value_converter = "int"
    filterset_class = NodeFilter
    orders = node_filters.ORDERS
    scope_for = {"GET": "read", "refresh": "plan"}

    def get_queryset(self) -> QuerySet[Node]:
        return (
            selectors.nodes_ranked(selectors.nodes_visible_to(self.request.user))
            if self.action == "list"
            else selectors.nodes_whole(self.request.user)
        )

    def get_serializer_class(self) -> type[Any]:
        return serializers.NodeOut if self.action == "list" else serializers.NodeDetailOut

    @extend_schema(request=None, responses={202: serializers.NodeDetailOut})
    @action(detail=True, methods=["post"], url_path="actions/refresh")
    @without_body
    def refresh(self, request: UserApiRequest, pk: object) -> Response:
        """Read this node and its agent's object from the cluster now."""
        node = self.get_object()
        nodes.refresh(node, by=request.user)
        row = selectors.nodes_whole(request.user).filter(pk=node.pk).first()
        data = serializers.NodeDetailOut(row, context=self.get_serializer_context()).data if row else None
        return accepted(data, f"/api/v1/nodes/{node.pk}")
