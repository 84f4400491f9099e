"""Pages of what each team's GPUs cost: the statement and its files, prices, teams and their rules. Contexts:

gpus/cost.html      statement, asked (what was typed), errors, may_change
gpus/prices.html    page of prices, form, defaults, energy_note, may_change
gpus/teams.html     teams, form, rules_form, preview (or None), rules, may_change
gpus/team.html      team, form, may_change
"""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from clusters.web.forms import add_errors
from common.errors import Invalid, Refusal, Stale
from common.requests import UserRequest, posted_version
from gpus.models import GpuPrice, Team
from gpus.showback import files, periods, prices, pricing, rules, statement, teams
from gpus.showback.periods import Period
from gpus.web.cost.forms import PriceForm, RulesForm, TeamForm

ROWS = 50
MOST_PREVIEWED = 200
_ASKED = ("month", "from", "to")


# ── The statement ─────────────────────────────────────────────────────────────────────────────────────────────────────
def _period(request: UserRequest) -> Period:
    """Raises Invalid."""
    month, start, last = (request.GET.get(name, "").strip() for name in _ASKED)
    return periods.parse(month, start, last)


@require_GET
@login_required
def cost(request: UserRequest) -> HttpResponse:
    """The statement of a month, or of some days. A wrong period is refused beside what was typed, not replaced."""
    context: dict[str, Any] = {
        "asked": {name: request.GET.get(name, "") for name in _ASKED},
        "may_change": pricing.may_change(request.user),
        "today": periods.today(),
    }
    try:
        context["statement"] = statement.of(request.user, _period(request))
    except Invalid as refusal:
        return render(request, "gpus/cost.html", context | {"errors": refusal.fields}, status=refusal.status)
    return render(request, "gpus/cost.html", context)


@require_GET
@login_required
def cost_file(request: UserRequest, form: str) -> HttpResponse:
    """Raises Invalid."""
    return as_file(request, form, _period(request))


