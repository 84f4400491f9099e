"""Logging in and out, and one's own account: roles, tokens, password, theme."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import factors, halfway, passkey_logins, proofs, sessions, tokens, typed
from accounts.access import login as logins
from accounts.models import User
from accounts.passkeys import keys, relying_party
from accounts.people import identities, scopes, services, setup
from accounts.web.forms import CodeForm, LoginForm, PasswordForm, ThemeForm, TokenForm
from common.errors import Invalid
from common.requests import UserRequest

LOGIN_PAGE = "accounts/login.html"
CODE_PAGE = "accounts/login_code.html"


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
def login(request: HttpRequest) -> HttpResponse:
    if isinstance(request.user, User):
        return redirect(after_login(request))
    form = LoginForm(request.POST or None)
    context = {**login_context(request, form, wanted_page(request)), "error": "", "tries_left": None}
    kept = request.POST.get("kept", "")
    typed_input = typed.opened(request, kept)
    if typed_input:
        context |= {"typed": typed_input, "kept": kept}
    status = 200
    if request.method == "POST" and form.is_valid():
        try:
            if logins.log_in(request, **form.cleaned_data) is None:
                return code_page(request)
            return ask_to_send(request, typed_input) if typed_input else redirect(after_login(request))
        except logins.WrongPassword as error:
            status, context["tries_left"] = 401, error.tries_left
            context["error"] = f"Email or password is wrong. {tries_in_words(error.tries_left)}"
        except logins.TooManyTries as error:
            status, context["tries_left"] = error.status, 0
            context["error"] = str(error)
        except logins.PasswordsClosed as error:
            status, context["error"] = error.status, str(error)
        form.add_error(None, str(context["error"]))
    return render(request, LOGIN_PAGE, context, status=status)


def login_context(request: HttpRequest, form: Form, next_url: str) -> dict[str, Any]:
    """Return the context of the log-in page. `next_url`: the page to go to afterwards, judged already."""
    return {
        "form": form,
        "next": next_url,
        "is_new": setup.is_open(),
        "providers": identities.providers(),
        "has_emergency_only": bool(settings.SETPOINT_LOCAL_ACCOUNTS),
        "has_passkeys": not relying_party.reason_without(),
    }


def code_page(request: HttpRequest, form: Form | None = None, *, refusal: str = "", status: int = 200) -> HttpResponse:
    """Ask for a passkey or the code of a second factor; the forms carry along what the log-in page carried."""
    half = halfway.read(request)
    context = {
        "form": form or CodeForm(),
        "has_app": half.factor is not None,
        "has_passkey": keys.has_any(half.user),
        "reason_without_passkeys": passkey_logins.reason_without(half.user),
        "refusal": refusal,
        "next": wanted_page(request),
        "kept": request.POST.get("kept", ""),
    }
    return render(request, CODE_PAGE, context, status=status)


def session_ended(request: HttpRequest) -> HttpResponse:
    """The answer to a POST of ours whose session is over: the log-in page, which says why and carries what was typed.

    Only for requests of which it is known that one of our own pages sent them (accounts.access.typed).
    """
    if request.headers.get("HX-Request"):
        return say_ended(
            HttpResponse("Your session has ended.\n", content_type="text/plain; charset=utf-8", status=401)
        )
    typed_input = typed.read(request)
    context = {
        **login_context(request, LoginForm(), typed_input.back),
        "ended": True,
        "typed": typed_input,
        "kept": "" if typed_input.is_empty else typed.seal(request, typed_input),
    }
    return render(request, LOGIN_PAGE, context, status=401)


def say_ended(response: HttpResponse) -> HttpResponse:
    """Mark the response for the page's script, which then keeps the input and tells the user."""
    response["Setpoint-Session"] = "ended"
    return response


def ask_to_send(request: HttpRequest, typed_input: typed.Typed, *, status: int = 200) -> HttpResponse:
    """Show the input with a button that sends it: nothing is posted by itself."""
    assert isinstance(request.user, User)
    return render(request, "accounts/typed.html", typed.shown_to(request.user, typed_input), status=status)


