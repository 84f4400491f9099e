"""People, and the connection of the simulated cluster, for tests of a cluster's life."""

from __future__ import annotations

from accounts.models import RoleBinding, User
from clusters.net.credentials import Credentials
from clusters.services import lifecycle
from simfleet.memory import SimFleet

URL = "https://atlas.example:6443"
TOKEN = Credentials(server=URL, token="s3cret")


def person(name, *bindings):
    user = User.objects.create_user(f"{name}@example.com")
    for role, scope in bindings:
        RoleBinding.objects.create(user=user, role=role, scope=scope)
    return user


def connect(by, **over):
    return lifecycle.connect_cluster(
        **{"name": "atlas", "environment": "staging", "credential": TOKEN, "by": by} | over
    )


def mark_of(sim):
    return SimFleet(sim).installation()
