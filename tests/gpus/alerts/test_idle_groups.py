"""Idle pods of one owner are one alert: it stays while they come and go, and each is billed for its own time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from clusters.models import GpuPod
from common.clock import now
from gpus.alerts.idle import held_idle
from gpus.metrics.samples import Holder, Metric
from gpus.models import IdleHolding
from notices import members
from notices.alerts import digests, evaluation
from notices.channels import bodies
from notices.models import Alert, Channel, Evaluation
from tests.factories import TokenClient, UserFactory

pytestmark = pytest.mark.django_db
LASTING = timedelta(minutes=30)


class Team:
    """Pods on boards of the node n0: `idle(pod, minutes)` holds one GPU and has done nothing for so long."""

    def __init__(self, boards, clock) -> None:
        self.boards, self.clock = boards, clock
        self.places = {}
        evaluation.reconcile()

    def idle(self, pod: str, minutes: float, owner: str = "train", namespace: str = "team") -> None:
        uuid = sorted(uuid for uuid in self.boards.values if uuid not in self.places.values())[0]
        self.places[pod] = uuid
        self.boards.holders[uuid] = (Holder(namespace, pod, "main"),)
        self.boards.values[uuid] = {Metric.BUSY: 0.0, Metric.ENGINE: 0.0, Metric.POWER: 70.0}
        GpuPod.objects.create(
            cluster=self.boards.cluster, uid=pod, namespace=namespace, name=pod, gpus=1,
            owner_kind="Job" if owner else "", owner_name=owner,
        )  # fmt: skip
        IdleHolding.objects.create(
            cluster=self.boards.cluster, node_name="n0", namespace=namespace, pod=pod, gpus=1, share=1,
            since=now() - timedelta(minutes=minutes), counted_until=now(),
        )  # fmt: skip

    def work(self, pod: str) -> None:
        self.boards.values[self.places[pod]][Metric.BUSY] = 0.9
        IdleHolding.objects.filter(pod=pod).delete()

    def look(self, minutes: float = 0.5) -> list[tuple[str, str]]:
        self.clock.forward(seconds=60 * minutes)
        self.boards.read()
        Evaluation.objects.update(due_at=now())
        assert evaluation.evaluate(self.boards.cluster.pk)
        return sorted(Alert.objects.filter(rule="held-idle").values_list("subject", "status"))

    def names(self) -> list[str]:
        (alert,) = Alert.objects.filter(rule="held-idle")
        return [entry["name"] for entry in members.present(alert.members)]


@pytest.fixture
def team(boards, clock):
    return Team(boards, clock)


def test_pods_of_one_owner_are_one_and_other_owners_and_namespaces_are_others(team):
    for pod, owner, namespace in (
        ("a-0", "a", "team"), ("a-1", "a", "team"), ("b-0", "b", "team"), ("a-2", "a", "other"),
        ("x", "", "team"), ("y", "", "team"),
    ):  # fmt: skip
        team.idle(pod, 60, owner, namespace)
    assert team.look() == [
        ("other/Job/a", "open"), ("team//", "open"), ("team/Job/a", "open"), ("team/Job/b", "open"),
    ]  # fmt: skip
    both = Alert.objects.get(subject="team/Job/a")
    assert (both.figures["pods"], both.figures["gpus"], both.figures["watts"]) == (2, 2, 140)
    assert Alert.objects.get(subject="team//").subject_name == "team: pods without an owner"


def test_it_stays_one_alert_while_members_come_and_go(team):
    team.idle("a", 60)
    team.idle("b", 40)
    team.look()
    (first,) = Alert.objects.filter(rule="held-idle")
    assert team.names() == ["team/a", "team/b"]
    team.work("a")  # the one that opened it
    team.idle("c", 0)
    assert team.look() == [("team/Job/train", "open")]
    assert team.names() == ["team/b"]  # c is young
    team.look(31)
    assert team.names() == ["team/b", "team/c"]
    team.work("b")
    team.look()
    (last,) = Alert.objects.filter(rule="held-idle")
    assert (last.pk, last.opened_at, last.began_at) == (first.pk, first.opened_at, first.began_at)
    team.work("c")
    team.look()
    assert team.look(6) == [("team/Job/train", "closed")]


def test_young_pods_open_nothing_however_many_they_are(team):
    for number in range(4):
        team.idle(f"p{number}", 25)
    assert team.look() == [("team/Job/train", "pending")]
    assert team.look(6) == [("team/Job/train", "open")]


def test_a_group_of_which_the_only_idle_pod_cannot_be_judged_stays_open(team):
    team.idle("a", 60)
    team.look()
    team.boards.absent.add(team.places["a"])
    assert team.look(20) == [("team/Job/train", "open")]
    assert Alert.objects.get(rule="held-idle").is_unknown


def test_the_digest_bills_each_pod_for_its_own_time_also_one_that_left(team):
    team.idle("a", 120)
    team.idle("b", 60)
    team.look()
    team.work("a")
    team.look(60)
    channel = Channel(name="ops", what=["digest"])
    body = digests.compose(channel, now())
    pods = {pod["pod"]: pod for space in body["namespaces"] for pod in space["pods"]}
    assert (body["pods"], body["gpus_now"]) == (2, 1)
    assert [pods[name]["is_idle_now"] for name in ("team/a", "team/b")] == [False, True]
    assert (pods["team/a"]["gpu_hours"], pods["team/b"]["gpu_hours"]) == (3.0, 2.0)
    assert pods["team/a"]["owner"] == "Job train"
    team.clock.forward(seconds=26 * 3600)
    later = digests.compose(channel, now())
    assert [pod["pod"] for space in later["namespaces"] for pod in space["pods"]] == ["team/b"]


def test_a_large_group_is_bounded_on_its_page_over_rest_and_in_a_notice(team, client):
    many = [f"pod-{number:03d}" for number in range(members.SHOWN + 20)]
    team.idle("pod-000", 60)
    uuid = team.places["pod-000"]
    team.boards.holders[uuid] = tuple(Holder("team", pod, "main") for pod in many)  # they share one GPU
    for pod in many[1:]:
        GpuPod.objects.create(
            cluster=team.boards.cluster,
            uid=pod,
            namespace="team",
            name=pod,
            gpus=1,
            owner_kind="Job",
            owner_name="train",
        )
        IdleHolding.objects.create(
            cluster=team.boards.cluster, node_name="n0", namespace="team", pod=pod, gpus=1, share=0.01,
            since=now() - timedelta(hours=1), counted_until=now(),
        )  # fmt: skip
    team.look()
    (alert,) = Alert.objects.filter(rule="held-idle")
    user = UserFactory(roles=["viewer"])
    row = TokenClient(user).get(f"/api/v1/alerts/{alert.pk}").json()
    assert (len(row["members"]), row["member_count"], row["figures"]["pods"]) == (members.SHOWN, len(many), len(many))
    notice = bodies.alert_fields(alert)
    assert (len(notice["members"]), notice["member_count"]) == (members.TOLD, len(many))
    client.force_login(user)
    page = client.get(f"/alerts/{alert.pk}/").content.decode()
    assert f'data-members="{len(many)}"' in page
    assert page.count("team/pod-") == members.SHOWN
    assert len(alert.sentence) < 500


def test_members_are_bounded_and_those_that_left_are_kept_for_a_day(clock):
    from common.alerting import AlertMember

    crowd = [AlertMember(f"p{number}", now()) for number in range(3 * members.MOST)]
    stored = members.merged([], crowd, now())
    assert len(stored) == members.MOST
    clock.forward(seconds=60)
    assert len(members.merged(stored, [], now())) == members.MOST
    gone = members.merged(stored, [], now())
    clock.forward(seconds=members.KEPT.total_seconds())
    assert members.merged(gone, [], now()) == []
    again = members.merged(stored, [AlertMember("p0", now())], now())  # idle again: two stretches
    assert [entry["left_at"] is None for entry in again if entry["name"] == "p0"] == [True, False]


def test_a_look_is_the_same_few_queries_for_any_number_of_pods(team, django_assert_max_num_queries):
    for number in range(4):
        team.idle(f"p{number}", 60, f"job-{number}")
    team.boards.read()
    with django_assert_max_num_queries(6):
        assert len(held_idle(team.boards.cluster.pk, 5).conditions) == 4