@require_POST
def logout(request: HttpRequest) -> HttpResponse:
    logins.log_out(request)
    return redirect(settings.LOGIN_URL)


@require_GET
@login_required
def account(request: UserRequest) -> HttpResponse:
    return _page(request)


@require_POST
@login_required
def token_create(request: UserRequest) -> HttpResponse:
    form = TokenForm(request.POST)
    if form.is_valid():
        try:
            token, text = tokens.issue(user=request.user, by=request.user, **form.cleaned_data)
        except Invalid as refusal:
            add_errors(form, refusal)
        else:
            # Answered at once, not by a redirect: the text must be stored nowhere on its way to the page.
            return _page(request, new_token={"name": token.name, "text": text})
    return _page(request, token_form=form, status=422)


@require_POST
@login_required
def token_revoke(request: UserRequest, pk: str) -> HttpResponse:
    token = tokens.revoke(token=tokens.get(request.user, pk), by=request.user)
    messages.success(request, f"The token {token.name} is revoked; what used it is refused from now on.")
    return redirect("accounts:account")


@require_POST
@login_required
@sensitive_post_parameters("old", "new")
def password(request: UserRequest) -> HttpResponse:
    form = PasswordForm(request.POST)
    status = 422
    if form.is_valid():
        try:
            proofs.require_password(request, request.user, form.cleaned_data["old"], field="old")
            before = sessions.key_of(request)
            services.set_password(user=request.user, password=form.cleaned_data["new"], by=request.user, keep=before)
        except logins.TooManyTries as refusal:
            status = refusal.status
            form.add_error("old", str(refusal))
        except Invalid as refusal:
            for name, errors in refusal.fields.items():
                form.add_error("new" if name == "password" else name, errors)
        else:
            update_session_auth_hash(request, request.user)  # the other sessions ended, this one continues
            sessions.renamed(before, sessions.key_of(request))
            messages.success(request, "The password is changed. Other browsers are logged out.")
            return redirect("accounts:account")
    return _page(request, password_form=form, status=status)


@require_POST
@login_required
def theme(request: UserRequest) -> HttpResponse:
    form = ThemeForm(request.POST)
    if form.is_valid():
        User.objects.filter(pk=request.user.pk).update(theme=form.cleaned_data["theme"])
    return redirect(wanted_page(request) or "accounts:account")


def _page(
    request: UserRequest,
    *,
    token_form: Form | None = None,
    password_form: Form | None = None,
    new_token: dict[str, str] | None = None,
    status: int = 200,
) -> HttpResponse:
    user, names = request.user, scopes.names()
    context = {
        "tokens": user.tokens.all(),
        "sessions": sessions.own(user),
        "this_key": sessions.key_of(request),
        "bindings": [(row, scopes.named(row.scope, names)) for row in user.bindings.order_by("scope", "role")],
        "new_token": new_token,
        "form": token_form or TokenForm(),
        "password_form": password_form or PasswordForm(),
        "factor": factors.of(user),
        "passkeys": keys.of(user),
        "theme_form": ThemeForm(initial={"theme": user.theme}),
    }
    return render(request, "accounts/account.html", context, status=status)


def add_errors(form: Form, refusal: Invalid) -> None:
    for name, errors in refusal.fields.items():
        form.add_error(name if name in form.fields else None, errors)


def tries_in_words(left: int) -> str:
    if left == 0:
        return "That was the last attempt before a pause of one minute."
    return f"{left} more {'try' if left == 1 else 'tries'} before a pause of one minute."


def wanted_page(request: HttpRequest) -> str:
    """`next`, if it is a path of this server: of a bare word `redirect` would make a page's name, or fail to."""
    return safe_next(request, request.POST.get("next") or request.GET.get("next") or "")


def safe_next(request: HttpRequest, url: str) -> str:
    """Return `url` if it is a path of this server, else nothing."""
    if not url.startswith("/"):
        return ""
    is_ours = url_has_allowed_host_and_scheme(url, {request.get_host()}, require_https=request.is_secure())
    return url if is_ours else ""


def after_login(request: HttpRequest) -> str:
    return wanted_page(request) or resolve_url(settings.LOGIN_REDIRECT_URL)
