"""Pages and REST of fleet runs: one answer for both, nothing typed is lost, no cluster is named to outsiders."""

from __future__ import annotations

import pytest

from accounts.models import RoleBinding, User
from jobs.models import FleetRun, Plan, Rollout
from jobs.rollouts import fleet_runs
from tests.jobs.pages import browser, page, text_of
from tests.jobs.rest import act, api, fields_of, problem
from tests.jobs.rollouts.test_fleet_runs import wanted

NEW = "/fleet-runs/new/"


@pytest.fixture
def pair(make_world):
    first = make_world(nodes=1)
    return first, make_world(nodes=1, name="borea", beside=first)


@pytest.fixture
def plans(pair):
    revision = pair[0].revision()
    return [world.plan(revision) for world in pair]


@pytest.fixture
def run(pair, plans) -> FleetRun:
    return fleet_runs.create(by=pair[0].operator, name="swappiness", wanted=wanted(plans))


def typed(plans: list[Plan], **more: str) -> dict[str, str]:
    rings = {f"plan_{plan.pk}": str(number) for number, plan in enumerate(plans, start=1)}
    return {
        "name": "swappiness",
        "ring_1_name": "staging",
        "ring_1_soak": "90",
        "ring_2_name": "production",
        **rings,
    } | more


def post(user: User, path: str, status: int = 302, **fields: str) -> str:
    answer = browser(user).post(path, fields)
    assert answer.status_code == status, answer.content.decode()[:2000]
    return answer.content.decode()


class TestMakingOne:
    def test_drafts_are_put_into_rings(self, pair, plans):
        post(pair[0].operator, NEW, **typed(plans))
        run = FleetRun.objects.get()
        assert run.rings == [{"name": "staging", "soak_minutes": 90}, {"name": "production", "soak_minutes": 0}]
        assert list(run.plans.order_by("ring").values_list("pk", "ring")) == [
            (p.pk, n + 1) for n, p in enumerate(plans)
        ]
        html = page(pair[0].operator, f"/fleet-runs/F-{run.number}/")
        assert 'data-ring="2"' in html
        assert f'data-plan="{plans[1].number}"' in html
        assert str(run) in page(pair[0].operator, "/fleet-runs/")

    @pytest.mark.parametrize(
        "wrong",
        [{"name": ""}, {"ring_1_soak": "soon"}, {"ring_1_soak": "-5"}, {"ring_2_soak": "5"}, {"ring_2_name": ""},
         {"ring_1_soak": "9" * 6}, {"plan_x": "1"}, {"plan_x": "9"}],
    )  # fmt: skip
    def test_what_was_typed_is_shown_again_with_what_is_wrong(self, pair, plans, wrong):
        html = post(pair[0].operator, NEW, 422, **typed(plans, **wrong))
        assert not FleetRun.objects.exists()
        assert 'role="alert"' in html or "aria-invalid" in html
        for name, value in typed(plans, **wrong).items():
            assert not value or not name.startswith(("name", "ring")) or f'value="{value}"' in html, name
        assert html.count(" selected") == 2

    def test_an_empty_form_says_what_it_lacks(self, pair, plans):
        html = post(pair[0].operator, NEW, 422)
        assert "name" in html

    def test_who_may_operate_one_cluster_is_offered_only_its_drafts(self, pair, plans):
        some = User.objects.create(username="some", email="some@example.com")
        RoleBinding.objects.create(user=some, role="operator", scope=f"cluster:{pair[0].cluster.pk}")
        RoleBinding.objects.create(user=some, role="viewer", scope="*")
        html = page(some, NEW)
        assert f"plan_{plans[0].pk}" in html
        assert f"plan_{plans[1].pk}" not in html
        post(some, NEW, 422, **typed(plans))


