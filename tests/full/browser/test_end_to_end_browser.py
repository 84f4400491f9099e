"""The whole job in a real browser, from an empty installation: every step by the person whose it is."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.harness.browser import launched, needs_browser
from tests.full.harness.machine import Machine, other
from tests.full.harness.processes import ROOT, Installation
from tests.full.harness.servers import Postgres, Redis
from tests.full.harness.site import PASSWORD, SETTINGS, Site

KEYS = ("vm.swappiness", "transparent_hugepage.enabled", "hugepages-2Mi", "net.core.somaxconn")
ROLLOUT_MS = 120_000

pytestmark = [
    pytest.mark.full,
    needs_browser,
    pytest.mark.skipif(not (ROOT / "static/vendor").is_dir(), reason="no vendored libraries: make vendor"),
]


@pytest.fixture(scope="module")
def empty_site(deployed: Plane, cluster_admin: Admin, postgres: Postgres, redis_server: Redis) -> Iterator[Site]:
    """People and no cluster yet; static files collected as the server's image has them."""
    with Installation(postgres.url, redis_server.url, SETTINGS) as installation:
        installation.manage("collectstatic", "--no-input")
        opened = Site(deployed, cluster_admin, installation)
        try:
            yield opened.open(is_connected=False)
        finally:
            opened.close()


@pytest.fixture
def machine(empty_site: Site, deployed: Plane, cluster_admin: Admin, tmp_path: Path) -> Iterator[Machine]:
    if os.geteuid() != 0:
        pytest.skip("writing kernel settings needs root")
    made = Machine(deployed, cluster_admin, tmp_path, KEYS, role="this-machine")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def browse(empty_site: Site) -> Iterator[Callable[[str], Any]]:
    """`browse("operator")`: a window in which that person is logged in. A complaint in its console fails the test."""
    complaints: list[str] = []
    with launched() as running:

        def go(name: str) -> Any:
            page = running.new_context(base_url=empty_site.setpoint.url).new_page()
            page.set_default_timeout(20_000)
            page.on("console", lambda m: complaints.append(f"{page.url}: {m.text}") if m.type == "error" else None)
            page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
            page.goto("/")
            page.get_by_label("Email").fill(f"{name}@example.com")
            page.get_by_label("Password").fill(PASSWORD)
            page.get_by_role("button", name="Log in").click()
            page.wait_for_url(f"{empty_site.setpoint.url}/")
            return page

        yield go
    assert not complaints


def connect(page: Any, site: Site) -> None:
    def credential() -> None:
        page.get_by_label("Address").fill(site.plane.url)
        page.get_by_label("Certificate authority").fill(site.plane.authority.pem)
        page.get_by_label("Token").fill(site.cluster_admin.controller_token())

    page.goto("/clusters/connect/")
    page.get_by_label("Name").fill("atlas")
    page.get_by_label("Environment").select_option("production")
    page.get_by_text("Or by address, CA and service-account token").click()
    credential()
    page.get_by_role("button", name="Test the connection").click()
    page.get_by_role("button", name="Test again").wait_for()
    if not page.get_by_label("Token").input_value():  # a secret is not sent back to the page
        credential()
    page.get_by_role("button", name="Connect the cluster").click()
    page.get_by_role("heading", name="atlas", level=1).wait_for()


def make_pool(page: Any, machine: Machine) -> None:
    page.goto("/clusters/")
    page.get_by_role("link", name="atlas").first.click()
    page.get_by_role("link", name="New pool").first.click()
    page.get_by_label("Name").fill("lab")
    page.get_by_label("Selector").fill("role=this-machine")
    for _ in range(30):  # the watch has yet to see the nodes
        page.get_by_role("button", name="Preview nodes").click()
        page.wait_for_load_state()
        if page.get_by_text(machine.name).count():
            break
        page.wait_for_timeout(500)
    assert page.get_by_text(machine.name).count(), "the selector never matched"
    page.get_by_role("button", name="Create pool").click()
    page.get_by_role("link", name="lab", exact=True).first.wait_for()


