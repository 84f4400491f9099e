"""The first-run page: the set-up token opens it, it makes the first administrator, and leads to the first cluster."""

from __future__ import annotations

from django.contrib import messages
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from accounts.access.login import TooManyTries
from accounts.people import setup
from accounts.web.forms import FirstAdministratorForm, SetupTokenForm
from common.errors import Invalid

NEXT = "clusters:connect"
"""An address by name, for this room knows none of clusters."""


@never_cache
@sensitive_post_parameters("password", "again", "token")
@require_http_methods(["GET", "POST"])
def first_run(request: HttpRequest) -> HttpResponse:
    """First-run set-up; 410 once an account exists. The token comes in the printed link, or is typed in."""
    if not setup.is_open():
        raise setup.SetupClosed
    token = (request.POST if request.method == "POST" else request.GET).get("token", "").strip()[:200]
    if not token:
        return _token_page(request)
    try:
        setup.check(request, token)
    except (setup.WrongToken, TooManyTries) as refusal:
        return _token_page(request, token, error=str(refusal), status=refusal.status)
    if request.method == "GET" or "email" not in request.POST:
        return _page(request, FirstAdministratorForm(initial={"token": token, "also_operates": True}))
    form = FirstAdministratorForm(request.POST)
    if form.is_valid():
        data = {name: value for name, value in form.cleaned_data.items() if name != "again"}
        try:
            user = setup.make_first_administrator(request, **data)
        except Invalid as refusal:
            for name, errors in refusal.fields.items():
                form.add_error(name if name in form.fields else None, errors)
        else:
            messages.success(request, f"You are {user.email}, an administrator. Next: connect the first cluster.")
            return redirect(NEXT)
    return _page(request, form, status=422)


def _token_page(request: HttpRequest, token: str = "", *, error: str = "", status: int = 200) -> HttpResponse:
    """Render the token form; a refused token is shown in its field with the reason."""
    form = SetupTokenForm({"token": token} if error else None)
    if error:
        form.add_error("token", error)
    return render(request, "accounts/setup.html", {"form": form, "step": 1}, status=status)


def _page(request: HttpRequest, form: Form, status: int = 200) -> HttpResponse:
    return render(request, "accounts/setup.html", {"form": form, "step": 2}, status=status)
