"""Pages of the second factor: the code at log-in, and setting it up or taking it away on one's account.

Keys and recovery codes are answered at once, not by a redirect: their text must be stored nowhere on its way to the
page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import enrollment, factors, freshness, halfway, passkey_logins, requirement, typed
from accounts.access import login as logins
from accounts.access.enrollment import Begun
from accounts.browsers import described
from accounts.models import User
from accounts.passkeys import keys
from accounts.people import factor_resets
from accounts.web import qr
from accounts.web.forms import CodeForm, LoginForm, PasskeyForm, PresentPasswordForm, ProofForm
from accounts.web.views import (
    LOGIN_PAGE,
    add_errors,
    after_login,
    ask_to_send,
    code_page,
    login_context,
    tries_in_words,
    wanted_page,
)
from common.errors import Invalid, Refusal
from common.requests import UserRequest


# ── At log-in ─────────────────────────────────────────────────────────────────────────────────────────────────────────
@never_cache
@sensitive_post_parameters("code")
@require_http_methods(["GET", "POST"])
def login_code(request: HttpRequest) -> HttpResponse:
    """The second step of a log-in whose password was right in this browser."""
    if isinstance(request.user, User):
        return redirect(after_login(request))
    try:
        half = halfway.read(request)
    except halfway.HalfwayOver as over:
        return redirect("accounts:login") if request.method == "GET" else log_in_again(request, over)
    if request.method == "GET":
        return code_page(request)
    form = CodeForm(request.POST)
    if not form.is_valid():
        return code_page(request, form, status=422)
    typed_input = typed.opened(request, request.POST.get("kept", ""))
    try:
        proof = logins.log_in_with_code(request, code=form.cleaned_data["code"])
    except halfway.HalfwayOver as over:
        return log_in_again(request, over)
    except logins.WrongCode as error:
        form.add_error("code", f"{error} {tries_in_words(error.tries_left)}")
        return code_page(request, form, status=401)
    except (logins.TooManyTries, factors.FactorUnusable) as refusal:
        form.add_error(None, str(refusal))
        return code_page(request, form, status=refusal.status)
    _warn(request, half, proof)
    return ask_to_send(request, typed_input) if typed_input else redirect(after_login(request))


def _warn(request: HttpRequest, half: halfway.Halfway, proof: str) -> None:
    """Tell the owner of wrong codes that may be a thief's, and of recovery codes that run out."""
    if half.factor is None:
        return
    if wrong := half.factor.wrong_codes:
        codes = "1 wrong code was" if wrong == 1 else f"{wrong} wrong codes were"
        text = f"{codes} entered after your password since the last right one. If not by you, change your password now."
        messages.warning(request, text)
    if proof == factors.RECOVERY:
        left = half.factor.recovery_codes.count()
        codes = "1 recovery code is" if left == 1 else f"{left} recovery codes are"
        messages.warning(request, f"{codes} left. Under Account, Second factor, you replace them.")


def log_in_again(request: HttpRequest, over: halfway.HalfwayOver) -> HttpResponse:
    context = {
        **login_context(request, LoginForm(), wanted_page(request)),
        "refusal": {"message": str(over), "advice": ""},
        "kept": request.POST.get("kept", ""),
    }
    return render(request, LOGIN_PAGE, context, status=over.status)


# ── One's own ─────────────────────────────────────────────────────────────────────────────────────────────────────────
@never_cache
@require_GET
@login_required
def second_factor(request: UserRequest) -> HttpResponse:
    return page(request)


@never_cache
@require_POST
@login_required
@sensitive_post_parameters("password")
def begin(request: UserRequest) -> HttpResponse:
    form = PresentPasswordForm(request.POST)
    if form.is_valid():
        try:
            return page(request, begun=enrollment.begin(request, user=request.user, **form.cleaned_data))
        except Refusal as refusal:
            return refused(request, "begin_form", form, refusal)
    return page(request, {"begin_form": form}, status=422)


