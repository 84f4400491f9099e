"""Context of every page's frame: section, user, and how much is waiting. The same few queries at any fleet size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from accounts.models import User
from accounts.people import identities
from accounts.permissions import has_role, restrict, teams_of
from clusters.models import Cluster, Node
from common.clock import now
from common.counting import counts_of
from jobs.models import Plan, Rollout
from jobs.reports import selectors
from notices.reports import selectors as notices

SECTIONS = {
    ("clusters", "nodes"): "nodes",
    ("clusters", "node"): "nodes",
    ("jobs", "nodes_bulk"): "nodes",
    ("jobs", "overview"): "overview",
    ("jobs", "approvals"): "approvals",
    ("jobs", "rules"): "approvals",
    ("jobs", "rule"): "approvals",
    ("jobs", "rule_rest"): "approvals",
    ("jobs", "change_records"): "approvals",
    ("jobs", "policy"): "approvals",
    ("jobs", "policy_version"): "approvals",
    ("jobs", "rollouts"): "rollouts",
    ("jobs", "rollout"): "rollouts",
    ("jobs", "rollout_live"): "rollouts",
    ("jobs", "rollout_nodes"): "rollouts",
    ("jobs", "step"): "rollouts",
    ("jobs", "rollout_timeline"): "rollouts",
    ("jobs", "takeover"): "clusters",
    ("components", "cluster_components"): "clusters",
    ("components", "cluster_component"): "clusters",
    ("components", "installed"): "clusters",
    ("components", "installed_choose"): "profiles",
    ("compliance", "cluster_timeline"): "clusters",
    ("compliance", "pool_timeline"): "clusters",
    ("compliance", "node_timeline"): "nodes",
    ("compliance", "profile_timeline"): "profiles",
    ("gpus", "own_teams"): "team",
    ("gpus", "team_week"): "team",
    ("accounts", "people"): "people",
    ("accounts", "workloads"): "workloads",
    ("accounts", "scim_clients"): "provisioning",
    ("jobs", "fleet_runs"): "rollouts",
    ("jobs", "fleet_run_new"): "rollouts",
    ("jobs", "fleet_run"): "rollouts",
    ("jobs", None): "plans",
}
"""A page's section in the side bar where its app's name is not that section."""


@dataclass(frozen=True, slots=True)
class Frame:
    clusters: int = 0
    nodes: int = 0
    approvals: int = 0
    """Plans that wait for this very person's verdict."""
    answers: int = 0
    """Plans that this person made or asked for and that wait for them: changes were requested, or they can start."""
    running: int = 0
    alerts: int = 0
    """Open ones unacknowledged or silenced."""
    roles: list[str] = field(default_factory=list)
    has_role: bool = False
    """False: the side bar leads to nothing but one's own account and teams."""
    has_team: bool = False
    """A role is limited to a team."""

    @property
    def waiting(self) -> int:
        """Number on the badge of every page; an item done by any person is no longer counted."""
        return self.approvals + self.answers


def frame(request: HttpRequest) -> dict[str, Any]:
    """Counted only when a template asks: a live fragment, which has no frame, costs nothing here."""
    match = request.resolver_match
    app, name = (match.app_name, match.url_name) if match else ("", "")
    section = SECTIONS.get((app, name)) or SECTIONS.get((app, None)) or app
    user = getattr(request, "user", None)
    theme = user.theme if isinstance(user, User) else ""
    return {
        "frame": SimpleLazyObject(lambda: count(user)),
        "section": section,
        "theme": theme,
        "has_single_sign_on": bool(identities.providers()),
    }


def count(user: object) -> Frame:
    if not isinstance(user, User):
        return Frame()
    roles = sorted({role.capitalize() for role, _ in user.grants}) or (["Superuser"] if user.is_superuser else [])
    has_team = bool(teams_of(user))
    if not has_role(user):
        return Frame(roles=roles, has_team=has_team)
    counts = counts_of(
        {
            "clusters": restrict(Cluster.objects.all(), user, ""),
            "nodes": restrict(Node.objects.present(), user),
            "running": restrict(Rollout.objects.under_way(), user),
            "answers": handed_back(user),
            "approvals": selectors.to_review(user),
            "alerts": notices.waiting(user),
        }
    )
    return Frame(**counts, roles=roles, has_role=True, has_team=has_team)


def handed_back(user: User) -> QuerySet[Plan]:
    """Plans of this person's that are reviewed and wait for their author, the first among their requests."""
    judged = (Plan.Status.CHANGES, Plan.Status.APPROVED)
    return selectors.own_plans(user).filter(status__in=judged, expires_at__gt=now())
