"""The page of one account's address ranges."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from accounts.access.addresses import client_address
from accounts.models import User
from accounts.people import limits
from accounts.people.pending import Proposed
from accounts.permissions import GLOBAL, Role, require
from accounts.web.forms import LinesField
from accounts.web.views import add_errors
from common.errors import Invalid
from common.requests import UserRequest


class LimitForm(forms.Form):
    networks = LinesField(
        required=False, label="Address ranges", help_text="One a line, such as 10.0.0.0/8. None: every address."
    )


@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def person_limit(request: UserRequest, pk: int) -> HttpResponse:
    require(request.user, Role.ADMIN, GLOBAL, "limit an account to address ranges")
    user = get_object_or_404(User, pk=pk)
    present = {"networks": "\n".join(user.networks.split())}
    form = LimitForm(request.POST if request.method == "POST" else None, initial=present)
    address = client_address(request)
    if request.method == "POST" and form.is_valid():
        try:
            done = limits.limit(user=user, by=request.user, address=address, **form.cleaned_data)
        except Invalid as refusal:
            add_errors(form, refusal)
        else:
            messages.success(request, _in_words(done))
            return redirect("accounts:people")
    context = {"person": user, "form": form, "address": address}
    return render(request, "accounts/limit.html", context, status=422 if form.errors else 200)


def _in_words(done: User | Proposed) -> str:
    if isinstance(done, Proposed):
        return "Proposed: it takes effect when another administrator consents."
    ranges = ", ".join(done.networks.split())
    return f"{done.email} is accepted from {f'{ranges} only' if ranges else 'every address'}."
