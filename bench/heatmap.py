"""A cluster's heatmap in headless Chromium: when the first full picture stands, how it scrolls, and what it weighs.

The rows are made in bulk, as a reading stores them: 8 GPUs a node, three in four of them held.
"""

from __future__ import annotations

import http.cookies
import json
import random
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from bench.measure import Table, load, median
from bench.pages import _empty as empty
from bench.pages import _run as run
from bench.paint import _chromium as chromium
from bench.paint import _server as server
from tools.page_wait import until

GPUS_A_NODE = 8
VISITS = 3
SCROLL_SECONDS = 3
SCROLL = """seconds => new Promise(done => {
  const began = performance.now();
  let frames = 0, worst = 0, last = began;
  const step = now => {
    frames += 1;
    worst = Math.max(worst, now - last);
    last = now;
    const share = (now - began) / 1000 / seconds;
    if (share >= 1) return done([frames * 1000 / (now - began), worst]);
    window.scrollTo(0, share * (document.documentElement.scrollHeight - innerHeight));
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})"""


def measure(counts: Sequence[int]) -> list[Table]:
    table = Table(
        "The heatmap of one cluster",
        ["GPUs", "first full picture, ms", "of it the server's answer, ms", "KB, packed", "frames a second, scrolling",
         "longest frame, ms", "load"],
        f"Headless Chromium at 1440 px without a GPU; medians of {VISITS} visits after one that does not count. From "
        "the click to the last cell drawn. The page is scrolled from top to bottom in three seconds.",
    )  # fmt: skip
    for nodes in counts:
        with empty("SQLite") as environment:
            filled = json.loads(run("bench.heatmap", str(nodes), environment=environment))
            with server(environment) as url, chromium() as browser:
                visits = list(_visits(browser, url, filled))
        table.add(nodes * GPUS_A_NODE, *(median([visit[part] for visit in visits]) for part in range(5)), load())
    return [table]


def _visits(browser: Any, url: str, filled: dict[str, str]) -> Iterator[tuple[float, ...]]:
    cookies = http.cookies.SimpleCookie(filled["cookies"])
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_cookies([{"name": morsel.key, "value": morsel.value, "url": url} for morsel in cookies.values()])
    for visit in range(VISITS + 1):
        page = context.new_page()
        page.goto(url + filled["page"], wait_until="load")
        assert until(page, "performance.getEntriesByName('heatmap').length > 0", 30)
        picture, answered, size = page.evaluate(
            "() => { const page = performance.getEntriesByType('navigation')[0]; return ["
            "performance.getEntriesByName('heatmap')[0].startTime, page.responseEnd, page.encodedBodySize / 1000]; }"
        )
        frames, longest = page.evaluate(SCROLL, SCROLL_SECONDS)
        page.close()
        if visit:
            yield picture, answered, size, frames, longest
    context.close()


# ── in the process that fills ─────────────────────────────────────────────────────────────────────────────────────────
def fill(count: int) -> None:
    import django

    django.setup()
    from django.core.management import call_command
    from django.test import Client

    from accounts.models import User
    from clusters.models import Cluster, Node
    from common.clock import now
    from gpus.models import GpuDevice, TelemetrySource

    call_command("migrate", verbosity=0)
    person = User.objects.create_superuser("bench", "bench@example.com", uuid.uuid4().hex)
    cluster = Cluster.objects.create(name="wide", uid="wide", server="https://wide.example:6443")
    dice = random.Random(1)
    began = time.perf_counter()
    # As if read just now, for as long as the bench lasts.
    TelemetrySource.objects.create(cluster=cluster, state="well", read_at=now() + timedelta(hours=1))
    product = "NVIDIA-H100-80GB-HBM3"
    Node.objects.bulk_create(
        (
            Node(
                cluster=cluster, uid=str(number), name=f"wide-gpu-{number:04d}", is_ready=True, gpu_count=GPUS_A_NODE,
                gpu_allocated=6, gpu_product=product, labels={"topology.setpoint.dev/rack": f"r{number // 8:03d}"},
            )
            for number in range(count)
        ),
        batch_size=500,
    )  # fmt: skip
    devices = (
        _device(GpuDevice, cluster, node, index, dice)
        for node in Node.objects.order_by("name")
        for index in range(GPUS_A_NODE)
    )
    GpuDevice.objects.bulk_create(devices, batch_size=500)
    sys.stderr.write(f"{count * GPUS_A_NODE} GPUs made in {time.perf_counter() - began:.0f} s\n")
    client = Client()
    client.force_login(person)
    cookies = client.cookies.output(header="", sep=";")
    sys.stdout.write(json.dumps({"cookies": cookies, "page": f"/gpus/clusters/{cluster.pk}/"}))


def _device(model: Any, cluster: Any, node: Any, index: int, dice: random.Random) -> Any:
    busy = dice.random()
    values = {
        "busy": round(busy, 2), "engine": round(busy * 0.9, 6), "sm": round(busy * 0.8, 6),
        "tensor": round(busy * 0.4, 6), "memory_bandwidth": round(busy * 0.5, 6), "memory_used": 4 << 33,
        "memory_free": 4 << 33, "memory_reserved": 1 << 29, "power": round(100 + busy * 500, 3),
        "energy": dice.randrange(10**9), "temperature": 30 + int(busy * 50), "memory_temperature": 36 + int(busy * 50),
        "sm_clock": 1_980_000_000, "memory_clock": 2_619_000_000, "pcie_replays": 0, "rows_remapped_correctable": 0,
        "rows_remapped_uncorrectable": 0, "row_remap_failed": 0,
    }  # fmt: skip
    team = node.pk % 9
    return model(
        cluster=cluster,
        uuid=str(uuid.UUID(int=dice.getrandbits(128))),
        node=node,
        node_name=node.name,
        index=str(index),
        model="NVIDIA H100 80GB HBM3",
        values=values,
        holders=[[f"team-{team}", f"job-{team}-{node.pk}", "main"]] if index < 6 else [],
        xids=[[48, 1, "last"]] if dice.random() < 0.002 else [],
    )


if __name__ == "__main__":
    fill(int(sys.argv[1]))
