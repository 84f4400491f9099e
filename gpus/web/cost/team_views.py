"""Pages of one team's week, to which a viewer may be limited. Contexts:

gpus/own_teams.html   teams, is_limited (the person sees no more than these)
gpus/team_week.html   week (gpus.peers.lives.team_weeks.TeamWeek), has_role
"""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET

from accounts.access import role_gate
from accounts.models import User
from accounts.permissions import has_role, teams_of
from common.errors import NotAllowed
from common.requests import UserRequest
from gpus.peers.lives import team_weeks


def require_some(user: User) -> None:
    """Raises NotAllowed for an account that has neither a role nor a team."""
    if not (has_role(user) or teams_of(user)):
        raise NotAllowed(role_gate.refusal(user))


@require_GET
@login_required
def own_teams(request: UserRequest) -> HttpResponse:
    """The teams of the person's role; where there is one, its page. Other roles list every team."""
    require_some(request.user)
    rows, is_limited = list(team_weeks.visible_teams(request.user)), not has_role(request.user)
    if is_limited and len(rows) == 1:
        return redirect("gpus:team_week", rows[0].pk)
    return render(request, "gpus/own_teams.html", {"teams": rows, "is_limited": is_limited})


@require_GET
@login_required
def team_week(request: UserRequest, pk: int) -> HttpResponse:
    """Raises Missing."""
    require_some(request.user)
    week = team_weeks.of(request.user, pk)
    return render(request, "gpus/team_week.html", {"week": week, "has_role": has_role(request.user)})
