"""The page of people and roles: adding, resetting, roles, and changes that wait for a second administrator's consent.

Codes and links are answered at once, not by a redirect: their text must be stored nowhere on its way to the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.db.models import Exists, OuterRef
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from accounts.access import sessions
from accounts.models import Passkey, RoleBinding, User
from accounts.people import bootstrap, invitations, pending, scopes, services
from accounts.people.invitations import Link
from accounts.people.pending import Proposed
from accounts.permissions import GLOBAL, Role, may, require, require_audit
from accounts.web.forms import BindingForm, LinkForm, PersonForm
from accounts.web.views import add_errors
from common.errors import Invalid
from common.requests import UserRequest

PEOPLE = 100
"""Rows of a page."""


@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def people(request: UserRequest) -> HttpResponse:
    """All accounts with their roles; a POST adds one. For administrators of everything; auditors read it."""
    require_audit(request.user, "see people and roles")
    if request.method == "POST":
        require(request.user, Role.ADMIN, GLOBAL, "add people")
    form = PersonForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            user, link = services.add_user(**form.cleaned_data, by=request.user)
        except Invalid as refusal:
            add_errors(form, refusal)
        else:
            messages.success(request, f"{user.email} can now be given roles.")
            return _people(request, made=_delivered(link)) if link else redirect("accounts:people")
    return _people(request, form=form, status=422 if form.errors else 200)


@require_POST
@login_required
def person_change(request: UserRequest, pk: int) -> HttpResponse:
    """`is_active`: 1 or 0."""
    user = get_object_or_404(User, pk=pk)
    active = request.POST.get("is_active") == "1"
    done = services.change_user(user=user, by=request.user, is_active=active)
    if isinstance(done, Proposed):
        return _waits(request, done)
    messages.success(request, f"{user.email} is {'active' if active else 'deactivated; sessions and tokens ended'}.")
    return redirect("accounts:people")


@require_POST
@login_required
def person_reset(request: UserRequest, pk: int) -> HttpResponse:
    done = services.reset_password(user=get_object_or_404(User, pk=pk), by=request.user)
    return _waits(request, done) if isinstance(done, Proposed) else _people(request, made=_delivered(done))


@require_POST
@login_required
def role_grant(request: UserRequest) -> HttpResponse:
    require(request.user, Role.ADMIN, GLOBAL, "give roles")
    form = BindingForm(request.POST)
    if form.is_valid():
        try:
            binding = services.bind(**form.cleaned_data, by=request.user)
        except Invalid as refusal:
            add_errors(form, refusal)
        else:
            if isinstance(binding, Proposed):
                return _waits(request, binding)
            where = scopes.named(binding.scope, form.names)
            messages.success(request, f"{binding.user} is now {binding.role} {where}.")
            return redirect("accounts:people")
    return _people(request, binding_form=form, status=422)


@require_POST
@login_required
def role_revoke(request: UserRequest, pk: int) -> HttpResponse:
    binding = get_object_or_404(RoleBinding.objects.select_related("user"), pk=pk)
    services.unbind(binding=binding, by=request.user)
    where = scopes.named(binding.scope, scopes.names())
    messages.success(request, f"{binding.user} is no longer {binding.role} {where}.")
    return redirect("accounts:people")


@require_POST
@login_required
def change_decide(request: UserRequest, pk: UUID, verb: str) -> HttpResponse:
    """`verb`: consent or refuse."""
    if verb == "refuse":
        row = pending.refuse(pk=pk, by=request.user)
        messages.success(request, f"{row.get_status_display()}: {row.about}")
        return redirect("accounts:people")
    row, link = pending.consent(pk=pk, by=request.user)
    messages.success(request, f"Done: {row.about}")
    return _people(request, made=_delivered(link)) if link else redirect("accounts:people")


@never_cache
@sensitive_post_parameters("password", "again", "code")
@require_http_methods(["GET", "POST"])
def link(request: HttpRequest, secret: str) -> HttpResponse:
    """Page of a link, on which its owner sets their password."""
    invitation = invitations.find(request, secret)
    form = LinkForm(request.POST if request.method == "POST" else None, needs_code=bool(invitation.code_hash))
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        try:
            invitations.use(request, secret=secret, password=data["password"], code=data.get("code", ""))
        except Invalid as refusal:
            add_errors(form, refusal)
        else:
            messages.success(request, "Your password is set. Log in with it.")
            return redirect("accounts:login")
    context = {"form": form, "email": invitation.user.email, "secret": secret}
    return render(request, "accounts/link.html", context, status=422 if form.errors else 200)


def _waits(request: UserRequest, done: Proposed) -> HttpResponse:
    messages.success(request, "Proposed: it takes effect when another administrator consents.")
    if not done.code:
        return redirect("accounts:people")
    return _people(request, made={"code": done.code, "about": done.change.about})


def _delivered(link: Link) -> Mapping[str, Any]:
    """Mails it where it is mailed."""
    return {"link": link, "mail_error": invitations.deliver(link)}


def _people(
    request: UserRequest,
    *,
    form: Form | None = None,
    binding_form: BindingForm | None = None,
    made: Mapping[str, Any] | None = None,
    status: int = 200,
) -> HttpResponse:
    everybody = (
        User.objects.order_by("-is_active", "email")
        .annotate(has_passkey=Exists(Passkey.objects.filter(user=OuterRef("pk"))))
        .prefetch_related("bindings")
        .select_related("identity", "second_factor")
    )
    page = Paginator(everybody, PEOPLE).get_page(request.GET.get("page"))
    binding_form = binding_form or BindingForm()
    live = sessions.counts([person.pk for person in page])
    context = {
        "page_obj": page,
        "rows": [
            {
                "person": person,
                "sessions": live.get(person.pk, 0),
                "roles": [
                    (binding, scopes.named(binding.scope, binding_form.names)) for binding in person.bindings.all()
                ],
            }
            for person in page
        ],
        "form": form or PersonForm(),
        "binding_form": binding_form,
        "made": made,
        "may_change": may(request.user, Role.ADMIN, GLOBAL),
        "changes": [(row, pending.reason_not_to(row, request.user)) for row in pending.waiting(request.user)[:PEOPLE]],
        "is_alone": bootstrap.is_alone(),
        "is_mailed": invitations.is_mail_set_up(),
    }
    return render(request, "accounts/people.html", context, status=status)
