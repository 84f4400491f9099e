"""The address that ticket systems send to: signed as Standard Webhooks has it. No page, no session, no account."""

from __future__ import annotations

from io import BytesIO
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from rest_framework import serializers

from accounts.access.addresses import client_address
from common.bodies import Body
from common.errors import Refusal
from common.strict_json import StrictJsonParser
from jobs import tasks
from jobs.approvals.tickets import patterns
from jobs.models import ChangeRecord
from jobs.models.tickets import REFERENCE_CHARACTERS
from jobs.rollouts import ticket_messages

MOST_BYTES = 16 * 1024
"""A judgment: a reference, a state and a note have a few hundred."""
State = ChangeRecord.State


class TicketStateIn(Body[Any]):
    reference = serializers.CharField(max_length=REFERENCE_CHARACTERS)
    state = serializers.ChoiceField(choices=[str(State.HOLD), str(State.RELEASE), str(State.CLOSED)])
    note = serializers.CharField(max_length=200, required=False, allow_blank=True, default="")

    def validate_reference(self, text: str) -> str:
        if not patterns.is_reference(text):
            raise serializers.ValidationError("Visible characters of ASCII, without blanks.")
        return text


class TooLarge(Refusal):
    status = 413
    code = "too-large"


@csrf_exempt
@require_POST
def change_record_hook(request: HttpRequest, key: UUID) -> HttpResponse:
    """Hold, release or close a change record. 204 also where no plan names it, and where the message is a repetition.

    Cookies and the Authorization header are not looked at.
    """
    if int(request.META.get("CONTENT_LENGTH") or 0) > MOST_BYTES:
        raise TooLarge(f"At most {MOST_BYTES:,} bytes are read.")
    headers = ticket_messages.Signed(
        request.headers.get("webhook-id", ""),
        request.headers.get("webhook-timestamp", ""),
        request.headers.get("webhook-signature", ""),
    )
    connection, sent_at = ticket_messages.verify(key, headers, request.body, address=client_address(request))
    form = TicketStateIn(data=StrictJsonParser().parse(BytesIO(request.body)))
    form.is_valid(raise_exception=True)
    received = ticket_messages.TicketState(**form.validated_data)
    for rollout in ticket_messages.carry_out(connection, headers.message_id, sent_at, received):
        tasks.wake(rollout.pk)
    return HttpResponse(status=204)
