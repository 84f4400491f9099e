"""REST: channels of notices, and what was sent through them. Secrets go in and never come out."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.response import Response

from clusters.models import Cluster
from common.api import ApiViewSet, accepted, created, expected_version, with_etag
from common.bodies import Body, without_body
from common.requests import UserApiRequest
from notices.channels import quiet_hours, services
from notices.models import SEVERITIES, Channel, Delivery
from notices.reports import selectors


@extend_schema_field({"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"})
class ClockTime(serializers.TimeField):
    """A time as a clock on the wall shows it: hours and minutes, without the offset that format `time` has to have."""

    def __init__(self, **how: Any) -> None:
        super().__init__(format="%H:%M", input_formats=["%H:%M"], **how)


class ChannelOut(serializers.ModelSerializer[Channel]):
    what = serializers.ListField(child=serializers.ChoiceField(choices=Channel.What.choices))
    namespaces = serializers.ListField(child=serializers.CharField())
    addresses = serializers.ListField(child=serializers.CharField())
    least_severity = serializers.ChoiceField(choices=SEVERITIES)
    quiet_days = serializers.ListField(child=serializers.ChoiceField(choices=quiet_hours.DAY_NAMES))
    quiet_from = ClockTime(allow_null=True)
    quiet_until = ClockTime(allow_null=True)
    has_secret = serializers.SerializerMethodField()

    class Meta:
        model = Channel
        fields = [
            "id", *services.FIELDS, "has_secret", "version", "changed_by", "changed_at", "failures", "failing_since",
            "error", "rests_until", "sent_at",
        ]  # fmt: skip

    def get_has_secret(self, row: Channel) -> bool:
        return bool(row.secret)


class ChannelIn(Body[Any]):
    name = serializers.CharField(max_length=80)
    kind = serializers.ChoiceField(choices=Channel.Kind.choices)
    is_enabled = serializers.BooleanField(required=False)
    what = serializers.ListField(child=serializers.ChoiceField(choices=Channel.What.choices), min_length=1)
    least_severity = serializers.ChoiceField(choices=SEVERITIES, required=False)
    environment = serializers.ChoiceField(choices=Cluster.Environment.choices, required=False, allow_blank=True)
    cluster = serializers.PrimaryKeyRelatedField(queryset=Cluster.objects.all(), required=False, allow_null=True)
    namespaces = serializers.ListField(
        child=serializers.CharField(max_length=63),
        required=False,
        max_length=services.MOST_NAMESPACES,
        help_text="Only what is about pods of these; empty: everything.",
    )
    url = serializers.CharField(
        required=False, allow_blank=True, max_length=1000, help_text="Where it posts to; of PagerDuty it may be empty."
    )
    ca = serializers.CharField(required=False, allow_blank=True, max_length=131_072, help_text="PEM.")
    secret = serializers.CharField(
        required=False,
        write_only=True,
        trim_whitespace=False,
        min_length=services.SHORTEST_SECRET,
        max_length=services.LONGEST_SECRET,
        help_text="Of a webhook: signs its deliveries (Standard Webhooks; `whsec_…` or any text). Of PagerDuty: the "
        "integration key. Left out of a change: the stored one stays.",
    )
    addresses = serializers.ListField(
        child=serializers.EmailField(max_length=254), required=False, max_length=services.MOST_ADDRESSES
    )
    digest_hour = serializers.IntegerField(required=False, min_value=0, max_value=23, help_text="UTC.")
    quiet_days = serializers.ListField(
        child=serializers.ChoiceField(choices=quiet_hours.DAY_NAMES),
        required=False,
        max_length=7,
        help_text="Days on which quiet hours begin; empty: there are none. In them only critical alerts and "
        "break-glass are sent, the rest once they are over.",
    )
    quiet_from = ClockTime(required=False, allow_null=True, help_text="Of `quiet_zone`.")
    quiet_until = ClockTime(
        required=False, allow_null=True, help_text="Of `quiet_zone`; of the next day where it is no later."
    )
    quiet_zone = serializers.CharField(required=False, max_length=64, help_text="A time zone, as IANA names it.")


class ChannelTried(serializers.Serializer[Any]):
    is_sent = serializers.BooleanField()
    text = serializers.CharField(allow_blank=True, help_text="What went wrong.")


class Channels(mixins.ListModelMixin, ApiViewSet):
    """Channels of notices: signed webhooks, mail, Slack, Microsoft Teams and PagerDuty."""

    request: UserApiRequest
    scope_for = {"GET": "admin", "POST": "admin", "PATCH": "admin", "DELETE": "admin", "test": "admin"}
    serializer_class = ChannelOut
    ordering_fields = ("name", "changed_at")
    filterset_fields = ["name", "kind", "is_enabled"]
    lookup_value_converter = "uuid"
    is_versioned = True

    def get_queryset(self) -> QuerySet[Channel]:
        if getattr(self, "swagger_fake_view", False):
            return Channel.objects.none()
        services.may_change(self.request.user)
        return Channel.objects.order_by("name")

    @extend_schema(request=ChannelIn, responses={201: ChannelOut})
    def create(self, request: UserApiRequest) -> Response:
        services.may_change(request.user)
        body = ChannelIn(data=request.data)
        body.is_valid(raise_exception=True)
        row = services.create(by=request.user, **body.validated_data)
        return created(ChannelOut(row).data, f"/api/v1/notice-channels/{row.pk}", row)

    @extend_schema(request=ChannelIn, responses=ChannelOut)
    def partial_update(self, request: UserApiRequest, pk: UUID) -> Response:
        row = self.get_object()
        body = ChannelIn(data=request.data, partial=True)
        body.is_valid(raise_exception=True)
        version = expected_version(request, row)
        row = services.update(row, by=request.user, version=version, **body.validated_data)
        return with_etag(Response(ChannelOut(row).data), row)

    @extend_schema(responses={204: None})
    def destroy(self, request: UserApiRequest, pk: UUID) -> Response:
        """Delete it with all that waits for it."""
        row = self.get_object()
        services.delete(row, by=request.user, version=expected_version(request, row))
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=None, responses=ChannelTried)
    @action(detail=True, methods=["post"], url_path="actions/test", url_name="test")
    @without_body
    def test(self, request: UserApiRequest, pk: UUID) -> Response:
        """Send one notice through it now, as it is stored."""
        text = services.probe(self.get_object(), by=request.user)
        return Response(ChannelTried({"is_sent": not text, "text": text}).data)


class DeliveryOut(serializers.ModelSerializer[Delivery]):
    channel_name = serializers.CharField(source="channel.name")
    body = serializers.DictField(child=serializers.JSONField(), help_text="As sent, but for its id and time.")

    class Meta:
        model = Delivery
        fields = [
            "id", "channel", "channel_name", "event", "title", "body", "status", "is_held", "created_at", "due_at",
            "tries", "tried_at", "sent_at", "error",
        ]  # fmt: skip


class Deliveries(mixins.ListModelMixin, ApiViewSet):
    """Deliveries: sent, waiting, or given up."""

    request: UserApiRequest
    scope_for = {"GET": "admin", "retry": "admin"}
    serializer_class = DeliveryOut
    filterset_class = selectors.DeliveryFilter
    orders = selectors.DELIVERY_ORDERS
    lookup_value_converter = "uuid"

    def get_queryset(self) -> QuerySet[Delivery]:
        if getattr(self, "swagger_fake_view", False):
            return Delivery.objects.none()
        services.may_change(self.request.user)
        return selectors.deliveries()

    @extend_schema(request=None, responses={202: DeliveryOut})
    @action(detail=True, methods=["post"], url_path="actions/retry", url_name="retry")
    @without_body
    def retry(self, request: UserApiRequest, pk: UUID) -> Response:
        """Send it once more, from the beginning."""
        row = self.get_object()
        services.retry(row, by=request.user)
        return accepted(DeliveryOut(row).data, f"/api/v1/notice-deliveries/{row.pk}")
