"""Pages for each role: which buttons work, and what another cluster keeps to itself."""

from __future__ import annotations

from common.clock import now
from jobs.approvals import reviews
from jobs.models import Freeze, Plan, Rollout, Step
from jobs.rollouts import freezes
from tests.factories import UserFactory
from tests.jobs.conftest import person
from tests.jobs.pages import browser, is_disabled, page, text_of

# ── who may do what ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_button_that_would_not_work_is_disabled_and_says_why(world):
    world.plan()
    viewer = person("viewer")
    html = page(viewer, "/plans/P-1/")
    assert is_disabled(html, "Request approval of P-1")
    assert "the role operator for atlas" in text_of(html)
    assert not is_disabled(page(world.operator, "/plans/P-1/"), "Request approval of P-1")


def test_a_blocked_plan_cannot_be_asked_for_and_says_so(world):
    world.sim.add_pod("lonely", node="n1")
    world.tick(1)
    world.plan(world.revision({"cmdline.iommu": "pt"}))
    html = page(world.operator, "/plans/P-1/")
    assert is_disabled(html, "Request approval of P-1")
    assert "Not possible" in text_of(html)


def test_only_who_may_judge_gets_the_verdict_form_and_others_learn_why_not(world):
    reviews.request(world.plan(), by=world.operator)
    assert "data-verdict" in page(world.approver, "/plans/P-1/")
    for who, why in (
        (world.operator, "Authors cannot approve their own plans"),
        (world.author, "you wrote gpu r1"),
        (world.admin, "role approver"),
    ):
        html = page(who, "/plans/P-1/")
        assert "data-verdict" not in html
        assert why in text_of(html)


def test_what_a_rollout_permits_is_a_button_and_the_rest_says_why_not(world):
    world.started()
    operators, viewers = page(world.operator, "/rollouts/R-1/"), page(person("viewer"), "/rollouts/R-1/")
    assert not is_disabled(operators, "Abort")
    assert is_disabled(operators, "Revert all")
    assert "Not possible: it is running: pause or abort it first." in text_of(operators)
    for label in ("Abort", "Revert all", "Pause"):
        assert is_disabled(viewers, label)
    assert "this needs the role operator for atlas" in text_of(viewers)


def test_a_rollout_that_ended_says_once_what_can_no_longer_be_done(world):
    rollout = world.started()
    Rollout.objects.filter(pk=rollout.pk).update(status="reverted", finished_at=now())
    html = page(world.operator, "/rollouts/R-1/")
    assert "Not possible" not in text_of(html)
    assert "it cannot be reverted: it is already reverted. To change its nodes again" in text_of(html)
    Rollout.objects.filter(pk=rollout.pk).update(status="succeeded")
    Step.objects.filter(rollout=rollout).update(status="succeeded", has_applied=True, is_live=False)
    html = page(world.operator, "/rollouts/R-1/")
    assert not is_disabled(html, "Revert all")
    assert "Not possible" not in text_of(html)
    assert "no other action is possible" in text_of(html)


def test_a_viewer_is_told_before_filling_in_a_plan_or_a_freeze(world):
    freezes.freeze(cluster=world.cluster, reason="here", by=world.operator)
    viewer = person("viewer")
    assert is_disabled(page(viewer, "/plans/new/"), "Create plan")
    html = page(viewer, "/freezes/")
    assert is_disabled(html, "Stop new starts")
    assert is_disabled(html, "Lift")
    assert text_of(html).count("This needs the role operator") == 2
    for path, label in (("/plans/new/", "Create plan"), ("/freezes/", "Stop new starts"), ("/freezes/", "Lift")):
        assert not is_disabled(page(world.operator, path), label)


def test_a_freeze_of_all_is_the_admins_to_lift(world):
    freezes.freeze(cluster=None, reason="all", by=world.admin)
    assert is_disabled(page(world.operator, "/freezes/"), "Lift")
    assert not is_disabled(page(world.admin, "/freezes/"), "Lift")


# ── what is not one's own cluster's is not there ──────────────────────────────────────────────────────────────────────


def test_nothing_of_a_cluster_outside_ones_scope_is_shown_or_changed(world):
    rollout = world.started()
    reviews.request(world.plan(world.revision({"vm.swappiness": "12"})), by=world.operator)
    row = freezes.freeze(cluster=world.cluster, reason="Secret migration", by=world.operator)
    roles = [f"{role}@env:production" for role in ("viewer", "operator", "approver", "admin")]
    stranger = browser(UserFactory(roles=roles))
    for path in ("/", "/plans/", "/rollouts/", "/approvals/", "/freezes/", "/plans/new/"):
        html = stranger.get(path).content.decode()
        for word in ("atlas", "Secret migration", "P-1", "R-1"):
            assert word not in html, (path, word)
    step = rollout.steps.first()
    for path in ("/plans/P-1/", "/rollouts/R-1/", "/rollouts/R-1/live/", f"/rollouts/R-1/steps/{step.pk}/"):
        assert stranger.get(path).status_code == 404
    for path in ("/plans/P-2/withdraw/", "/rollouts/R-1/abort/", f"/freezes/{row.pk}/lift/"):
        answer = stranger.post(path)
        assert answer.status_code == 404
        assert b"atlas" not in answer.content
    assert not Freeze.objects.exclude(lifted_at=None).exists()


def test_a_freeze_of_all_clusters_is_everybodys_news(world):
    freezes.freeze(cluster=None, reason="Year end", by=world.admin)
    assert "Year end" in page(UserFactory(roles=["viewer@env:production"]), "/freezes/")


def test_a_plan_waits_for_those_alone_who_may_judge_it(world):
    reviews.request(world.plan(), by=world.operator)
    both = UserFactory(roles=["viewer", "approver@env:production"])
    own = UserFactory(roles=["viewer", "approver@env:staging"])
    assert "Review P-1" not in page(both, "/approvals/")
    assert "Review P-1" in page(own, "/approvals/")
    reviews.approve(Plan.objects.get(), by=own, digest=Plan.objects.get().digest)
    Plan.objects.update(status="review")
    assert "Review P-1" not in page(own, "/approvals/")
    reviews.retract(Plan.objects.get(), by=own)
    assert "Review P-1" in page(own, "/approvals/"), "taken back is not decided"


def test_the_count_in_the_frame_is_the_length_of_the_list(world):
    reviews.request(world.plan(), by=world.operator)
    reviews.request(world.plan(world.revision({"vm.swappiness": "12"})), by=world.operator)
    for who, count in ((world.approver, 2), (world.operator, 0), (world.author, 0), (world.admin, 0)):
        answer = browser(who).get("/approvals/")
        assert answer.context["frame"].approvals == len(answer.context["to_review"]) == count
