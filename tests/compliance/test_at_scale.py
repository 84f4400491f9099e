"""Five thousand nodes: every page and list in a fixed number of queries, at most fifteen."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from clusters.models import Cluster, Node, NodeTuning, Pool
from common import timeline
from common.clock import now
from compliance.models import Assignment, NodeStanding, SettingChange, SettingState
from compliance.services import standings
from jobs.models import Rollout
from profiles.models import Profile, Revision
from tests import crowd
from tests.factories import TokenClient, UserFactory

NODES = 5000
KEYS = [f"vm.key{number}" for number in range(20)]
MOST_QUERIES = 15
POOLS = 5


def build() -> None:
    cluster = Cluster.objects.create(
        uid=str(uuid4()), name="atlas", server="https://x", credential=b"-", credential_key="-",
        reach=Cluster.Reach.REACHABLE, observed_at=now() + timedelta(hours=1),
    )  # fmt: skip
    revision = Revision.objects.create(
        profile=Profile.objects.create(name="gpu"), number=1, digest=f"sha256:{'0' * 64}", source="",
        content={"settings": [{"key": key, "operator": "=", "value": "10"} for key in KEYS]},
    )  # fmt: skip
    pools = [
        Pool.objects.create(cluster=cluster, name=f"p{n}", selector={"matchLabels": {"pool": str(n)}})
        for n in range(POOLS)
    ]
    modes = Assignment.Mode
    Assignment.objects.bulk_create(
        Assignment(pool=pool, revision=revision, mode=modes.ENFORCE if pool.pk % 2 else modes.APPLY) for pool in pools
    )
    made = Node.objects.bulk_create(
        [
            Node(cluster=cluster, uid=f"u{n}", name=f"n{n:04}", labels={"pool": str(n % (POOLS + 1))}, is_ready=True)
            for n in range(NODES)
        ],
        batch_size=500,
    )
    NodeTuning.objects.bulk_create([NodeTuning(node=n, protocol=1, mode="apply") for n in made], batch_size=500)
    crowd.measured()
    settled = made[: NODES * 9 // 10]
    crowd.settle(settled, revision, KEYS)
    crowd.drift_of(made, KEYS[3])
    crowd.outliers(cluster, KEYS)
    crowd.days(cluster, NODES)
    crowd.measured()
    standings.renew_all(cluster.pk)
    rollout = crowd.ended_rollout(1, pools[0], revision, settled)
    SettingChange.objects.update(rollout_id=rollout.pk)
    crowd.records(cluster, 5000)
    crowd.measured()


TIMELINES = ["/clusters/{cluster}/timeline/", "/nodes/{node}/timeline/", "/pools/{pool}/timeline/",
             "/profiles/gpu/timeline/", "/plans/P-1/timeline/", "/rollouts/R-1/timeline/"]  # fmt: skip
PAGES = [
    *TIMELINES,
    *(f"{path}?before={{before}}" for path in TIMELINES),
    "/api/v1/clusters/{cluster}/timeline?limit=200",
    "/api/v1/rollouts/{rollout}/timeline?limit=200",
    "/",
    "/clusters/{cluster}/",
    "/clusters/{cluster}/nodes/live/",
    "/clusters/{cluster}/timeline/lately/",
    "/nodes/{node}/",
    "/nodes/{node}/timeline/lately/",
    "/compliance/nodes/{node}/live/",
    "/compliance/clusters/{cluster}/weak/",
    "/compliance/",
    "/compliance/live/",
    "/compliance/nodes/",
    "/compliance/nodes/?state=drifted",
    "/compliance/nodes/?page=90",
    "/compliance/settings/",
    "/compliance/settings/?state=drifted",
    "/compliance/settings/?key=vm.key3&page=40",
    "/compliance/changes/",
    "/api/v1/compliance/summary",
    "/api/v1/compliance/matrix",
    "/api/v1/compliance/nodes?limit=100",
    "/api/v1/compliance/nodes?state=drifted",
    "/api/v1/compliance/settings?start=",
    "/api/v1/compliance/settings?state=drifted",
    "/api/v1/compliance/changes?ordering=-at",
    "/api/v1/compliance/outliers",
    "/api/v1/compliance/assignments",
]


@pytest.mark.django_db
@pytest.mark.one_database  # how many queries a page makes is Django's and ours
def test_five_thousand_nodes_cost_every_page_at_most_fifteen_queries() -> None:
    build()
    user = UserFactory(roles=["viewer"])
    browser, api = Client(), TokenClient(user)
    browser.force_login(user)
    names = {
        "cluster": Cluster.objects.get().pk, "node": Node.objects.order_by("pk")[0].pk, "pool": Pool.objects.first().pk,
        "rollout": Rollout.objects.get().pk, "before": timeline.cursor(timeline.place(now(), "event", 9000)),
    }  # fmt: skip
    over = {}
    for path in (page.format(**names) for page in PAGES):
        client: Any = api if path.startswith("/api") else browser
        client.get(path)  # templates are compiled once
        with CaptureQueriesContext(connection) as seen:
            answer = client.get(path)
        assert answer.status_code == 200, path
        if len(seen) > MOST_QUERIES:
            over[path] = [query["sql"][:200] for query in seen.captured_queries]
    assert over == {}

    counts = api.get("/api/v1/compliance/summary").json()["counts"]
    assert sum(counts.values()) == NODES
    assert NodeStanding.objects.filter(state="unassigned").count() == counts["unassigned"]
    assert counts["drifted"] == SettingState.objects.filter(state="drifted").values("node").distinct().count()
