"""Components on pages and over REST: in a plan before the nodes, in a rollout beside them, each on its own page."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from common.templatetags.setpoint import difference
from components.helm.errors import HelmUnavailable
from components.release.work import ObjectDifference, PlanNote
from jobs import tasks
from jobs.engine import component_runner, reconcile
from jobs.engine.event_log import log
from jobs.rollouts import rollout_actions
from tests.jobs.component_steps import plan_of, step_of
from tests.jobs.policy_steps import QUEUE, TEAM, bring_queues
from tests.jobs.policy_steps import plan_of as policies_of
from tests.jobs.releases import Releases


@pytest.fixture
def releases(monkeypatch: Any) -> Releases:
    made = Releases(requires={"kueue": ("cert-manager",)}, after={"kueue": ("nodes", "cilium")}).install(monkeypatch)
    made.notes["cert-manager"] = (
        PlanNote(severity="info", code="crds", title="Brings 6 new kinds", detail=""),
        PlanNote(
            severity="warn", code="webhooks", title="A webhook changes", detail="Pods are asked for while it rolls."
        ),
    )
    return made


@pytest.fixture
def pages(world: Any, monkeypatch: Any) -> Client:
    monkeypatch.setattr(tasks, "wake", lambda pk: None)
    client = Client()
    client.force_login(world.operator)
    return client


def read(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200, response.content[:300]
    return response.content.decode()


def test_a_plan_shows_components_in_their_order_before_the_nodes(world, releases, pages):
    plan = plan_of(world, "kueue", "cert-manager", settings={"vm.swappiness": "10"})
    page = read(pages, f"/plans/P-{plan.number}/")

    assert page.index("<b>cert-manager</b>") < page.index("<b>kueue</b>") < page.index("vm.swappiness</span>")
    assert page.index("A webhook changes") < page.index("Brings 6 new kinds"), "warnings first"
    assert page.count("A webhook changes") == 1, "among the findings, and not once more beside its objects"
    assert "requires cert-manager; after the node settings" in page
    assert "after cilium" not in page, "which the plan does not carry out"
    assert "and installs or changes 2 components" in page
    assert '<span class="add">+ kind: Deployment</span>' in page


def test_a_plan_that_lacks_a_decision_leads_to_where_the_cluster_takes_it(world, releases, pages):
    releases.notes["kueue"] = (PlanNote(severity="block", code="decision", title="k8sServiceHost: Which?", detail=""),)
    plan = plan_of(world, "kueue", "cert-manager")

    assert f'href="/clusters/{plan.cluster_id}/values/"' in read(pages, f"/plans/P-{plan.number}/")


def test_what_could_not_be_prepared_is_not_shown_as_harmless(world, releases, pages, monkeypatch):
    def refuse(cluster, wanted, peers):
        raise HelmUnavailable("its chart is not stored here")

    monkeypatch.setattr("components.release.work.prepare", refuse)
    plan = plan_of(world, "kueue", settings={"vm.swappiness": "10"})
    page, listed = read(pages, f"/plans/P-{plan.number}/"), read(pages, "/plans/")

    assert plan.worst_class == "live", "of what is counted"
    assert "These figures exclude kueue" in page
    assert "Effect unknown" in page
    assert "Effect unknown" in listed
    assert 'class="cls "' not in listed, "another class in its place"
    assert pages.get(f"/api/v1/plans/{plan.pk}").json()["worst_class"] == "unknown"


def test_a_plan_says_why_nothing_is_done_with_a_component(world, releases, pages):
    world.run(world.started(plan_of(world, "cert-manager")))
    plan = plan_of(world, "cert-manager", settings={"vm.swappiness": "10"})

    assert "It is already compliant." in read(pages, f"/plans/P-{plan.number}/")


def test_a_plan_of_a_chart_with_many_objects_stays_a_page(world, releases, pages, monkeypatch):
    real = releases.prepare
    many = tuple(
        ObjectDifference("created", "v1", "ConfigMap", "kueue-system", f"c{n}", "+ a: b\n" * 300, n) for n in range(100)
    )

    def prepare(cluster, wanted, peers):
        from dataclasses import replace

        return replace(real(cluster, wanted, peers), objects=many)

    monkeypatch.setattr("components.release.work.prepare", prepare)
    plan = plan_of(world, "kueue")
    page = read(pages, f"/plans/P-{plan.number}/")

    assert "… and 40 more objects; the API has all of them." in page
    assert "… and 100 more lines; the API has all of them." in page
    rows = pages.get(f"/api/v1/plans/{plan.pk}/components").json()["results"]
    assert len(rows[0]["objects"]) == 100


def test_a_rollout_shows_where_each_component_stands_and_what_helm_says(world, releases, pages):
    rollout = world.started(plan_of(world, "kueue", "cert-manager"))

    def lost(stop):
        raise HelmUnavailable("Kubernetes cluster unreachable")

    releases.during["cert-manager"] = lost
    reconcile.run(rollout.pk)
    component_runner.carry_out(step_of(rollout, "cert-manager").pk)
    reconcile.run(rollout.pk)
    page = read(pages, f"/rollouts/R-{rollout.number}/")

    assert "cert-manager: from nothing to 1.0.0" in page
    assert "Kubernetes cluster unreachable" in page
    assert "Waits for cert-manager, which is being installed." in page
    assert "0 of 2 ready" in re.sub(r"\s+", " ", page)


def test_a_rollouts_graph_stands_in_the_colors_of_its_steps(world, releases, pages):
    releases.broken["cert-manager"] = "its image does not exist"
    plan = plan_of(world, "kueue", "cert-manager", settings={"vm.swappiness": "10"}, canary=0, batch="100%")
    rollout = world.run(world.started(plan))
    page = read(pages, f"/rollouts/R-{rollout.number}/")

    failed, queued = step_of(rollout, "cert-manager"), step_of(rollout, "kueue")
    assert (
        '<title id="graph-words">node settings: 3 of 3 succeeded; cert-manager: Failed; kueue: Queued</title>' in page
    )
    assert f'<a href="/rollouts/R-{rollout.number}/nodes/" class="ok">' in page
    assert f'<a href="/rollouts/R-{rollout.number}/steps/{failed.pk}/" class="bad">' in page
    assert f'<a href="/rollouts/R-{rollout.number}/steps/{queued.pk}/" class="neu">' in page

    alone = world.run(world.started(plan_of(world, settings={"vm.swappiness": "20"})))
    assert "graph-words" not in read(pages, f"/rollouts/R-{alone.number}/"), "nodes alone need no picture of an order"


def test_a_component_that_failed_leads_the_rollouts_page(world, releases, pages):
    releases.broken["cert-manager"] = "its image does not exist"
    rollout = world.run(world.started(plan_of(world, "kueue", "cert-manager")))
    page = read(pages, f"/rollouts/R-{rollout.number}/")

    assert "cert-manager failed while verifying" in re.sub(r"\s+", " ", page)
    assert "Stopped: 1 component failed" in page
    assert "Open the node" not in page


def test_what_failed_is_counted_whatever_it_is(world, releases, pages):
    releases.broken["cert-manager"] = "no image"
    rollout = world.started(policies_of(world, TEAM, "cert-manager"))
    world.sim.faults.add("refuse", verb="patch", resource="priorityclasses", name="training")
    assert _failures(pages, rollout) == ("0", "of 0 allowed", "The first stops new starts")

    world.run(rollout)

    assert _failures(pages, rollout) == (
        "2",
        "0 of 0 nodes allowed",
        "1 component and 1 group of policy objects failed: what requires them waits. The first stops new starts",
    )


def _failures(pages, rollout) -> tuple[str, str, str]:
    """Return the tile's number, what is beside it, and what is below."""
    page = re.sub(r"\s+", " ", read(pages, f"/rollouts/R-{rollout.number}/"))
    tile = page.partition('<div class="l">Failures</div>')[2]
    match = re.search(r'class="v"> (.*?) <small>(.*?)</small> </div> <div class="d.*?"> (.*?) </div>', tile)
    assert match
    return match[1], match[2], match[3]