class TestItsPage:
    def test_each_verb_goes_through_and_leads_back(self, pair, run, plans):
        where, by = f"/fleet-runs/F-{run.number}/", pair[0].operator
        for verb, fields, status in (
            ("request", {}, "draft"), ("start", {}, "running"), ("hold", {"reason": "wait"}, "held"),
            ("release", {}, "running"),
            ("leave-out", {"plan": str(plans[1].number), "reason": "no"}, "running"),
            ("cancel", {"reason": "no"}, "cancelled"),
        ):  # fmt: skip
            post(by, f"{where}{verb}/", **fields)
            run.refresh_from_db()
            assert run.status == status, verb
        assert set(run.plans.values_list("status", flat=True)) == {"withdrawn"}
        assert "has ended" in page(by, where)

    def test_a_refusal_keeps_the_reason_that_was_typed(self, pair, run):
        fleet_runs.start(run, by=pair[0].operator)
        html = post(pair[0].operator, f"/fleet-runs/F-{run.number}/open-ring/", 409, reason="in a hurry")
        assert 'value="in a hurry"' in html
        assert "is open" in text_of(html)

    def test_rubbish_in_a_verb_is_an_error_and_no_failure(self, pair, run):
        where = f"/fleet-runs/F-{run.number}"
        post(pair[0].operator, f"{where}/leave-out/", 404, plan="²", reason="x")
        post(pair[0].operator, f"{where}/add/", 404, plan="9" * 30, ring="1")
        post(pair[0].operator, f"{where}/hold/", 409, reason="x")

    def test_a_plan_says_its_ring_and_why_it_does_not_start(self, pair, run, plans):
        pair[1].approved(Plan.objects.get(pk=plans[1].pk))
        fleet_runs.start(run, by=pair[0].operator)
        text = text_of(page(pair[0].operator, f"/plans/P-{plans[1].number}/"))
        assert "Ring 2 of 2" in text
        assert "Waits for ring 1" in text

    def test_of_clusters_that_one_may_not_see_only_the_number_is_shown(self, pair, run, plans):
        for world in pair:
            world.approved(Plan.objects.get(pk=plans[pair.index(world)].pk))
        fleet_runs.start(run, by=pair[0].operator)
        fleet_runs.advance(run.pk)
        stranger = User.objects.create(username="some", email="some@example.com")
        where = f"/fleet-runs/F-{run.number}/"
        page(stranger, where, 403)
        RoleBinding.objects.create(user=stranger, role="viewer", scope="env:development")
        page(User.objects.get(pk=stranger.pk), where, 404)
        RoleBinding.objects.create(user=stranger, role="viewer", scope=f"cluster:{pair[1].cluster.pk}")
        stranger = User.objects.get(pk=stranger.pk)
        own = [where, "/fleet-runs/", f"/plans/P-{plans[1].number}/"]
        for path in own:
            assert "atlas" not in page(stranger, path).replace("ring of atlas", ""), path
        assert "1 more of clusters" in text_of(page(stranger, where))
        answer = api(stranger, "read").get(f"/api/v1/fleet-runs/{run.pk}").json()
        assert [len(ring["plans"]) for ring in answer["rings"]] == [0, 1]
        assert [ring["hidden_plans"] for ring in answer["rings"]] == [1, 0]
        assert not any(answer["permissions"].values())

    def test_those_who_see_all_clusters_read_why_a_plan_does_not_start(self, pair, run, plans):
        """The refusal of a start names a cluster or a node."""
        pair[0].approved(Plan.objects.get(pk=plans[0].pk))
        fleet_runs.start(run, by=pair[0].operator)
        RoleBinding.objects.filter(user=pair[0].operator).delete()
        fleet_runs.advance(run.pk)
        where, rest = f"/fleet-runs/F-{run.number}/", f"/api/v1/fleet-runs/{run.pk}"
        some = User.objects.create(username="some", email="some@example.com")
        RoleBinding.objects.create(user=some, role="viewer", scope=f"cluster:{pair[1].cluster.pk}")
        for path in (rest, "/api/v1/fleet-runs"):
            assert "atlas" not in api(some, "read").get(path).content.decode().replace("ring of atlas", ""), path
        assert "has not started" in api(some, "read").get(rest).json()["waiting_for"]
        assert "atlas" not in page(some, where).replace("ring of atlas", "")

        RoleBinding.objects.create(user=some, role="viewer", scope=f"cluster:{pair[0].cluster.pk}")
        some = User.objects.get(pk=some.pk)
        assert "role operator for atlas" in api(some, "read").get(rest).json()["waiting_for"]
        assert "P-1: This needs the role operator for atlas" in text_of(page(some, where))

    def test_what_a_plan_lacked_at_the_last_look_is_not_told_of_the_present(self, pair, run, plans):
        fleet_runs.start(run, by=pair[0].operator)
        fleet_runs.advance(run.pk)
        pair[0].approved(Plan.objects.get(pk=plans[0].pk))
        run.refresh_from_db()
        assert "draft" in run.waiting_for
        answer = api(pair[0].operator, "read").get(f"/api/v1/fleet-runs/{run.pk}").json()
        assert "approved" in answer["rings"][0]["reason"]


