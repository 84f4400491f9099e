"""The demo's world with its history of some days, once for each file that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import transaction

from clusters.connection import registry
from clusters.models import Cluster
from config.demo import environment, fleet, people, stock
from config.demo.history import DemoHistory
from config.demo.journey import Journey

FEWER = {"atlas-training": 42, "dune-edge": 2}
JOINS = {"atlas-training": 3}
DAYS_AGO = timedelta(days=13)


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: Any) -> Iterator[dict[str, fleet.ServedCluster]]:
    """Made once for this file, in a transaction of its own that is rolled back at its end."""
    patch = pytest.MonkeyPatch()
    patch.setattr(settings, "SETPOINT_ALLOW_NETWORKS", ["127.0.0.0/8"])
    patch.setattr(settings, "SETPOINT_BREAK_GLASS_CLASS", environment.GLASS_CLASS)
    journey = Journey()
    sites = [
        replace(site, nodes=FEWER.get(site.name, site.nodes), joins=JOINS.get(site.name, 0)) for site in fleet.SITES
    ]
    with django_db_blocker.unblock(), transaction.atomic():
        with journey.from_long_ago(DAYS_AGO):
            serving = fleet.serving(sites, journey)
            served = serving.__enter__()
            users = {name: person.user for name, person in people.arrive().items()}
            stock.fill(by="admin@example.com")
            DemoHistory(served, users, journey).make()
        patch.setattr(settings, "SETPOINT_AGENT_SILENT_SECONDS", 24 * 3600)  # however long the tests take from now on
        try:
            yield served
        finally:
            serving.__exit__(None, None, None)
            for pk in Cluster.objects.values_list("pk", flat=True):
                registry.forget(pk)
            patch.undo()
            transaction.set_rollback(True)
