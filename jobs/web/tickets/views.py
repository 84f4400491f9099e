"""Page of change records: rules of environments and connections of ticket systems; and the reference of a plan.

Contexts:
change_records.html     rules, form (ChangeRecordRuleForm), connections [(row, path)], connection_form, why_not
"""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse

from accounts.people.pending import Proposed
from clusters.web.forms import add_errors
from common.errors import Invalid, NotAllowed, Refusal, Stale
from common.requests import UserRequest, posted_version
from jobs.approvals.tickets import connections, references, rulebook
from jobs.models import ChangeRecordRule, TicketConnection
from jobs.reports import selectors
from jobs.web import views
from jobs.web.tickets.forms import ChangeRecordRuleForm, TicketConnectionForm

WAITS = "Proposed: some plan could start with less, so it takes effect when another administrator consents."


@views.require_safe_or_post
@login_required
def change_records(request: UserRequest) -> HttpResponse:
    """POST writes the rule of an environment, or changes the version of it that `?environment=` showed."""
    if request.method != "POST":
        shown = ChangeRecordRule.objects.filter(environment=request.GET.get("environment", "")).first()
        form = ChangeRecordRuleForm(initial=_initial(shown) if shown else None)
        return _page(request, form, TicketConnectionForm(auto_id="connection_%s"))
    form = ChangeRecordRuleForm(request.POST)
    if form.is_valid():
        fields = dict(form.cleaned_data)
        version, shown_environment = fields.pop("version") or 0, fields.pop("shown")
        row = ChangeRecordRule.objects.filter(environment=fields["environment"]).first()
        try:
            if version and fields["environment"] != shown_environment:
                what = "This form shows another environment's rule: open that of this one, or set a new rule."
                raise Invalid("The rule is not valid.", fields={"environment": [what]})
            if row is None and version:
                raise Stale("The rule was deleted meanwhile. Reload the page.")
            if row and version:
                done = rulebook.change(row, by=request.user, version=version, **fields)
            else:
                done = rulebook.create(by=request.user, **fields)
        except Refusal as refusal:
            add_errors(form, refusal)
        else:
            text = WAITS if isinstance(done, Proposed) else f"The rule of {fields['environment']} applies from now on."
            messages.success(request, text)
            return redirect("jobs:change_records")
    return _page(request, form, TicketConnectionForm(auto_id="connection_%s"))


@views.require_safe_or_post
@login_required
def rule_delete(request: UserRequest, pk: int) -> HttpResponse:
    if request.method != "POST":
        return redirect("jobs:change_records")
    row = get_object_or_404(ChangeRecordRule, pk=pk)
    try:
        done = rulebook.delete(row, by=request.user, version=posted_version(request))
    except Refusal as refusal:
        messages.error(request, str(refusal))
    else:
        messages.success(request, WAITS if done else f"Plans of {row.environment} need no change record from now on.")
    return redirect("jobs:change_records")


@views.require_safe_or_post
@login_required
def connection_new(request: UserRequest) -> HttpResponse:
    if request.method != "POST":
        return redirect("jobs:change_records")
    form = TicketConnectionForm(request.POST, auto_id="connection_%s")
    if form.is_valid():
        try:
            row = connections.create(by=request.user, **form.cleaned_data)
        except Refusal as refusal:
            add_errors(form, refusal)
        else:
            text = f"{row.name} may hold and release change records " + (
                "from now on." if row.is_active else "when another administrator consents."
            )
            messages.success(request, text)
            return redirect("jobs:change_records")
    return _page(request, ChangeRecordRuleForm(), form)


@views.require_safe_or_post
@login_required
def connection_delete(request: UserRequest, pk: UUID) -> HttpResponse:
    if request.method != "POST":
        return redirect("jobs:change_records")
    if reason := connections.reason_not_to_change(request.user):
        raise NotAllowed(reason)
    row = get_object_or_404(TicketConnection, pk=pk)
    try:
        connections.delete(row, by=request.user, version=posted_version(request))
    except Refusal as refusal:
        messages.error(request, str(refusal))
    else:
        messages.success(request, f"Messages of {row.name} are refused from now on.")
    return redirect("jobs:change_records")


@views.require_safe_or_post
@login_required
def plan_change_record(request: UserRequest, number: int) -> HttpResponse:
    """POST stores the reference of a plan; a refusal shows its page again, with what was typed."""
    if request.method != "POST":
        return redirect("jobs:plan", number)
    row = get_object_or_404(selectors.visible_plans(request.user), number=number)
    try:
        row = references.enter(row, request.POST.get("change_record", ""), by=request.user)
    except Refusal as refusal:
        return views.plan_refused(request, number, "change-record", refusal)
    text = (
        f"{row} belongs to change record {row.change_record}."
        if row.change_record
        else f"{row} no longer has a change record."
    )
    messages.success(request, text)
    return redirect("jobs:plan", number)


def _initial(row: ChangeRecordRule) -> dict[str, object]:
    return rulebook.as_json(row) | {"version": row.version, "shown": row.environment}


def _page(request: UserRequest, form: ChangeRecordRuleForm, connection_form: TicketConnectionForm) -> HttpResponse:
    reason = connections.reason_not_to_change(request.user)
    rows = [] if reason else TicketConnection.objects.all()
    context = {
        "rules": ChangeRecordRule.objects.select_related("changed_by"),
        "form": form,
        "connections": [(row, reverse("jobs:change_record_hook", args=[row.pk])) for row in rows],
        "connection_form": connection_form,
        "why_not": rulebook.reason_not_to_change(request.user),
        "sees_connections": not reason,
    }
    status = 422 if form.errors or connection_form.errors else 200
    return render(request, "jobs/change_records.html", context, status=status)