@never_cache
@require_POST
@login_required
@sensitive_post_parameters("code")
def confirm(request: UserRequest) -> HttpResponse:
    form = CodeForm(request.POST)
    if form.is_valid():
        try:
            codes = enrollment.confirm(request, user=request.user, **form.cleaned_data)
        except Refusal as refusal:
            return refused(request, "confirm_form", form, refusal)
        return page(request, codes=codes)
    return page(request, {"confirm_form": form}, status=422)


@never_cache
@require_POST
@login_required
@sensitive_post_parameters("password", "code")
def remove(request: UserRequest) -> HttpResponse:
    form = ProofForm(request.POST, prefix="remove")
    if form.is_valid():
        try:
            enrollment.remove(request, user=request.user, **form.cleaned_data)
        except Refusal as refusal:
            return refused(request, "remove_form", form, refusal)
        has_passkey = keys.has_any(request.user)
        then = "your passkeys remain." if has_passkey else "your password alone logs you in."
        messages.success(request, f"The second factor is removed: {then}")
        return redirect("accounts:second_factor")
    return page(request, {"remove_form": form}, status=422)


@never_cache
@require_POST
@login_required
@sensitive_post_parameters("password", "code")
def renew(request: UserRequest) -> HttpResponse:
    form = ProofForm(request.POST, prefix="renew")
    if form.is_valid():
        try:
            codes = enrollment.renew_recovery_codes(request, user=request.user, **form.cleaned_data)
        except Refusal as refusal:
            return refused(request, "renew_form", form, refusal)
        return page(request, codes=codes)
    return page(request, {"renew_form": form}, status=422)


def refused(request: UserRequest, name: str, form: Form, refusal: Refusal) -> HttpResponse:
    if isinstance(refusal, Invalid):
        add_errors(form, refusal)
    else:
        form.add_error(None, str(refusal))
    return page(request, {name: form}, status=refusal.status)


def page(
    request: UserRequest,
    forms: Mapping[str, Form] | None = None,
    *,
    begun: Begun | None = None,
    codes: list[str] | None = None,
    passkey_refusal: str = "",
    status: int = 200,
) -> HttpResponse:
    factor = factors.of(request.user)
    if factor is None and begun is None:
        begun = enrollment.waiting_for(request, request.user)
    context: dict[str, Any] = {
        "factor": factor,
        "codes_left": factor.recovery_codes.count() if factor else 0,
        "begun": begun,
        "qr": qr.drawing_of(begun.link) if begun else None,
        "codes": codes,
        "reason_without": "" if factor else factors.reason_without(request.user),
        "is_missing": requirement.is_missing(request),
        "is_required": requirement.is_required_of(request.user),
        "begin_form": PresentPasswordForm(),
        "confirm_form": CodeForm(),
        "remove_form": ProofForm(prefix="remove"),
        "renew_form": ProofForm(prefix="renew"),
        "passkeys": keys.of(request.user),
        "most_passkeys": keys.MOST,
        "reason_without_passkeys": passkey_logins.reason_without(request.user),
        "is_recent": not freshness.is_stale(freshness.proved_at(request)),
        "passkey_form": PasskeyForm(initial={"name": described(request.headers.get("User-Agent", ""))}),
        "passkey_refusal": passkey_refusal,
        **(forms or {}),
    }
    return render(request, "accounts/second_factor.html", context, status=status)


# ── Another person's ──────────────────────────────────────────────────────────────────────────────────────────────────
@require_POST
@login_required
def person_reset(request: UserRequest, pk: int) -> HttpResponse:
    user = get_object_or_404(User, pk=pk)
    if factor_resets.reset(user=user, by=request.user):
        messages.success(request, "Proposed: it takes effect when another administrator consents.")
    else:
        messages.success(request, f"{user.email} logs in with the password alone; sessions ended.")
    return redirect("accounts:people")
