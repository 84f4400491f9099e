"""The token endpoint for workloads (RFC 8693). For programs: no page, no session, and errors as OAuth has them."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from accounts.access.addresses import client_address
from accounts.workloads import exchange, parameters
from accounts.workloads.refusals import ExchangeRefused

FORM = "application/x-www-form-urlencoded"


@csrf_exempt
@require_POST
def token(request: HttpRequest) -> HttpResponse:
    """Exchange a workload's own token for an API token. Cookies and the Authorization header are not looked at."""
    try:
        done = exchange.exchange(_sent(request), address=client_address(request))
    except ExchangeRefused as refusal:
        return _refused(refusal)
    except (OperationalError, InterfaceError):
        description = "The database cannot be reached now. Nothing was exchanged."
        return _refused(ExchangeRefused("temporarily_unavailable", description, status=503, retry_after=5))
    return _answer(
        {
            "access_token": done.text,
            "issued_token_type": parameters.ACCESS_TOKEN,
            "token_type": "Bearer",
            "expires_in": done.expires_in,
            "scope": " ".join(done.token.scopes),
        },
        status=200,
    )


def _sent(request: HttpRequest) -> dict[str, list[str]]:
    """Raises ExchangeRefused for a body that is no form, and for parameters in the address, which end up in logs."""
    if request.GET:
        raise ExchangeRefused("invalid_request", "Send the parameters in the body, not in the address.")
    if request.content_type != FORM:
        raise ExchangeRefused("invalid_request", f"Send the parameters as {FORM}.")
    try:
        return {name: [str(value) for value in values] for name, values in request.POST.lists()}
    except (RequestDataTooBig, SuspiciousOperation):
        raise ExchangeRefused("invalid_request", "The request has too many parameters.") from None


def _refused(refusal: ExchangeRefused) -> HttpResponse:
    description = refusal.description.replace('"', "'").replace("\\", "/")  # which RFC 6749 leaves out
    answer = _answer({"error": refusal.error, "error_description": description}, status=refusal.status)
    if refusal.retry_after:
        answer["Retry-After"] = str(refusal.retry_after)
    return answer


def _answer(content: dict[str, Any], *, status: int) -> JsonResponse:
    return JsonResponse(content, status=status, headers={"Cache-Control": "no-store", "Pragma": "no-cache"})
