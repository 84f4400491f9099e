"""Pages in a real browser: accessible in both themes and on a phone, silent in the console, live without a reload."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from accounts.models import RoleBinding
from accounts.people import setup
from clusters.connection import registry
from jobs import tasks
from jobs.approvals import reviews
from jobs.models import Rollout
from jobs.rollouts import possible_actions
from tests.factories import PASSWORD
from tests.full.harness.answers import answers_ended
from tests.full.harness.browser import launched, needs_browser
from tests.jobs.conftest import World
from tests.platform.rest.doors import WHO, Doors, expected

AXE = Path(__file__).resolve().parents[3] / "node_modules/axe-core/axe.min.js"
VENDORED = Path(__file__).resolve().parents[3] / "static/vendor/icons.svg"
WIDTHS = {"desktop": 1440, "phone": 390}
VIOLATIONS = """document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} at ${event.sourceFile}:${event.lineNumber} ${event.sample}`))"""
"""Every violation of the page's own policy is a complaint, with the place that caused it."""

pytestmark = [
    pytest.mark.full,
    needs_browser,
    pytest.mark.skipif(not (AXE.exists() and VENDORED.exists()), reason="no axe-core or icons: make vendor"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    # Playwright keeps an event loop in this thread, which Django takes for asynchronous code.
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with launched() as running:
        yield running
    if before is None:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def world(live_server: Any, clock: Any) -> Iterator[World]:
    made = World(clock, nodes=6)
    RoleBinding.objects.create(user=made.admin, role="operator", scope="*")
    for person in (made.operator, made.author, made.approver, made.second, made.admin):
        person.set_password(PASSWORD)
        person.save(update_fields=["password"])
    yield made
    registry.uninstall(made.cluster.pk)


Visit = Callable[..., Any]


def is_complaint(message: Any) -> bool:
    """Chromium also reports answers that a test provokes on purpose: something refused, a page that is not there."""
    expected = re.search(r"status of (401|403|404|422) ", message.text)
    return message.type in ("error", "warning") and not expected


def failed(request: Any) -> str:
    """Describe a request that got no answer. Leaving a page cancels its own live updates."""
    return "" if request.failure == "net::ERR_ABORTED" else f"{request.failure} {request.url}"


@pytest.fixture
def visit(browser: Any, live_server: Any) -> Iterator[Visit]:
    """`visit(person, path, width=..., theme=...)`: a page of a logged-in user. Fails on any console message."""
    contexts: list[Any] = []
    complaints: list[str] = []
    states: dict[str, Any] = {}

    def go(person: Any, path: str, *, width: int = 1440, theme: str = "light", **options: Any) -> Any:
        state = states.get(str(person))
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, storage_state=state, **options
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)  # a shared machine is slow now and then
        page.on(
            "console", lambda message: complaints.append(f"{path}: {message.text}") if is_complaint(message) else None
        )
        page.on("pageerror", lambda error: complaints.append(f"{path}: {error}"))
        page.on(
            "requestfailed",
            lambda request: complaints.append(f"{path}: {failed(request)}") if failed(request) else None,
        )
        page.on(
            "response",
            lambda response: (
                complaints.append(f"{path}: {response.status} {response.url}") if response.status >= 500 else None
            ),
        )
        page.add_init_script(VIOLATIONS)
        if person and not state:
            page.goto(f"{live_server.url}/login/")
            page.fill("#id_email", str(person))
            page.fill("#id_password", PASSWORD)
            page.click("button:has-text('Log in')")
            page.wait_for_url(f"{live_server.url}/")
            states[str(person)] = context.storage_state()
        page.goto(live_server.url + path)
        return page

    with answers_ended():
        yield go
        for context in contexts:
            context.close()
    assert not complaints


def obstacles(page: Any) -> list[Any]:
    """List axe's violations, elements that stick out to the right, and a missing or doubled main heading."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    violations = page.evaluate(
        "async () => (await axe.run()).violations.map(v => [v.id, v.nodes.map(n => n.html).slice(0, 3)])"
    )
    if not page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"):
        violations.append("overflows to the right")
    if page.locator("h1").count() != 1:
        violations.append(f"{page.locator('h1').count()} main headings")
    return violations


NO_PAGES = {
    "healthz", "readyz", "metrics", "clusters/setpoint.yaml", "profiles/<slug:name>/r<int:number>/export/<str:to>/",
    "^compliance/(?P<name>nodes|settings|changes|outliers)\\.(?P<form>csv|json)$",
    "gpus/alerts/prometheus-rule.yaml", "gpus/alerts/grafana.json", "gpus/slower.csv", "gpus/slower.json",
    "gpus/queues/waits.csv", "gpus/queues/waits.json",
    "gpus/cost/statement.csv", "gpus/cost/focus.csv",
    "plans/P-<int:number>/components/<int:pk>/role.yaml", "components/site/entries/<slug:name>/file/",
    "windows/export.ics",
}  # fmt: skip
"""What the table of access gives an admin, and is no page: files, words for machines."""
PARTS = ("/live/", "/lately/", "/found/", "/weak/")
"""How addresses of a part of a page end."""


def pages(world: World) -> dict[str, str]:
    """Route → address of every page that the table of access gives an admin, on objects that exist."""
    doors = Doors(world)
    world.slice(Rollout.objects.get())
    plan = world.plan(world.revision({"vm.swappiness": "20", "fs.aio-max-nr": ">= 1048576"}))
    reviews.request(plan, by=world.admin)
    given = [route for (method, route), got in expected().items() if method == "GET" and got[WHO.index("admin")] == 200]
    ours = [route for route in given if not route.startswith("api/v1/") and route not in NO_PAGES]
    addresses = {route: doors.address(route) for route in ours if not route.endswith(PARTS)}
    views = [
        "/search/?q=n", "/search/?q=nothing-like-it", "/approvals/?view=mine", "/approvals/?view=mine&q=nothing",
        "/rollouts/R-1/nodes/?q=nothing", f"/plans/{plan}/?view=node", f"/plans/{plan}/?show=all", "/nodes/?q=nothing",
    ]  # fmt: skip
    client = Client()
    client.force_login(world.admin)
    assert {view: client.get(view).status_code for view in views} == dict.fromkeys(views, 200)
    parts = {route for route, address in addresses.items() if b"</html>" not in client.get(address).content}
    assert parts == set(), "no pages: say so in NO_PAGES or by the address"
    return addresses | {"api/v1/docs": "/api/v1/docs", "nothing": "/nothing-here/"} | {view: view for view in views}


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("device", "theme"),
    [
        ("phone", "dark"),
        *(
            pytest.param(*look, marks=pytest.mark.long)
            for look in (("desktop", "light"), ("desktop", "dark"), ("phone", "light"))
        ),
    ],
)
def test_no_page_has_an_obstacle(
    world: World, visit: Visit, live_server: Any, device: str, theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every page of the URL table: a new one without a line in the table of access fails there; none is left out."""
    monkeypatch.setattr(tasks, "wake", lambda pk: None)
    there = pages(world)
    assert len(there) > 30
    assert "people/" in there

    by_page = {}
    page = visit(world.admin, "/", width=WIDTHS[device], theme=theme)
    for route, path in there.items():
        page.goto(live_server.url + path)
        if route != "api/v1/docs":  # Swagger's own markup is not ours to mend; it must only load without complaint
            by_page[route] = obstacles(page)
    by_page["login/"] = obstacles(visit(None, "/login/", width=WIDTHS[device], theme=theme))

    assert not {path: what for path, what in by_page.items() if what}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("device", WIDTHS)
def test_the_first_run_has_no_obstacle(live_server: Any, visit: Visit, device: str, theme: str) -> None:
    """The pages of an empty installation: log-in with its link, question for the token, wrong token, first account."""
    token = setup.prepare()
    assert token
    page = visit(None, "/login/", width=WIDTHS[device], theme=theme)
    by_page = {"login/": obstacles(page)}

    page.click("text=Set up this installation")
    by_page["the token"] = obstacles(page)
    page.fill("#id_token", "not-this-one")
    page.click("button:has-text('Continue')")
    page.wait_for_selector("[role=alert], .t-bad")
    by_page["a wrong token"] = obstacles(page)
    page.fill("#id_token", token)
    page.click("button:has-text('Continue')")
    page.wait_for_selector("h1:has-text('Create the first administrator')")
    by_page["the person"] = obstacles(page)

    assert not {path: what for path, what in by_page.items() if what}


def test_a_plan_is_requested_approved_started_and_followed_to_its_end(world: World, visit: Visit) -> None:
    plan = world.plan()

    page = visit(world.operator, f"/plans/P-{plan.number}/")
    page.fill("textarea[name=comment]", "Less swapping.")
    page.click(f"button:has-text('Request approval of {plan}')")
    page.wait_for_selector("text=Needs review")

    theirs = visit(world.approver, "/approvals/")
    theirs.click(f"text=Review {plan}")
    theirs.check("input[value=approve]")
    theirs.click(f"button:has-text('Approve {plan}')")
    theirs.wait_for_selector(".st:has-text('Approved')")

    page.reload()
    page.click(f"button:has-text('Start {plan}')")
    page.wait_for_url(re.compile(r"/rollouts/R-\d+/$"))

    rollout = Rollout.objects.get(plan=plan)
    world.run(rollout)
    assert rollout.status == "succeeded", rollout.waiting_for
    page.wait_for_selector(".st.pill:has-text('Succeeded')")  # by its own polling
    assert page.get_attribute("#rollout", "hx-get") is None, "a final state polls no more"
    assert world.value("n1") == "10"


def test_the_author_of_a_plan_is_told_why_no_verdict_is_theirs(world: World, visit: Visit) -> None:
    plan = world.plan()
    reviews.request(plan, by=world.operator)

    page = visit(world.operator, f"/plans/P-{plan.number}/")

    assert "Authors cannot approve their own plans." in page.inner_text("#verdict")
    assert page.locator("button:has-text('Approve')").count() == 0


def test_a_verdict_needs_no_javascript(world: World, visit: Visit) -> None:
    plan = world.plan()
    reviews.request(plan, by=world.operator)
    page = visit(world.approver, f"/plans/P-{plan.number}/", java_script_enabled=False)

    page.check("input[value=reject]")
    page.fill("textarea[name=comment]", "Not in the week of the launch.")
    page.click(f"button:has-text('Submit review of {plan}')")

    plan.refresh_from_db()
    assert plan.status == "rejected"


def test_what_a_person_folded_stays_folded_through_live_updates(world: World, visit: Visit) -> None:
    rollout = world.started(canary=1, batch="2")
    world.slice(rollout)
    page = visit(world.operator, f"/rollouts/R-{rollout.number}/")
    fold = page.locator("button.fold").first
    rows = page.locator(f"#{fold.get_attribute('aria-controls')}")
    assert rows.is_visible()

    fold.click()
    with page.expect_response(lambda r: r.url.endswith("/live/")):
        pass
    page.wait_for_timeout(200)

    assert not rows.is_visible()
    assert fold.get_attribute("aria-expanded") == "false"


def test_a_hidden_tab_asks_nothing(world: World, visit: Visit) -> None:
    rollout = world.started()
    page = visit(world.operator, f"/rollouts/R-{rollout.number}/")
    with page.expect_response(lambda r: r.url.endswith("/live/")):
        pass
    requested: list[str] = []
    page.evaluate("Object.defineProperty(document, 'hidden', {get: () => true})")
    page.on("request", lambda request: requested.append(request.url))

    page.wait_for_timeout(4500)

    assert not [url for url in requested if url.endswith("/live/")]


def test_a_refused_form_keeps_what_was_typed_and_says_why_beside_the_field(world: World, visit: Visit) -> None:
    page = visit(world.operator, "/plans/new/")
    page.fill("#id_message", "A reason worth keeping")
    page.fill("#id_batch", "a lot")

    with page.expect_response(lambda r: r.status == 422):
        page.click("button:has-text('Create plan')")
    page.wait_for_load_state()

    assert page.input_value("#id_message") == "A reason worth keeping"
    assert page.get_attribute("#id_pool", "aria-invalid") == "true"
    assert page.inner_text("#id_pool-error")


def test_a_press_on_an_impossible_action_does_nothing(world: World, visit: Visit) -> None:
    rollout = world.started()
    page = visit(world.operator, f"/rollouts/R-{rollout.number}/")
    button = page.locator("button[aria-disabled=true]:has-text('Resume')")
    reason = page.locator(f"#{button.get_attribute('aria-describedby')}").inner_text()

    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    button.click(force=True)  # as a person would, who does not know
    page.wait_for_timeout(300)

    assert reason.startswith("Not possible:")
    assert not sent
    assert page.url.endswith(f"/rollouts/R-{rollout.number}/")
    assert not next(action for action in possible_actions.all_actions(rollout) if action.verb == "resume").is_possible


def test_the_theme_is_the_persons_own_and_stays(world: World, visit: Visit) -> None:
    page = visit(world.operator, "/plans/")

    page.click("button[aria-label^='Color theme']")
    page.wait_for_load_state()

    assert page.get_attribute("html", "data-bs-theme") == "light"
    assert page.url.endswith("/plans/")
