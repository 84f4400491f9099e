"""Single sign-on by SAML 2.0: to the provider and back, and the metadata that its administrator registers."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from accounts.access import login as logins
from accounts.providers import SamlProvider
from accounts.signon import arrival
from accounts.signon.refusals import SignOnRefused
from accounts.signon.saml import documents, requests, responses
from accounts.web.sign_on_views import begun, ended
from accounts.web.views import safe_next


@never_cache
@require_GET
def begin(request: HttpRequest, key: str) -> HttpResponse:
    """Send the browser to the provider. Another site's page cannot begin it: its visitor gets the log-in page."""
    provider = _provider(key)
    return begun(request, lambda wanted, again: requests.begin(request, provider, wanted, is_step_up=again))


# Exempt from Django's CSRF check, this address alone: the form is the provider's, which has no token of ours. In its
# place RelayState and InResponseTo are bound to a request that this browser's own session waits for, once, so that no
# other site brings a browser into a session that it chose.
@csrf_exempt
@never_cache
@require_POST
def answer(request: HttpRequest, key: str) -> HttpResponse:
    """End a log-in: the provider's page posts here.

    A post from another site brings no session cookie (SameSite=Lax). It is answered with a page of ours that posts the
    same again, which brings it; and with no cookie, which would replace the one with the request.
    """
    provider = _provider(key)
    relay, sent = request.POST.get("RelayState", ""), request.POST.get("SAMLResponse", "")
    if not requests.is_begun(request, provider, relay):
        if request.POST.get("again") or not sent or len(sent) > documents.LONGEST or len(relay) > 200:
            return ended(request, provider, requests.not_in_progress())
        context = {"provider": provider, "relay": relay, "sent": sent}
        return render(request, "accounts/saml.html", context)
    try:
        answered = responses.finish(request, provider)
        arrival.admit(request, provider, answered.claims)
    except SignOnRefused as refusal:
        return ended(request, provider, refusal)
    if answered.until is not None:
        request.session.set_expiry(min(answered.until, logins.latest_end()))
    if settings.SETPOINT_STEP_UP and not provider.trusts_authn_instant:
        messages.warning(
            request,
            f"{provider.name} is not known to tell when you logged in there (AuthnInstant), so that what takes a "
            "recent log-in is not possible for you. Tell the operator of this installation.",
        )
    return redirect(safe_next(request, answered.next) or settings.LOGIN_REDIRECT_URL)


@require_GET
def metadata(request: HttpRequest, key: str) -> HttpResponse:
    content = requests.metadata(_provider(key))
    return HttpResponse(content, content_type="application/samlmetadata+xml; charset=utf-8")


def _provider(key: str) -> SamlProvider:
    for provider in settings.SETPOINT_SAML:
        if provider.key == key:
            assert isinstance(provider, SamlProvider)
            return provider
    raise Http404
