"""Passkeys in the browser: what its script asks for, as JSON, and the forms that it sends with the answer.

Without the script nothing here is used, and the log-in with password and code is as before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.forms import Form
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST

from accounts.access import halfway, passkey_enrollment, passkey_logins, typed
from accounts.models import User
from accounts.web import factor_views
from accounts.web.confirm_views import confirm_page
from accounts.web.forms import CodeForm, LoginForm, PasskeyForm
from accounts.web.views import (
    LOGIN_PAGE,
    after_login,
    ask_to_send,
    code_page,
    login_context,
    safe_next,
    wanted_page,
)
from common.errors import Refusal
from common.requests import UserRequest


def _options(make: Callable[[], dict[str, Any]]) -> JsonResponse:
    """Answer the page's script, which shows the message of a refusal."""
    try:
        return JsonResponse(make())
    except Refusal as refusal:
        texts = [text for each in refusal.fields.values() for text in each]
        return JsonResponse({"message": " ".join([*texts, str(refusal)])}, status=refusal.status)


# ── Log-in ────────────────────────────────────────────────────────────────────────────────────────────────────────────
@never_cache
@require_POST
def log_in_options(request: HttpRequest) -> JsonResponse:
    return _options(lambda: passkey_logins.options_for_log_in(request))


@never_cache
@require_POST
@sensitive_post_parameters("response")
def log_in(request: HttpRequest) -> HttpResponse:
    if isinstance(request.user, User):
        return redirect(after_login(request))
    try:
        passkey_logins.log_in(request, request.POST.get("response", ""))
    except Refusal as refusal:
        context = {
            **login_context(request, LoginForm(), wanted_page(request)),
            "refusal": {"message": str(refusal), "advice": ""},
            "kept": request.POST.get("kept", ""),
        }
        return render(request, LOGIN_PAGE, context, status=refusal.status)
    return _logged_in(request)


@never_cache
@require_POST
def second_step_options(request: HttpRequest) -> JsonResponse:
    return _options(lambda: passkey_logins.options_for_second_step(request))


@never_cache
@require_POST
@sensitive_post_parameters("response")
def second_step(request: HttpRequest) -> HttpResponse:
    """The passkey after a password that was right in this browser."""
    if isinstance(request.user, User):
        return redirect(after_login(request))
    try:
        passkey_logins.log_in_after_password(request, request.POST.get("response", ""))
    except halfway.HalfwayOver as over:
        return factor_views.log_in_again(request, over)
    except Refusal as refusal:
        return code_page(request, CodeForm(), refusal=str(refusal), status=refusal.status)
    return _logged_in(request)


def _logged_in(request: HttpRequest) -> HttpResponse:
    typed_input = typed.opened(request, request.POST.get("kept", ""))
    return ask_to_send(request, typed_input) if typed_input else redirect(after_login(request))


# ── A recent log-in ───────────────────────────────────────────────────────────────────────────────────────────────────
@never_cache
@require_POST
@login_required
def confirm_options(request: UserRequest) -> JsonResponse:
    return _options(lambda: passkey_logins.options_to_confirm(request, request.user))


@never_cache
@require_POST
@login_required
@sensitive_post_parameters("response")
def confirm(request: UserRequest) -> HttpResponse:
    try:
        passkey_logins.confirm(request, request.user, request.POST.get("response", ""))
    except Refusal as refusal:
        return confirm_page(request, refusal=str(refusal), status=refusal.status)
    messages.success(request, "Confirmed.")
    return redirect(safe_next(request, request.POST.get("next", "")) or "accounts:account")


# ── One's own ─────────────────────────────────────────────────────────────────────────────────────────────────────────
@never_cache
@require_POST
@login_required
@sensitive_post_parameters("password")
def register_options(request: UserRequest) -> JsonResponse:
    password = request.POST.get("password", "")
    return _options(lambda: passkey_enrollment.options(request, request.user, password=password))


@never_cache
@require_POST
@login_required
@sensitive_post_parameters("password", "response")
def register(request: UserRequest) -> HttpResponse:
    form: Form = PasskeyForm(request.POST)
    if not form.is_valid():
        return factor_views.page(request, {"passkey_form": form}, status=422)
    data = form.cleaned_data
    sent = {"password": data["password"], "name": data["name"], "text": data["response"]}
    try:
        row = passkey_enrollment.register(request, user=request.user, **sent)
    except Refusal as refusal:
        return factor_views.refused(request, "passkey_form", form, refusal)
    messages.success(request, f"The passkey {row.name} is registered.")
    return redirect("accounts:second_factor")


@never_cache
@require_POST
@login_required
def remove(request: UserRequest, pk: UUID) -> HttpResponse:
    try:
        row = passkey_enrollment.remove(request, user=request.user, pk=pk)
    except Refusal as refusal:
        return factor_views.page(request, passkey_refusal=str(refusal), status=refusal.status)
    messages.success(request, f"The passkey {row.name} is removed. Other browsers are logged out.")
    return redirect("accounts:second_factor")
