"""Non-compliant and underperforming nodes in a real browser: no obstacle where there is data, and by keyboard."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.models import Node
from tests.factories import PASSWORD, UserFactory
from tests.full.browser.test_pages_in_browser import WIDTHS, Visit, browser, obstacles, visit
from tests.full.harness.browser import needs_browser
from tests.gpus.paced import Paced, troubled

__all__ = ["browser", "visit"]

pytestmark = [
    pytest.mark.full,
    needs_browser,
    pytest.mark.long,
]


@pytest.fixture
def world(live_server: Any, clock: Any) -> Paced:
    clock.at = clock.at.replace(minute=30)
    return troubled()


@pytest.fixture
def person() -> Any:
    user = UserFactory(is_superuser=True)
    user.set_password(PASSWORD)
    user.save(update_fields=["password"])
    return user


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("device", WIDTHS)
def test_pages_of_slower_nodes_have_no_obstacle(
    world: Paced, person: Any, visit: Visit, live_server: Any, device: str, theme: str
) -> None:
    page = visit(person, "/gpus/slower/", width=WIDTHS[device], theme=theme)
    by_page = {"all": obstacles(page)}
    node = Node.objects.get(name="n0002")
    for path in ("/gpus/slower/?cell=off-slower", "/gpus/slower/?name=nobody", "/compliance/", f"/nodes/{node.pk}/"):
        page.goto(live_server.url + path)
        by_page[path] = obstacles(page)
    page.goto(f"{live_server.url}/clusters/{world.cluster.pk}/")
    page.evaluate("document.querySelector('#pace').scrollIntoView()")  # it may be replaced at any moment
    page.wait_for_selector("#pace a:has-text('n0002')")
    by_page["cluster"] = obstacles(page)
    assert not {name: what for name, what in by_page.items() if what}


def test_from_a_number_to_its_nodes_by_keyboard(world: Paced, person: Any, visit: Visit) -> None:
    page = visit(person, "/compliance/")
    page.focus("#pace a[href$='cell=on-slower']")
    page.keyboard.press("Enter")
    page.wait_for_url("**/gpus/slower/?cell=on-slower")
    rows = page.locator("tbody th a.mono").all_inner_texts()
    assert rows == ["n0001"]
    assert page.locator("h1").inner_text() == "Non-compliant and underperforming"
