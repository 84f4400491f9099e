"""`python -m bench.crowd 5000`: fills the database of the environment, and prints what to ask for as JSON.

Nodes and their agents' answers are copies of one that a simulated agent gave; the plans and the rollout are made by the
product itself. A process of its own, so that what it takes to make them is not in the memory of who serves the pages.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

CLUSTERS = 20
IN_FIRST = 0.8
"""The share of nodes in the cluster that has the plan and the rollout; the others share the rest."""
KEYS = 20
PLANS = 100
AUDIT_RECORDS = 5000
OBJECTS = 2000
"""Of a component in one of these plans."""
UNASKED = ("/openapi.json", "/docs", "export", "farewell")
"""Not asked for: the API's description, files to keep, and what asks the cluster itself."""
SEARCHED = {"search/": "q=m00", "search/found/": "q=m00", "api/v1/search": "q=m00", "compare/": "from=gpu+r1&to=gpu+r2",
            "nodes/all/": "compliance=drifted", "nodes/selection": "query=compliance%3Ddrifted"}  # fmt: skip


class Time:
    """Clock of the simulated fleet: it advances when the world ticks."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> Any:
        from common.clock import now

        return now() + self.ahead

    def forward(self, seconds: float) -> None:
        self.ahead += timedelta(seconds=seconds)


def fill(count: int) -> dict[str, Any]:
    from clusters.models import Node
    from jobs import tasks
    from jobs.models import Plan
    from tests import crowd
    from tests.jobs.conftest import World
    from tests.jobs.rows import more_nodes, more_plans
    from tests.platform.rest.doors import Doors

    tasks.wake = lambda rollout_id: None  # no worker is there to be woken
    world = World(Time())
    others = _others(world)
    share = int(count * (1 - IN_FIRST)) // len(others)
    more_nodes(world, count - 1 - share * len(others))
    for other in others:
        more_nodes(world, share, cluster_id=other.pk)
    assert Node.objects.count() == count
    more_plans(world, PLANS, with_rollouts="succeeded")
    equipped = Plan.objects.order_by("number")[0]
    crowd.component_of(equipped, OBJECTS)
    doors = Doors(world)
    _under_way(doors.values["rollouts/<uuid:pk>"])
    _settled(world)
    return {
        "pages": [
            *_pages(doors),
            f"/plans/P-{equipped.number}/#{OBJECTS}-objects",
            f"/api/v1/plans/{equipped.pk}/components",
        ],
        "cookies": doors.cookies["admin"],
        "token": doors.tokens["admin"]["HTTP_AUTHORIZATION"],
    }


def _others(world: Any) -> list[Any]:
    """More clusters, each with a pool of its own."""
    from clusters.models import Cluster, Pool
    from tests.jobs.rows import _copy

    made = [
        _copy(world.cluster, id=None, uid=f"uid-{number}", name=f"cluster-{number:02}") for number in range(1, CLUSTERS)
    ]
    for cluster in made:
        cluster.pk = Cluster._meta.pk.get_default()
        cluster.save(force_insert=True)
        Pool.objects.create(cluster=cluster, name="train", selector=world.pool.selector)
    return made


def _under_way(rollout_pk: Any) -> None:
    """Most of its nodes are done, some are under way, a few failed, the rest waits."""
    from jobs.models import Rollout, Step
    from tests import crowd

    rollout = Rollout.objects.get(pk=rollout_pk)
    Rollout.objects.filter(pk=rollout_pk).update(status=Rollout.Status.RUNNING)
    steps = list(Step.objects.filter(rollout=rollout).order_by("batch", "position"))
    done = steps[: len(steps) * 6 // 10]
    for step in done:
        step.status, step.is_live, step.stages = "succeeded", False, {"applying": 4.0, "verifying": 2.0}
    for step in done[::500]:
        step.status, step.error = "failed", "The kernel answers 60."
    for step in steps[len(done) :][:300]:
        step.status, step.waiting_for = "applying", "Waiting for the agent's answer."
    Step.objects.bulk_update(steps, ["status", "is_live", "stages", "error", "waiting_for"], batch_size=500)
    crowd.log_of(rollout, done)


def _settled(world: Any) -> None:
    """Assign settings as earlier work would have: nearly every node complies."""
    from clusters.models import Cluster, Node, Pool
    from common.clock import now
    from compliance.models import Assignment
    from compliance.services import standings
    from profiles.catalog import known_settings
    from tests import crowd

    keys = [key for key in known_settings.observable_keys() if key.startswith("net.")][:KEYS]
    revision = world.revision(dict.fromkeys(keys, "10"))
    for pool in Pool.objects.exclude(pk=world.pool.pk):
        Assignment.objects.create(pool=pool, revision=revision)
    Assignment.objects.filter(pool=world.pool).update(revision=revision)
    nodes = list(Node.objects.exclude(cluster=world.cluster, name="n1").order_by("pk"))
    settled = nodes[: len(nodes) * 9 // 10]
    crowd.settle(settled, revision, keys)
    crowd.drift_of(nodes, keys[3])
    crowd.outliers(world.cluster, keys)
    crowd.ended_rollout(9001, world.pool, revision, [n for n in settled if n.cluster_id == world.cluster.pk])
    crowd.records(world.cluster, AUDIT_RECORDS)
    for cluster in Cluster.objects.all():
        crowd.days(cluster, cluster.nodes.count())
        standings.renew_all(cluster.pk)
    later = now() + timedelta(days=1)  # nothing watches, and nothing may look silent meanwhile
    Cluster.objects.update(observed_at=later, leases_at=later)


def _pages(doors: Any) -> list[str]:
    """Every address of the table of access that an admin may read, of objects that exist; and lists, filtered."""
    from tests.platform.rest.doors import expected

    pages = []
    for (method, route), statuses in expected().items():
        if method != "GET" or any(word in route for word in UNASKED) or "(?P<form>" in route:
            continue
        query = next((query for end, query in SEARCHED.items() if route.endswith(end)), "")
        if statuses[4] != 200 and not query:
            continue
        pages.append(doors.address(route) + (f"?{query}" if query else ""))
    plan, rollout = doors.values["plans/P-<int:number>"], doors.values["rollouts/R-<int:number>"]
    return [
        *pages,
        "/nodes/?page=90",
        "/nodes/?q=m49",
        "/nodes/?compliance=drifted",
        "/compliance/nodes/?page=90",
        "/compliance/nodes/?state=drifted",
        "/compliance/settings/?state=drifted",
        f"/plans/P-{plan}/?view=node&page=50",
        f"/rollouts/R-{rollout}/nodes/?page=20",
        "/api/v1/compliance/settings?limit=200",
        "/api/v1/nodes?limit=200",
    ]


def main() -> None:
    import django
    from django.core.management import call_command
    from django.db import connection

    django.setup()
    call_command("migrate", interactive=False, verbosity=0)
    summary = fill(int(sys.argv[1]))
    if connection.vendor == "postgresql":
        connection.cursor().execute("ANALYZE")  # as its autovacuum does within a minute; nobody waits for that here
    json.dump(summary, sys.stdout)


if __name__ == "__main__":
    main()