class TestRest:
    def test_the_whole_way(self, pair, plans):
        client = api(pair[0].operator, "read", "plan", "apply")
        rings = [{"name": "staging", "soak_minutes": 5, "plans": [str(plans[0].pk)]},
                 {"name": "production", "plans": [str(plans[1].pk)]}]  # fmt: skip
        made = client.post(
            "/api/v1/fleet-runs", {"name": "swappiness", "rings": rings}, content_type="application/json"
        )
        assert made.status_code == 201, made.content
        where = f"/api/v1/fleet-runs/{made.json()['id']}"
        assert made.json()["actions"]["start"]
        assert act(client, where, "request").status_code == 202
        answer = act(client, where, "start")
        assert answer.status_code == 202
        assert answer.json()["status"] == "running"
        assert [ring["state"] for ring in answer.json()["rings"]] == ["open", "waiting"]
        for verb in ("start", "release"):
            problem(act(client, where, verb), 409)
        assert fields_of(act(client, where, "hold")) == {"reason"}
        assert act(client, where, "hold", reason="a pager rang").json()["status"] == "held"
        assert act(client, where, "release").json()["status"] == "running"
        assert fields_of(act(client, where, "leave-out", reason="x", plan=str(pair[0].cluster.pk))) == {"plan"}
        assert act(client, where, "cancel", reason="x").json()["status"] == "cancelled"
        assert not Rollout.objects.exists()

    def test_unknown_and_foreign_plans_are_refused_alike(self, pair, plans):
        some = User.objects.create(username="some", email="some@example.com")
        RoleBinding.objects.create(user=some, role="operator", scope=f"cluster:{pair[0].cluster.pk}")
        client = api(some, "read", "plan")
        for other in (plans[1].pk, pair[0].cluster.pk):
            rings = [{"name": "a", "plans": [str(plans[0].pk), str(other)]}]
            sent = client.post("/api/v1/fleet-runs", {"name": "x", "rings": rings}, content_type="application/json")
            assert fields_of(sent) == {"rings"}
            assert str(other) in sent.content.decode()

    @pytest.mark.parametrize(
        "more", [{"soak_minutes": -1}, {"soak_minutes": 99999}, {"plans": []}, {"after": 1}, {"name": ""}]
    )
    def test_bad_rings_name_the_field(self, pair, plans, more):
        client = api(pair[0].operator, "read", "plan")
        ring = {"name": "a", "plans": [str(plans[0].pk)]} | more
        sent = client.post("/api/v1/fleet-runs", {"name": "x", "rings": [ring]}, content_type="application/json")
        assert sent.status_code == 422
        assert "rings" in str(fields_of(sent))

    def test_a_token_without_the_scope_is_refused(self, pair, run):
        problem(act(api(pair[0].operator, "read", "plan"), f"/api/v1/fleet-runs/{run.pk}", "start"), 403)
