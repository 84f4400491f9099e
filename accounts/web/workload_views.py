"""The page of workload identity: rules, and the form that makes one. For administrators of everything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from accounts.access.tokens import MOST_MINUTES
from accounts.models import User, WorkloadRule
from accounts.people import pending
from accounts.people.pending import Proposed
from accounts.permissions import GLOBAL, Role, may, require, require_audit
from accounts.web.forms import LinesField
from accounts.web.views import add_errors
from accounts.workloads import rules
from common.clock import now
from common.errors import Invalid
from common.requests import UserRequest

CONDITIONS = "repository = acme/infra\nref = refs/heads/main"


class RuleForm(forms.Form):
    name = forms.CharField(max_length=40, help_text="Lowercase letters, digits and -.")
    issuer = forms.CharField(
        max_length=rules.LONGEST_URL,
        help_text="The claim iss of its tokens: https://token.actions.githubusercontent.com, https://gitlab.com, or "
        "the service account issuer of a cluster.",
    )
    audience = forms.CharField(
        max_length=rules.LONGEST_URL, help_text="The workload asks its issuer for a token for exactly this audience."
    )
    conditions = LinesField(
        placeholder=CONDITIONS,
        help_text="One a line: claim = value. All must hold. * matches any characters but / and :. Runs for pull "
        "requests are refused unless event_name or pipeline_source is named.",
    )
    account = forms.ModelChoiceField(
        User.objects.filter(is_active=True, is_service=True).order_by("email"),
        label="Acts as",
        empty_label="Choose a service account",
        help_text="Its roles are what the workload may do, within the scopes below.",
    )
    scopes = forms.MultipleChoiceField(
        choices=[(scope, scope) for scope in rules.SCOPES],
        widget=forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"}),
        initial=["read"],
        help_text="admin needs a second administrator's consent. A workload never approves.",
    )
    minutes = forms.IntegerField(
        label="Lifetime", min_value=1, max_value=MOST_MINUTES, initial=15, help_text=f"Minutes, at most {MOST_MINUTES}."
    )
    may_repeat = forms.BooleanField(
        required=False,
        label="Accept the same token more than once",
        help_text="For pods, whose projected token stays the same for an hour.",
    )
    networks = LinesField(required=False, label="Address ranges", help_text="One a line, such as 10.0.0.0/8.")
    keys = forms.CharField(
        required=False,
        max_length=20_000,
        widget=forms.Textarea(attrs={"rows": 3, "class": "mono", "spellcheck": "false"}),
        help_text="A JSON Web Key Set, for an issuer that cannot be reached from here: "
        "kubectl get --raw /openid/v1/jwks. Left out: the issuer's discovery document is read.",
    )

    def clean_conditions(self) -> dict[str, str]:
        conditions: dict[str, str] = {}
        for line in self.cleaned_data["conditions"]:
            claim, equals, value = (part.strip() for part in line.partition("="))
            if not equals or not claim:
                raise forms.ValidationError(f"Write claim = value, not {line[:60]!r}.")
            if claim in conditions:
                raise forms.ValidationError(f"{claim} is there twice: make a rule for each value.")
            conditions[claim] = value
        return conditions

    def clean_keys(self) -> Any:
        text = self.cleaned_data["keys"].strip()
        try:
            return json.loads(text) if text else {}
        except (ValueError, RecursionError):
            raise forms.ValidationError("This is no JSON.") from None


@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def workloads(request: UserRequest) -> HttpResponse:
    """All rules; a POST makes one."""
    require_audit(request.user, "see rules for workloads")
    if request.method == "POST":
        require(request.user, Role.ADMIN, GLOBAL, "make a rule for workloads")
    form = RuleForm(request.POST or None, initial={"audience": rules.default_audience()})
    if request.method == "POST" and form.is_valid():
        try:
            done = rules.make(by=request.user, **_wishes(form.cleaned_data))
        except Invalid as refusal:
            add_errors(form, refusal)
        else:
            return _done(request, done, "Workloads that meet it can exchange their tokens.")
    live = Count("tokens", filter=Q(tokens__revoked_at=None, tokens__expires_at__gt=now()))
    context = {
        "rules": WorkloadRule.objects.select_related("account").annotate(live=live),
        "form": form,
        "may_change": may(request.user, Role.ADMIN, GLOBAL),
        "changes": [
            (row, pending.reason_not_to(row, request.user))
            for row in pending.waiting(request.user).filter(kind__in=(rules.MADE, rules.ENABLED))
        ],
        "endpoint": f"{rules.default_audience()}/oauth/token",
    }
    return render(request, "accounts/workloads.html", context, status=422 if form.errors else 200)


@require_POST
@login_required
def set_enabled(request: UserRequest, pk: UUID, is_enabled: bool) -> HttpResponse:
    rule = _rule(request, pk)
    done = rules.set_enabled(rule=rule, is_enabled=is_enabled, by=request.user)
    return _done(request, done, "Its tokens ended." if not is_enabled else "It accepts tokens again.")


@require_POST
@login_required
def delete(request: UserRequest, pk: UUID) -> HttpResponse:
    rule = _rule(request, pk)
    rules.delete(rule=rule, by=request.user)
    messages.success(request, f"The rule {rule.name} is deleted. Its tokens ended.")
    return redirect("accounts:workloads")


def _rule(request: UserRequest, pk: UUID) -> WorkloadRule:
    require(request.user, Role.ADMIN, GLOBAL, "change rules for workloads")
    return get_object_or_404(WorkloadRule, pk=pk)


def _wishes(data: Mapping[str, Any]) -> dict[str, Any]:
    account: User = data["account"]
    return {**data, "account": account.email}


def _done(request: HttpRequest, done: WorkloadRule | Proposed, text: str) -> HttpResponse:
    if isinstance(done, Proposed):
        messages.success(request, "Proposed: it takes effect when another administrator consents.")
    else:
        messages.success(request, f"{done.name}: {text}")
    return redirect("accounts:workloads")
