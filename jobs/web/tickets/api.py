"""REST of change record rules and of connections of ticket systems, over the same services as the page."""

from __future__ import annotations

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins
from rest_framework.response import Response

from accounts.people.pending import Proposed
from accounts.web.pending_api import PendingChangeOut, proposed
from common.api import ApiViewSet, created, expected_version, with_etag
from common.errors import NotAllowed
from common.requests import UserApiRequest
from jobs.approvals.tickets import connections, rulebook
from jobs.models import ChangeRecordRule, TicketConnection
from jobs.web.request_bodies import read_body
from jobs.web.tickets import serializers as ticket_serializers


class ChangeRecordRuleViewSet(mixins.ListModelMixin, ApiViewSet):
    """The form of change record that each environment requires, and whether a start waits for its release."""

    request: UserApiRequest
    queryset = ChangeRecordRule.objects.none()
    serializer_class = ticket_serializers.ChangeRecordRuleOut
    lookup_value_converter = "int"
    ordering_fields = ("environment", "changed_at")
    is_versioned = True
    scope_for = {"GET": "read", "create": "admin", "partial_update": "admin", "destroy": "admin"}

    def get_queryset(self) -> QuerySet[ChangeRecordRule]:
        return ChangeRecordRule.objects.select_related("changed_by")

    @extend_schema(
        request=ticket_serializers.ChangeRecordRuleIn, responses={201: ticket_serializers.ChangeRecordRuleOut}
    )
    def create(self, request: UserApiRequest) -> Response:
        row = rulebook.create(by=request.user, **read_body(ticket_serializers.ChangeRecordRuleIn, request))
        return created(ticket_serializers.ChangeRecordRuleOut(row).data, f"/api/v1/change-record-rules/{row.pk}", row)

    @extend_schema(
        request=ticket_serializers.ChangeRecordRuleIn(partial=True),
        responses={200: ticket_serializers.ChangeRecordRuleOut, 202: PendingChangeOut},
    )
    def partial_update(self, request: UserApiRequest, pk: object) -> Response:
        """202: what would ask for less waits for a second administrator's consent."""
        row = self.get_object()
        version = expected_version(request, row)
        form = ticket_serializers.ChangeRecordRuleIn(data=request.data, partial=True)
        form.is_valid(raise_exception=True)
        done = rulebook.change(row, by=request.user, version=version, **form.validated_data)
        if isinstance(done, Proposed):
            return proposed(done)
        row = done
        return with_etag(Response(ticket_serializers.ChangeRecordRuleOut(row).data), row)

    @extend_schema(responses={202: PendingChangeOut, 204: None})
    def destroy(self, request: UserApiRequest, pk: object) -> Response:
        """202: a rule that asks for something is deleted only with a second administrator's consent."""
        row = self.get_object()
        done = rulebook.delete(row, by=request.user, version=expected_version(request, row))
        return proposed(done) if done else Response(status=204)


class TicketConnectionViewSet(mixins.ListModelMixin, ApiViewSet):
    """Ticket systems that may hold and release change records. A secret goes in and never comes out."""

    request: UserApiRequest
    queryset = TicketConnection.objects.none()
    serializer_class = ticket_serializers.TicketConnectionOut
    lookup_value_converter = "uuid"
    ordering_fields = ("name", "changed_at")
    is_versioned = True
    scope_for = {"GET": "admin", "create": "admin", "destroy": "admin"}

    def get_queryset(self) -> QuerySet[TicketConnection]:
        if reason := connections.reason_not_to_change(self.request.user):
            raise NotAllowed(reason)
        return TicketConnection.objects.all()

    @extend_schema(
        request=ticket_serializers.TicketConnectionIn, responses={201: ticket_serializers.TicketConnectionOut}
    )
    def create(self, request: UserApiRequest) -> Response:
        """`is_active` is false until a second administrator consents, where there is one: see the pending changes."""
        row = connections.create(by=request.user, **read_body(ticket_serializers.TicketConnectionIn, request))
        return created(ticket_serializers.TicketConnectionOut(row).data, f"/api/v1/ticket-connections/{row.pk}", row)

    @extend_schema(responses={204: None})
    def destroy(self, request: UserApiRequest, pk: object) -> Response:
        """Messages that it signs are refused from now on. What it held stays held until another connection releases."""
        row = self.get_object()
        connections.delete(row, by=request.user, version=expected_version(request, row))
        return Response(status=204)
