"""The page of provisioning: tokens of SCIM clients, and the form that makes one. For administrators of everything."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from accounts.models import ScimClient, ScimGroup, ScimUser
from accounts.people import identities, pending
from accounts.permissions import GLOBAL, Role, may, require, require_audit
from accounts.scim import clients, resources
from accounts.web.forms import LinesField
from accounts.web.views import add_errors
from common.errors import Invalid
from common.requests import UserRequest


class ClientForm(forms.Form):
    provider = forms.ChoiceField(help_text="Its people and groups only are provisioned.")
    name = forms.CharField(max_length=80, help_text="By which you recognize it, such as the directory's application.")
    days = forms.IntegerField(
        label="Lifetime", min_value=1, max_value=clients.MOST_DAYS, initial=180,
        help_text=f"Days, at most {clients.MOST_DAYS}. Two tokens may be valid at once, so that one can be replaced.",
    )  # fmt: skip
    networks = LinesField(
        required=False, label="Address ranges", help_text="One a line, such as 10.0.0.0/8. None: every address."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["provider"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(row.key, row.name) for row in identities.providers()]


@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def clients_page(request: UserRequest) -> HttpResponse:
    """All tokens; a POST makes one."""
    require_audit(request.user, "see tokens for SCIM")
    if request.method == "POST":
        require(request.user, Role.ADMIN, GLOBAL, "make a token for SCIM")
    form = ClientForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        wishes = {**form.cleaned_data}
        provider = next(row for row in identities.providers() if row.key == wishes.pop("provider"))
        try:
            client, text = clients.issue(provider=provider, by=request.user, **wishes)
        except Invalid as refusal:
            add_errors(form, refusal)
        else:
            # Answered at once, not by a redirect: the text must be stored nowhere on its way to the page.
            return _page(request, ClientForm(), {"name": client.name, "text": text, "works": client.is_live})
    return _page(request, form, None, status=422 if form.errors else 200)


@require_POST
@login_required
def revoke(request: UserRequest, pk: str) -> HttpResponse:
    require(request.user, Role.ADMIN, GLOBAL, "revoke a token for SCIM")
    client = get_object_or_404(ScimClient, pk=pk)
    clients.revoke(client=client, by=request.user)
    messages.success(request, f"The token {client.name} is revoked; what used it is refused from now on.")
    return redirect("accounts:scim_clients")


def _page(request: UserRequest, form: ClientForm, made: dict[str, Any] | None, status: int = 200) -> HttpResponse:
    names = {row.issuer: row.name for row in identities.providers()}
    context = {
        "clients": [(row, names.get(row.issuer, "")) for row in ScimClient.objects.all()[:100]],
        "directories": _directories(names),
        "form": form,
        "new_token": made,
        "has_providers": bool(names),
        "may_change": may(request.user, Role.ADMIN, GLOBAL),
        "changes": [
            (row, pending.reason_not_to(row, request.user))
            for row in pending.waiting(request.user).filter(kind=clients.ENABLED)
        ],
        "endpoint": resources.location("", "").rstrip("/"),
    }
    return render(request, "accounts/provisioning.html", context, status=status)


def _directories(names: dict[str, str]) -> list[dict[str, Any]]:
    """Count what each provider's directory has sent."""
    people = ScimUser.objects.filter(deleted_at=None).values("issuer").order_by("issuer")
    counted = people.annotate(people=Count("pk"), active=Count("pk", filter=Q(is_active=True, user__is_active=True)))
    groups = dict(
        ScimGroup.objects.values("issuer").order_by("issuer").annotate(n=Count("pk")).values_list("issuer", "n")
    )
    return [{**row, "name": names.get(row["issuer"], row["issuer"]), "groups": groups.get(row["issuer"], 0)}
            for row in counted]  # fmt: skip
