"""Pages of approval rules, and the verbs on them.

Contexts:
rules.html      rules [(row, sentence, demand, open plans it applies to)], form (RuleForm), why_not (empty: may write)
rule.html       rule, form, about, why_not
"""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods

from accounts.people.pending import Proposed
from common.errors import Refusal
from common.requests import UserRequest, posted_version
from jobs.approvals import rulebook, rules
from jobs.reports import selectors
from jobs.web.forms import RuleForm

WAITS = "Proposed: some plan would need less, so it takes effect when another administrator consents."
require_safe_or_post = require_http_methods(["GET", "HEAD", "POST"])


@require_safe_or_post
@login_required
def rule_list(request: UserRequest) -> HttpResponse:
    form = RuleForm(request.POST if request.method == "POST" else None, user=request.user)
    if request.method == "POST" and form.is_valid():
        try:
            row = rulebook.create(by=request.user, **form.wishes())
        except Refusal as refusal:
            form.refuse(refusal)
        else:
            messages.success(request, f"The rule “{row.name}” applies from now on.")
            return redirect("jobs:rules")
    rows = list(selectors.visible_rules(request.user))
    touched = selectors.open_plans_by_rule(request.user)
    context = {
        "rules": [
            (
                row,
                rules.describe_conditions(row),
                rules.describe_demand(rules.RuleRequirement.of(row)),
                touched.get(row.pk, []),
            )
            for row in rows
        ],
        "form": form,
        "why_not": rulebook.reason_not_to_change(request.user),
    }
    return render(request, "jobs/rules.html", context, status=422 if form.errors else 200)


@require_safe_or_post
@login_required
def rule(request: UserRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(selectors.visible_rules(request.user), pk=pk)
    why_not = rulebook.reason_not_to_change(request.user)
    form = RuleForm(
        request.POST if request.method == "POST" else None, user=request.user, initial=RuleForm.initial_of(row)
    )
    if request.method == "POST" and form.is_valid():
        try:
            done = rulebook.change(row, by=request.user, version=form.cleaned_data["version"] or 0, **form.wishes())
        except Refusal as refusal:
            form.refuse(refusal)
        else:
            messages.success(request, WAITS if isinstance(done, Proposed) else f"The rule “{row.name}” was changed.")
            return redirect("jobs:rules")
    context = {"rule": row, "form": form, "about": rules.describe_conditions(row), "why_not": why_not}
    return render(request, "jobs/rule.html", context, status=422 if form.errors else 200)


@require_safe_or_post
@login_required
def rule_rest(request: UserRequest, pk: int) -> HttpResponse:
    """Disable a rule, or enable it again: it keeps its name, its history and what it says."""
    if request.method != "POST":
        return redirect("jobs:rule", pk)
    row = get_object_or_404(selectors.visible_rules(request.user), pk=pk)
    on = request.POST.get("enabled") == "1"
    try:
        done = rulebook.change(row, by=request.user, version=posted_version(request), is_enabled=on)
    except Refusal as refusal:
        messages.error(request, str(refusal))
        return redirect("jobs:rule", pk)
    outcome = "applies again" if on else "is disabled: it applies to no plan until it is enabled again"
    messages.success(request, WAITS if isinstance(done, Proposed) else f"The rule “{row.name}” {outcome}.")
    return redirect("jobs:rules")


@require_safe_or_post
@login_required
def rule_delete(request: UserRequest, pk: int) -> HttpResponse:
    if request.method != "POST":
        return redirect("jobs:rule", pk)
    row = get_object_or_404(selectors.visible_rules(request.user), pk=pk)
    try:
        done = rulebook.delete(row, by=request.user, version=posted_version(request))
    except Refusal as refusal:
        messages.error(request, str(refusal))
        return redirect("jobs:rule", pk)
    if isinstance(done, Proposed):
        messages.success(request, WAITS)
        return redirect("jobs:rules")
    also = f" {', '.join(map(str, done))}: approved under the remaining rules." if done else ""
    messages.success(request, f"The rule “{row.name}” was deleted.{also}")
    return redirect("jobs:rules")