def test_a_rollout_that_was_put_back_goes_on_to_say_what_failed_in_it(world, releases, pages):
    def failure() -> str:
        return str(pages.get(f"/api/v1/rollouts/{rollout.pk}").json()["failure"])

    releases.broken["cert-manager"] = "its image does not exist"
    rollout = world.started(plan_of(world, "kueue", "cert-manager"))
    assert failure() == ""
    world.run(rollout)
    assert failure() == "cert-manager failed while verifying: its image does not exist"

    releases.broken.clear()
    rollout_actions.revert(rollout, by=world.operator)
    assert world.run(rollout).status == "reverted"
    assert failure() == "cert-manager failed while verifying: its image does not exist"
    page = read(pages, f"/rollouts/R-{rollout.number}/")
    assert page.index("cert-manager failed while verifying: its image does not exist") < page.index("h-components")
    assert f'href="/rollouts/R-{rollout.number}/steps/{step_of(rollout, "cert-manager").pk}/">Details' in page

    again = world.run(world.started(plan_of(world, settings={"vm.swappiness": "20"})))
    rollout_actions.revert(again, by=world.operator)
    world.run(again)
    assert "What it said" not in read(pages, f"/rollouts/R-{again.number}/"), "nothing failed here"


@pytest.mark.parametrize("moment", ["queued", "applying", "succeeded"])
def test_a_component_has_a_page_at_every_moment(world, releases, pages, moment):
    rollout = world.started(plan_of(world, "kueue", "cert-manager"))
    if moment != "queued":
        reconcile.run(rollout.pk)
    if moment == "succeeded":
        world.run(rollout)
    step = step_of(rollout, "cert-manager")
    assert step.status == moment
    page = read(pages, f"/rollouts/R-{rollout.number}/steps/{step.pk}/")
    polls = f'id="component-step" hx-get="/rollouts/R-{rollout.number}/steps/{step.pk}/" hx-select="#component-step"'
    assert (polls in re.sub(r"\s+", " ", page)) == rollout.is_live, (
        "it looks again by itself, until there is nothing more to see"
    )

    assert "helm output" in page
    assert "runs helm again" in page or "only a failed or held component is tried again" in page
    assert "Keep cordoned" not in page
    read(pages, f"/rollouts/R-{rollout.number}/nodes/")
    read(pages, f"/rollouts/R-{rollout.number}/timeline/")


