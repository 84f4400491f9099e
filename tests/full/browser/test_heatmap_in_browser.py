"""A cluster's heatmap in a real browser: pixels, mouse and keyboard; and no obstacle where there is data."""

from __future__ import annotations

from typing import Any

import pytest

from simfleet.fleets import training_cluster
from tests.factories import PASSWORD
from tests.full.browser.test_pages_in_browser import WIDTHS, Visit, browser, obstacles, visit
from tests.full.harness.browser import needs_browser
from tests.gpus.web.test_pages import World

__all__ = ["browser", "visit"]

pytestmark = [
    pytest.mark.full,
    needs_browser,
    pytest.mark.long,
]

PIXELS = """(points) => {
  const canvas = document.querySelector("[data-heatmap] canvas"), scale = canvas.width / canvas.clientWidth;
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return points.map(([x, y]) => {
    const first = 4 * (Math.floor(y * scale) * canvas.width + Math.floor(x * scale));
    return [...data.slice(first, first + 4)].join(" ");
  });
}"""
PICTURE = "document.querySelector('[data-heatmap] canvas').toDataURL()"
CELL, ROW = 32, 22
"""From one GPU to the next and from one node to the next, px, in a heatmap of up to 1,024 GPUs."""
ROWS = "(row) => Math.round(document.querySelector('[data-heatmap] canvas').clientHeight / row)"


@pytest.fixture
def world(live_server: Any, clock: Any) -> World:
    made = World(training_cluster("atlas", nodes=24))
    made.read()
    made.person.set_password(PASSWORD)
    made.person.save(update_fields=["password"])
    return made


def heatmap(world: World, visit: Visit, **how: Any) -> Any:
    page = visit(world.person, f"/gpus/clusters/{world.cluster.pk}/", **how)
    page.wait_for_selector("[data-heatmap] canvas[style]")
    return page


def cells(world: World) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {}
    for gpu in world.sim.gpus.fleet():
        out.setdefault(gpu.node, []).append(gpu)
    return dict(sorted(out.items()))


def test_its_colors_are_the_truth_and_the_mark_leaves_no_trace(world: World, visit: Visit) -> None:
    page = heatmap(world, visit)
    label = page.evaluate("() => Math.min(150, 16 + 6.6 * 'atlas-gpu-001'.length)")
    silent = world.sim.exporters.silent
    shown = [
        (gpu, [label + column * CELL + 3, row * ROW + 4])
        for row, gpus in enumerate(list(cells(world).values())[: page.evaluate(ROWS, ROW)])
        for column, gpu in enumerate(gpus)
    ]
    colors = page.evaluate(PIXELS, [point for _, point in shown])
    seen: dict[str, set[str]] = {"busy": set(), "free": set(), "silent": set()}
    for (gpu, _), color in zip(shown, colors, strict=True):
        if gpu.node in silent:
            seen["silent"].add(color)
        elif gpu.busy > 0.9:
            seen["busy"].add(color)
        elif gpu.pod is None:
            seen["free"].add(color)
    assert len(seen["busy"]) in (1, 2), "one or two steps of the ramp"
    assert len(seen["free"]) == 1
    assert not seen["free"] & seen["busy"]

    before = page.evaluate(PICTURE)
    page.focus("[data-heatmap] canvas")
    marked = page.evaluate(PICTURE)
    page.keyboard.press("ArrowRight")
    moved = page.evaluate(PICTURE)
    page.keyboard.press("ArrowLeft")
    back = page.evaluate(PICTURE)
    assert len({before, marked, moved}) == 3
    assert back == marked


def test_on_paper_it_has_the_colors_of_its_legend_whatever_the_screen(world: World, visit: Visit) -> None:
    light, page = heatmap(world, visit), heatmap(world, visit, theme="dark")
    assert page.evaluate(PICTURE) != light.evaluate(PICTURE)
    on_screen = page.evaluate(PICTURE)
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.evaluate(PICTURE) == light.evaluate(PICTURE)
    assert page.evaluate("getComputedStyle(document.body).colorScheme") == "light"
    assert [page.is_visible(part) for part in (".sp-top", ".sp-side", "h1")] == [False, False, True]
    page.emulate_media(media="screen")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(PICTURE) == on_screen


def test_mouse_and_keyboard_say_the_gpu_its_pod_and_its_figures(world: World, visit: Visit) -> None:
    page = heatmap(world, visit)
    (node, _), (below, others) = list(cells(world).items())[:2]
    page.focus("[data-heatmap] canvas")
    assert f"{node}, GPU 0" in page.inner_text("#heat-pick")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    caption = page.inner_text("#heat-pick")
    assert f"{below}, GPU 1" in caption
    assert others[1].pod is None or others[1].pod[1] in caption
    assert f"{round(100 * others[1].busy)} %" in caption

    label = 16 + 6.6 * len(node)
    # A person's eye follows a page that scrolls; so does this, unlike a mouse that is moved to where a cell was.
    page.locator("[data-heatmap] canvas").hover(position={"x": label + 2 * CELL + 5, "y": 5})
    assert f"{node}, GPU 2" in page.inner_text("#heat-pick")
    page.keyboard.press("Enter")
    page.wait_for_url("**/nodes/**")
    assert page.locator("#gpus").count() == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("device", WIDTHS)
def test_pages_of_gpus_with_data_have_no_obstacle(
    world: World, visit: Visit, live_server: Any, device: str, theme: str
) -> None:
    page = heatmap(world, visit, width=WIDTHS[device], theme=theme)
    by_page = {"cluster": obstacles(page)}
    (sick,) = {gpu.node for gpu in world.sim.gpus.fleet() if gpu.xid}
    node = world.cluster.nodes.get(name=sick)
    for name, path in (("fleet", "/gpus/"), ("node", f"/nodes/{node.pk}/")):
        page.goto(live_server.url + path)
        by_page[name] = obstacles(page)
    assert not {name: what for name, what in by_page.items() if what}
