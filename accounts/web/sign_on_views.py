"""Single sign-on: to the provider and back. A refusal is the log-in page, with what happened and what to do."""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from accounts.access import freshness
from accounts.access import login as logins
from accounts.access.addresses import client_address
from accounts.models import User
from accounts.providers import OidcProvider, Provider
from accounts.signon import arrival, exchange
from accounts.signon.refusals import SignOnRefused
from accounts.web.forms import LoginForm
from accounts.web.views import LOGIN_PAGE, after_login, login_context, safe_next
from common.errors import Refusal

log = logging.getLogger(__name__)


@never_cache
@require_GET
def begin(request: HttpRequest, key: str) -> HttpResponse:
    """Send the browser to the provider. Another site's page cannot begin it: its visitor gets the log-in page."""
    provider = _provider(key)
    return begun(request, lambda wanted, again: exchange.begin(request, provider, wanted, is_step_up=again))


def begun(request: HttpRequest, leave: Callable[[str, bool], HttpResponse]) -> HttpResponse:
    """Return what `leave` answers for the page to go to afterwards and whether a log-in there is wanted again."""
    wanted = safe_next(request, request.GET.get("next", ""))
    is_step_up = isinstance(request.user, User) and request.GET.get("again") == "1"
    if isinstance(request.user, User) and not is_step_up:
        return redirect(after_login(request))
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        return redirect("accounts:login")
    try:
        logins.count_start(client_address(request))
        return leave(wanted, is_step_up)
    except (logins.TooManyTries, SignOnRefused) as refusal:
        return refused(request, refusal, wanted)


@never_cache
@require_GET
def back(request: HttpRequest, key: str) -> HttpResponse:
    """End a log-in: the provider sends the browser here, with a code."""
    provider = _provider(key)
    try:
        verified = exchange.finish(request, provider)
        arrival.admit(request, provider, verified.claims)
    except SignOnRefused as refusal:
        return ended(request, provider, refusal)
    if settings.SETPOINT_STEP_UP and freshness.proved_at(request) is None:
        messages.warning(
            request,
            f"{provider.name} does not tell when you logged in there (claim auth_time), so that what takes a recent "
            "log-in is not possible for you. Tell the operator of this installation.",
        )
    return redirect(safe_next(request, verified.next) or settings.LOGIN_REDIRECT_URL)


def ended(request: HttpRequest, provider: Provider, refusal: SignOnRefused) -> HttpResponse:
    """Answer an answer of the provider's that lets no one in."""
    log.warning("single sign-on: %s: a log-in was refused (%s)", provider.key, refusal.code)
    return refused(request, refusal)


def refused(request: HttpRequest, refusal: Refusal, wanted: str = "") -> HttpResponse:
    advice = refusal.advice if isinstance(refusal, SignOnRefused) else ""
    context = {**login_context(request, LoginForm(), wanted), "refusal": {"message": str(refusal), "advice": advice}}
    return render(request, LOGIN_PAGE, context, status=refusal.status)


def _provider(key: str) -> OidcProvider:
    for provider in settings.SETPOINT_OIDC:
        if provider.key == key:
            assert isinstance(provider, OidcProvider)
            return provider
    raise Http404
