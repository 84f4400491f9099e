"""REST: changes that wait for a second administrator's consent, and what a link looks like in an answer."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers
from rest_framework.decorators import action
from rest_framework.response import Response

from accounts.models import PendingChange
from accounts.people import invitations, pending
from accounts.people.invitations import Link
from accounts.people.pending import Proposed
from common.api import ApiViewSet, accepted
from common.bodies import without_body
from common.requests import UserApiRequest

ONCE = "In this answer only; null otherwise."


class PendingChangeOut(serializers.ModelSerializer[PendingChange]):
    subject = serializers.EmailField(source="subject.email", default=None, allow_null=True)
    proposed_by = serializers.EmailField(source="proposed_by.email")
    decided_by = serializers.EmailField(source="decided_by.email", default=None, allow_null=True)

    class Meta:
        model = PendingChange
        fields = [
            "id", "kind", "scope", "subject", "about", "target", "wanted", "status", "proposed_by", "proposed_at",
            "expires_at", "decided_by", "decided_at",
        ]  # fmt: skip


class ProposedOut(PendingChangeOut):
    code = serializers.CharField(
        allow_null=True, help_text=f"Your half of the link that the consenting administrator is shown. {ONCE}"
    )

    class Meta(PendingChangeOut.Meta):
        fields = [*PendingChangeOut.Meta.fields, "code"]


class LinkOut(serializers.Serializer[Any]):
    """A link with which its owner sets a password: mailed to them, or shown here once."""

    user = serializers.EmailField()
    link = serializers.CharField(allow_null=True, help_text=f"Hand it to its owner. {ONCE} Null where it was mailed.")
    is_mailed = serializers.BooleanField()
    needs_code = serializers.BooleanField(help_text="It also takes the code that the proposer was shown.")
    expires_at = serializers.DateTimeField()
    mail_error = serializers.CharField(allow_blank=True, help_text="Why the mail could not be sent.")


class ConsentedOut(PendingChangeOut):
    link = LinkOut(allow_null=True)

    class Meta(PendingChangeOut.Meta):
        fields = [*PendingChangeOut.Meta.fields, "link"]


def proposed(outcome: Proposed) -> Response:
    """202: nothing is changed yet."""
    data = PendingChangeOut(outcome.change).data | {"code": outcome.code or None}
    return accepted(data, f"/api/v1/pending-changes/{outcome.change.pk}")


def link_out(link: Link | None) -> dict[str, Any] | None:
    """Mails it where it is mailed. Waits on the network: hold no transaction."""
    if link is None:
        return None
    return {
        "user": link.user.email,
        "link": link.shown or None,
        "is_mailed": link.is_mailed,
        "needs_code": link.needs_code,
        "expires_at": link.invitation.expires_at,
        "mail_error": invitations.deliver(link),
    }


class PendingChanges(mixins.ListModelMixin, ApiViewSet):
    """Changes that one administrator proposed and another must consent to. They end by themselves after 72 hours."""

    request: UserApiRequest
    scope_for = {"GET": "read", "consent": "approve", "refuse": "admin"}
    serializer_class = PendingChangeOut
    ordering_fields = ("proposed_at", "expires_at")
    filterset_fields = ["status", "kind"]
    lookup_value_converter = "uuid"
    shown_once = ("link",)

    def get_queryset(self) -> QuerySet[PendingChange]:
        if getattr(self, "swagger_fake_view", False):
            return PendingChange.objects.none()
        return pending.visible_to(self.request.user)

    @extend_schema(request=None, responses=ConsentedOut)
    @action(detail=True, methods=["post"], url_path="actions/consent", url_name="consent")
    @without_body
    def consent(self, request: UserApiRequest, pk: UUID) -> Response:
        """Carry it out. Another administrator than the proposer, a person, and not the one whom it is of."""
        row, link = pending.consent(pk=pk, by=request.user)
        return Response(PendingChangeOut(row).data | {"link": link_out(link)})

    @extend_schema(request=None, responses=PendingChangeOut)
    @action(detail=True, methods=["post"], url_path="actions/refuse", url_name="refuse")
    @without_body
    def refuse(self, request: UserApiRequest, pk: UUID) -> Response:
        """End it without effect; its proposer withdraws it so."""
        return Response(PendingChangeOut(pending.refuse(pk=pk, by=request.user)).data)