def publish(page: Any, wanted: dict[str, str]) -> None:
    page.goto("/profiles/new/")
    page.get_by_role("textbox", name="Name", exact=True).fill("this-lab")
    page.get_by_role("button", name="Edit as YAML").click()
    page.get_by_role("textbox", name="Profile", exact=True).fill(
        "settings:\n" + "".join(f'  {key}: "{value}"\n' for key, value in wanted.items())
    )
    page.locator("#verdict", has_text="Valid").wait_for()
    page.get_by_role("button", name="Create the profile").click()
    page.get_by_role("button", name="Publish r1").click()
    page.get_by_role("heading", name="this-lab").wait_for()


def plan(page: Any) -> str:
    """Made and sent for review; its address."""
    page.goto("/plans/new/")
    page.get_by_label("Pool", exact=True).select_option(
        label=page.locator("#id_pool option", has_text="lab").first.inner_text()
    )
    page.get_by_label("Revision", exact=True).select_option(
        label=page.locator("#id_revision option", has_text="this-lab").first.inner_text()
    )
    page.get_by_role("button", name="Create plan").click()
    page.wait_for_url(re.compile(r"/plans/P-\d+/$"))
    page.get_by_label("What changes, and why").fill("Less swapping, more huge pages.")
    page.get_by_role("button", name=re.compile("Request approval")).click()
    page.get_by_text("Needs review").first.wait_for()
    return str(page.url)


def test_the_job_is_done_in_the_browser_by_four_people(
    empty_site: Site, machine: Machine, browse: Callable[[str], Any]
) -> None:
    site, before = empty_site, machine.values()
    wanted = {
        "vm.swappiness": other(before["vm.swappiness"], "19", "23"),
        "transparent_hugepage.enabled": other(before["transparent_hugepage.enabled"], "madvise", "always"),
        "hugepages-2Mi": str(int(before["hugepages-2Mi"]) + 4),
        "net.core.somaxconn": other(before["net.core.somaxconn"], "9000", "9001"),
    }
    connect(browse("admin"), site)
    site.cluster = site.admin.get("clusters")["results"][0]
    publish(browse("author"), wanted)
    operator = browse("operator")
    make_pool(operator, machine)
    site.await_observed([machine.name])
    address = plan(operator)
    assert operator.get_by_role("button", name=re.compile("^Approve")).count() == 0, "nobody approves their own"

    approver = browse("approver")
    approver.goto("/approvals/")
    approver.get_by_role("link", name=re.compile("Review")).first.click()
    approver.wait_for_url(re.compile(re.escape(address)))
    approver.get_by_text("vm.swappiness").first.wait_for()  # what is approved is on the page
    approver.get_by_role("radio", name="Approve").check()
    approver.get_by_role("button", name=re.compile("^Approve P-")).click()
    approver.get_by_text("You approved this plan").wait_for()
    assert machine.values() == before

    operator.goto(address)
    operator.get_by_role("button", name=re.compile("^Start P-")).click()
    operator.wait_for_url(re.compile(r"/rollouts/R-\d+/$"))
    operator.locator(".st.pill", has_text="Succeeded").wait_for(timeout=ROLLOUT_MS)  # by its own polling
    assert {key: machine.value(key) for key in wanted} == wanted
    assert machine.restarts.read_text() == "restart kubelet.service\n"

    rollout = operator.url
    operator.goto(f"/nodes/{site.node(machine.name)['id']}/")
    row = operator.get_by_role("row").filter(has_text="vm.swappiness").first.inner_text()
    assert wanted["vm.swappiness"] in row
    assert before["vm.swappiness"] in row, "its original"

    operator.goto(rollout)
    operator.get_by_role("button", name="Revert all").click()
    operator.locator(".st.pill", has_text="Reverted").wait_for(timeout=ROLLOUT_MS)
    assert machine.values() == before

    auditor = browse("admin")
    auditor.goto("/audit/")
    assert auditor.get_by_text("approver@example.com").count()
    site.judge().must_hold()
