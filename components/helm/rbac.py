"""Recheck of a refusal: does an API server that forbade something to helm still forbid it?

An API server that started a moment ago has not read its roles yet and refuses every caller; this makes helm fail.
helm's output names the missing right, so the server can be asked for exactly that: allowed now, trying again helps;
otherwise the refusal is final at once, without waiting for a deadline.
"""

from __future__ import annotations

import re

from clusters.fleet import CredentialsRefused, FleetError, Permission
from clusters.kube.apiserver import ApiServer
from clusters.kube.cluster import review
from components.helm.errors import HelmRefused, HelmUnauthorized, HelmUnavailable

_RIGHT = re.compile(
    r'cannot (?P<verb>[a-z]+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)
"""How Kubernetes' RBAC says no (k8s.io/apiserver, endpoints/handlers/responsewriters)."""


def recheck(server: ApiServer, refused: HelmRefused) -> HelmRefused | HelmUnavailable:
    """The same error, or that it would be permitted now."""
    match = _RIGHT.search(str(refused))
    if match is None:
        return refused
    right = Permission(match["verb"], match["group"], match["resource"], match["namespace"] or "")
    try:
        is_allowed = review(server, right).allowed
    except CredentialsRefused as error:
        return HelmUnauthorized(str(error))
    except FleetError as error:
        return HelmUnavailable(f"the API server forbade it, and does not say whether it does so still: {error}")
    if is_allowed:
        return HelmUnavailable(f"the API server forbade a moment ago what it permits now: {refused}")
    return refused