def test_what_happened_to_two_components_is_not_told_of_two_nodes(world, releases, pages):
    rollout = world.started(plan_of(world, "kueue", "cert-manager"))
    for name in ("kueue", "cert-manager"):
        log(rollout, "Tried again.", step=step_of(rollout, name))
    timeline = read(pages, f"/rollouts/R-{rollout.number}/timeline/")
    assert "kueue: Tried again." in timeline
    assert "Tried again, on 2 nodes" not in timeline


def test_verbs_about_a_component_work_on_its_page(world, releases, pages):
    releases.broken["cert-manager"] = "its image does not exist"
    rollout = world.run(world.started(plan_of(world, "kueue", "cert-manager")))
    step = step_of(rollout, "cert-manager")
    releases.broken.clear()

    answer = pages.post(f"/rollouts/R-{rollout.number}/retry-failed/", {"step": step.pk, "back": "step"}, follow=True)
    assert "another attempt for cert-manager" in answer.content.decode()
    assert world.run(rollout).status == "succeeded"


def test_rest_tells_the_same(world, releases, pages):
    plan = plan_of(world, "kueue", "cert-manager")
    rows = pages.get(f"/api/v1/plans/{plan.pk}/components").json()["results"]
    assert [(r["component"], r["action"], r["requires"], r["after"]) for r in rows] == [
        ("cert-manager", "install", [], []),
        ("kueue", "install", ["cert-manager"], ["nodes", "cilium"]),
    ]
    assert [n["severity"] for n in rows[0]["notes"]] == ["info", "warn"]
    assert rows[0]["objects"][0]["diff"].startswith("+kind")
    response = pages.get(f"/api/v1/plans/{plan.pk}/components/{rows[0]['id']}")
    assert response.json() == rows[0]

    rollout = world.run(world.started(plan))
    steps = pages.get(f"/api/v1/rollouts/{rollout.pk}/steps", {"kind": "component"}).json()["results"]
    assert {(s["kind"], s["component"], s["node"], s["status"]) for s in steps} == {
        ("component", "cert-manager", None, "succeeded"),
        ("component", "kueue", None, "succeeded"),
    }
    assert set(steps[0]["actions"]) == {"retry-failed", "skip", "revert"}
    kueue = next(s for s in steps if s["component"] == "cert-manager")
    assert kueue["reasons"]["revert"] == (
        "Not possible: kueue requires cert-manager and would break: revert the whole rollout."
    )
    nodes = pages.get(f"/api/v1/rollouts/{rollout.pk}/steps", {"kind": "node"}).json()["results"]
    assert {s["node_name"] for s in nodes} == {"n1", "n2", "n3"}
    events = pages.get(f"/api/v1/rollouts/{rollout.pk}/events").json()["results"]
    assert "cert-manager" in {e["component"] for e in events}


