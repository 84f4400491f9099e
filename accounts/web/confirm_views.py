"""Proving again who is before the browser, where something asks for a recent proof (accounts.access.freshness)."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.forms import Form
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from accounts.access import factors, freshness, passkey_logins, proofs
from accounts.access import login as logins
from accounts.models import Identity
from accounts.passkeys import keys
from accounts.people import identities
from accounts.providers import Provider
from accounts.web.forms import PresentPasswordForm, ProofForm
from accounts.web.views import add_errors, safe_next
from common.errors import Invalid, Refusal
from common.requests import UserRequest


@never_cache
@sensitive_post_parameters("password", "code")
@require_http_methods(["GET", "POST"])
@login_required
def confirm(request: UserRequest) -> HttpResponse:
    """Ask for the password again, and for the code of a second factor; or lead to the person's provider."""
    wanted = _wanted(request)
    form_class: type[Form] = ProofForm if factors.of(request.user) else PresentPasswordForm
    form = form_class(request.POST or None)
    status = 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            try:
                proofs.confirm(request, request.user, **form.cleaned_data)
            except Invalid as refusal:
                add_errors(form, refusal)
            except Refusal as refusal:
                form.add_error(None, str(refusal))
                status = refusal.status
            else:
                messages.success(request, "Confirmed.")
                return redirect(wanted or "accounts:account")
    return confirm_page(request, form, status=status)


def confirm_page(
    request: UserRequest, form: Form | None = None, *, refusal: str = "", status: int = 200
) -> HttpResponse:
    """Show each way to confirm that this person has here: a provider, a passkey, the password with its code."""
    user, providers, has_app = request.user, _providers(request), factors.of(request.user) is not None
    has_passkey = keys.has_any(user)
    is_local = user.has_usable_password() and logins.takes_password(user.email) and not providers
    context = {
        "form": form or (ProofForm() if has_app else PresentPasswordForm()),
        "next": _wanted(request),
        "providers": providers,
        "has_password": is_local and (has_app or not has_passkey),
        "has_passkey": is_local and has_passkey,
        "reason_without_passkeys": passkey_logins.reason_without(user),
        "proved_at": freshness.proved_at(request),
        "proved_by": freshness.proved_by(request),
        "refusal": refusal,
    }
    return render(request, "accounts/confirm.html", context, status=status)


def _wanted(request: UserRequest) -> str:
    return safe_next(request, request.POST.get("next") or request.GET.get("next", ""))


def _providers(request: UserRequest) -> list[Provider]:
    """Return the configured providers at which this person has an identity."""
    issuers = set(Identity.objects.filter(user=request.user).values_list("issuer", flat=True))
    return [provider for provider in identities.providers() if provider.issuer in issuers]