def as_file(request: Any, form: str, period: Period) -> HttpResponse:
    """The statement as `csv`, or its charges as `focus`. Raises Invalid."""
    if form == "focus":
        text, name = files.as_focus(request.user, period), f"focus-{files.FOCUS_VERSION}"
    else:
        text, name = files.as_csv(statement.of(request.user, period)), "gpu-cost"
    answer = HttpResponse(text, content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="setpoint-{name}-{period.name}.csv"'
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


# ── Prices ────────────────────────────────────────────────────────────────────────────────────────────────────────────
@require_http_methods(["GET", "POST"])
@login_required
def price_list(request: UserRequest) -> HttpResponse:
    if request.method == "GET":
        return _prices(request, PriceForm(initial={"valid_from": periods.today()}, user=request.user))
    pricing.require_change(request.user)
    form = PriceForm(request.POST, user=request.user)
    if not form.is_valid():
        return _prices(request, form, status=422)
    try:
        row = pricing.set_price(by=request.user, **form.given())
    except Refusal as refusal:
        add_errors(form, refusal)
        return _prices(request, form, status=refusal.status)
    messages.success(request, f"The price of {row.model or 'energy'} from {row.valid_from} is set.")
    return redirect("gpus:prices")


@require_POST
@login_required
def price_withdraw(request: UserRequest, pk: int) -> HttpResponse:
    pricing.require_change(request.user)
    row = pricing.withdraw(get_object_or_404(GpuPrice, pk=pk), by=request.user)
    messages.success(request, f"The price of {row.model or 'energy'} from {row.valid_from} is withdrawn.")
    return redirect("gpus:prices")


def _prices(request: UserRequest, form: PriceForm, status: int = 200) -> HttpResponse:
    paginator = Paginator(pricing.visible_to(request.user), ROWS)
    context = {
        "page": paginator.get_page(request.GET.get("page")),
        "form": form,
        "defaults": sorted(prices.defaults().items()),
        "currency": prices.currency(),
        "may_change": pricing.may_change(request.user),
        "today": periods.today(),
    }
    return render(request, "gpus/prices.html", context, status=status)


# ── Teams ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
@require_http_methods(["GET", "POST"])
@login_required
def team_list(request: UserRequest) -> HttpResponse:
    if request.method == "GET":
        return _teams(request)
    pricing.require_change(request.user)
    form = TeamForm(request.POST)
    if not form.is_valid():
        return _teams(request, form=form, status=422)
    try:
        team = teams.add(by=request.user, **form.cleaned_data)
    except Refusal as refusal:
        add_errors(form, refusal)
        return _teams(request, form=form, status=refusal.status)
    messages.success(request, f"The team {team} is added. Rules say what is its.")
    return redirect("gpus:teams")


@require_POST
@login_required
def team_rules(request: UserRequest) -> HttpResponse:
    """Preview the rules, or save them; what was typed is kept."""
    pricing.require_change(request.user)
    form = RulesForm(request.POST)
    if not form.is_valid():
        return _teams(request, rules_form=form, status=422)
    data = form.cleaned_data
    try:
        rows = rules.lines(data["rules"])
        if request.POST.get("intent") == "preview":
            return _teams(request, rules_form=form, preview=teams.preview(teams.judge(rows), by=request.user))
        teams.save(rows, by=request.user, version=data["version"])
    except Refusal as refusal:
        add_errors(form, refusal)
        if isinstance(refusal, Stale):
            form.data = {**dict(request.POST.items()), "version": str(teams.current().version)}
        return _teams(request, rules_form=form, status=refusal.status)
    messages.success(request, "The rules are saved. Statements of every period follow them.")
    return redirect("gpus:teams")


def _teams(
    request: UserRequest,
    *,
    form: TeamForm | None = None,
    rules_form: RulesForm | None = None,
    preview: list[teams.Preview] | None = None,
    status: int = 200,
) -> HttpResponse:
    row, names = teams.current(), teams.names()
    text = rules.as_text(rules.stored(row.rules), names)
    context = {
        "teams": Team.objects.all(),
        "form": form or TeamForm(),
        "rules_form": rules_form or RulesForm(initial={"rules": text, "version": row.version}),
        "rules": row,
        "rules_text": text,
        "preview": None if preview is None else preview[:MOST_PREVIEWED],
        "preview_count": len(preview or ()),
        "moving": sum(line.moves for line in preview or ()),
        "currency": prices.currency(),
        "may_change": pricing.may_change(request.user),
    }
    return render(request, "gpus/teams.html", context, status=status)


@require_http_methods(["GET", "POST"])
@login_required
def team_change(request: UserRequest, pk: int) -> HttpResponse:
    pricing.require_change(request.user)
    team = get_object_or_404(Team, pk=pk)
    if request.method == "GET":
        initial = {"name": team.name, "budget": team.budget, "version": team.version}
        return _team(request, team, TeamForm(initial=initial))
    form = TeamForm(request.POST)
    if not form.is_valid():
        return _team(request, team, form, status=422)
    try:
        teams.change(team, by=request.user, version=posted_version(request), **form.cleaned_data)
    except Refusal as refusal:
        add_errors(form, refusal)
        team.refresh_from_db()
        return _team(request, team, form, status=refusal.status)
    messages.success(request, f"The team {team} is saved.")
    return redirect("gpus:teams")


@require_POST
@login_required
def team_remove(request: UserRequest, pk: int) -> HttpResponse:
    pricing.require_change(request.user)
    team = get_object_or_404(Team, pk=pk)
    teams.remove(team, by=request.user)
    messages.success(request, f"The team {team.name} is removed.")
    return redirect("gpus:teams")


def _team(request: UserRequest, team: Team, form: TeamForm, status: int = 200) -> HttpResponse:
    context = {"team": team, "form": form, "currency": prices.currency(), "may_change": True}
    return render(request, "gpus/team.html", context, status=status)
