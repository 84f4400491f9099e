"""What this room adds to the pages of nodes, rollouts and profiles, through `common.hooks`."""

from __future__ import annotations

from collections.abc import Iterable

from django.http import HttpRequest

from accounts.models import User
from clusters.models import Node
from common.hooks import Panel
from gpus import pages, study_pages
from jobs.models import Rollout
from profiles.models import Profile


def of_node(request: HttpRequest, node: Node) -> Iterable[Panel]:
    assert isinstance(request.user, User)
    if node.gone_at is None and (found := pages.of_node(request.user, node)) is not None:
        yield Panel("gpus/_node_gpus.html", found, order=5)


def of_rollout(request: HttpRequest, rollout: Rollout) -> Iterable[Panel]:
    assert isinstance(request.user, User)
    if (found := study_pages.of_rollout(request.user, rollout)) is not None:
        yield Panel("gpus/_effect.html", found, order=10)


def of_profile(request: HttpRequest, profile: Profile) -> Iterable[Panel]:
    assert isinstance(request.user, User)
    if rows := study_pages.of_profile(request.user, profile):
        yield Panel("gpus/_profile_effects.html", {"rows": rows}, order=10)