def test_pages_of_rollouts_without_components_ask_nothing_about_them(world, pages, django_assert_max_num_queries):
    rollout = world.run(world.started(canary=0))
    with django_assert_max_num_queries(60) as queries:
        page = read(pages, f"/rollouts/R-{rollout.number}/")
    assert "h-components" not in page
    assert not any('FROM "jobs_plancomponent"' in q["sql"] for q in queries.captured_queries)


@pytest.mark.parametrize("moment", ["queued", "applying", "succeeded", "reverted"])
def test_policy_objects_have_a_page_at_every_moment(world, pages, moment):
    rollout = world.started(policies_of(world, TEAM))
    if moment != "queued":
        reconcile.run(rollout.pk)
    if moment in ("succeeded", "reverted"):
        world.run(rollout)
    step = step_of(rollout, "policy objects")
    if moment == "reverted":
        rollout_actions.revert(rollout, by=world.operator)
        world.run(rollout)
    step.refresh_from_db()
    assert step.status == moment
    page = read(pages, f"/rollouts/R-{rollout.number}/steps/{step.pk}/")

    assert "helm" not in page[page.index("<main") : page.index("</main")].lower()
    assert "team-a/gpus" in page
    assert ("ResourceQuota team-a/gpus is applied." in page) == (moment == "succeeded")
    assert ("Namespace team-a stays: what is in it is not ours to delete." in page) == (moment == "reverted")
    page = read(pages, f"/rollouts/R-{rollout.number}/")
    assert "Policy objects" in page
    named = '>policy objects</a> <span class="dim fw4">written by Setpoint itself</span>'
    assert named in re.sub(r"\s+", " ", page)


def test_policy_objects_of_a_plan_are_shown_one_by_one(world, releases, pages):
    releases.during["volcano"] = lambda stop: bring_queues(world)
    plan = policies_of(world, TEAM + QUEUE, "volcano")
    page = read(pages, f"/plans/P-{plan.number}/")
    part = page[page.index('id="components"') :]

    assert "Components and policy objects" in part
    assert part.index("<b>policy objects</b>") < part.index("<b>volcano</b>") < part.index("<b>queues of volcano</b>")
    assert '<span class="lbl">create</span><b>policy objects</b>' in part
    assert "requires volcano" in part[part.index("<b>queues of volcano</b>") :]
    assert part.index("team-a</span>") < part.index("team-a/gpus</span>")
    assert "Its kind or its namespace does not exist yet" not in part, "there is a difference to show"
    assert '<span class="add">+ spec:</span><span class="add">+   hard:</span>' in part, "YAML keeps its indentation"
    assert "@@" not in part, "of what is new, no line has a place"
    assert "Namespace team-a stays when the plan is reverted" in page
    assert "and installs volcano 1.0.0, and makes or changes 4 policy objects" in page

    rows = pages.get(f"/api/v1/plans/{plan.pk}/components").json()["results"]
    assert [(r["kind"], r["component"], r["action"], r["requires"]) for r in rows] == [
        ("policies", "policy objects", "apply", []),
        ("release", "volcano", "install", []),
        ("policies", "queues of volcano", "apply", ["volcano"]),
    ]
    assert [(o["kind"], o["namespace"], o["name"], o["change"]) for o in rows[0]["objects"]] == [
        ("Namespace", "", "team-a", "created"),
        ("PriorityClass", "", "training", "created"),
        ("ResourceQuota", "team-a", "gpus", "unvalidated"),
    ]
    assert "+    requests.nvidia.com/gpu: '8'" in rows[0]["objects"][2]["diff"]
    rollout = world.run(world.started(plan))
    steps = pages.get(f"/api/v1/rollouts/{rollout.pk}/steps", {"kind": "policies"}).json()["results"]
    assert {s["component"]: s["status"] for s in steps} == {
        "policy objects": "succeeded",
        "queues of volcano": "succeeded",
    }
    step = next(s for s in steps if s["component"] == "policy objects")
    assert step["reasons"]["revert"].startswith("Removes the objects that this rollout created")


def test_what_a_chart_says_in_a_difference_is_text_and_no_markup():
    html = difference([("@", "@@ -1 +1 @@"), ("+", "<script>alert(1)</script>"), (" ", "a & b")])
    assert "<script>" not in html
    assert '<span class="add">+ &lt;script&gt;alert(1)&lt;/script&gt;</span><span>  a &amp; b</span>' in html
    assert '<span class="at">@@ -1 +1 @@</span>' in html
