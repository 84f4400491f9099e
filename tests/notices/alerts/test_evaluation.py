"""Alerts that open, stay and close: only after the condition has lasted, never twice, and unknown is not healthy."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

from common import hooks
from common.alerting import AlertCondition, AlertRule, RuleResult, Severity, SubjectKind, Threshold
from common.clock import now
from notices.alerts import alert_actions, evaluation, rulebook
from notices.models import Alert, Channel, Delivery, Evaluation
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db
Status = Alert.Status


class Seeing:
    """A rule whose looks a test sets; opens after 60 s, closes after 120 s."""

    def __init__(self) -> None:
        self.found = RuleResult()
        self.asked: list[float] = []
        self.rule = AlertRule(
            "toy",
            "A toy",
            "Fires at {limit}{lasting}.",
            Severity.CRITICAL,
            self.look,
            opens_after=timedelta(seconds=60),
            closes_after=timedelta(seconds=120),
            threshold=Threshold(5, 1, 10, "%", "from which it is too much"),
        )

    def look(self, cluster_id, threshold):
        self.asked.append(threshold)
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def fires_for(self, *names, **more):
        rows = [AlertCondition(SubjectKind.NODE, name, name, f"{name} is amiss.", **more) for name in names]
        self.found = RuleResult(rows)


@pytest.fixture
def seeing(monkeypatch):
    toy = Seeing()
    monkeypatch.setattr(hooks.alert_rules, "_subscribers", [lambda: [toy.rule]])
    return toy


@pytest.fixture
def cluster(db):
    cluster = ClusterFactory(name="atlas", environment="production")
    evaluation.reconcile()
    return cluster


@pytest.fixture
def after(clock, cluster):
    """after(seconds): the next look, so much later."""

    def look(seconds: float = 30) -> list[tuple[str, str]]:
        clock.forward(seconds=seconds)
        assert evaluation.due() == [cluster.pk]
        assert evaluation.evaluate(cluster.pk)
        return sorted(Alert.objects.values_list("subject", "status"))

    return look


def test_it_opens_only_when_it_has_lasted_and_closes_only_when_it_has_been_well(seeing, after, clock):
    seeing.fires_for("n1")
    assert after() == [("n1", Status.PENDING)]
    began = clock.at
    assert after() == [("n1", Status.PENDING)]
    assert after() == [("n1", Status.OPEN)]
    alert = Alert.objects.get()
    assert (alert.began_at, alert.opened_at, alert.severity) == (began, clock.at, "critical")
    seeing.found = RuleResult()
    assert after() == [("n1", Status.OPEN)]
    assert after(90) == [("n1", Status.OPEN)]
    assert after(30) == [("n1", Status.CLOSED)]
    alert.refresh_from_db()
    assert (alert.closed_at, alert.ending) == (clock.at, Alert.Ending.WELL)
    assert alert.well_since == clock.at - timedelta(seconds=120)


def test_what_comes_and_goes_neither_opens_nor_closes(seeing, after):
    for _ in range(3):
        seeing.fires_for("n1")
        assert after(40) == [("n1", Status.PENDING)]
        seeing.found = RuleResult()
        assert after(40) == []
    seeing.fires_for("n1")
    after()
    assert after(60) == [("n1", Status.OPEN)]
    for _ in range(3):
        seeing.found = RuleResult()
        assert after(100) == [("n1", Status.OPEN)]
        seeing.fires_for("n1")
        assert after(100) == [("n1", Status.OPEN)]
    assert Alert.objects.get().well_since is None


def test_unknown_neither_opens_nor_closes_and_says_so(seeing, after):
    seeing.fires_for("n1", "n2")
    after()
    after(60)
    seeing.found = RuleResult(unknown=frozenset({"n1"}))
    after()
    assert after(3600) == [("n1", Status.OPEN), ("n2", Status.CLOSED)]
    assert Alert.objects.get(subject="n1").is_unknown
    seeing.found = RuleResult(blind="Nothing is heard.")
    assert after(3600)[0] == ("n1", Status.OPEN)
    assert Evaluation.objects.get().blind == {"toy": "Nothing is heard."}
    seeing.found = RuleResult()  # seen again: only from here on it is well
    assert after()[0] == ("n1", Status.OPEN)
    alert = Alert.objects.get(subject="n1")
    assert not alert.is_unknown
    assert after(120)[0] == ("n1", Status.CLOSED)


def test_what_nobody_could_see_is_counted_anew_before_it_opens(seeing, after):
    seeing.fires_for("n1")
    after()
    seeing.found = RuleResult(blind="Nothing is heard.")
    after(600)
    seeing.fires_for("n1")
    assert after() == [("n1", Status.PENDING)]
    assert after(60) == [("n1", Status.OPEN)]


def test_two_looks_at_once_open_one_and_tell_once(seeing, after, cluster, clock, monkeypatch):
    Channel.objects.create(name="chat", what=["alerts"], url="https://chat.example/x")
    seeing.fires_for("n1")
    after()
    real, second = evaluation._looks, []

    def meanwhile(*arguments):
        if not second:
            second.append(None)
            second.append((evaluation.due(), evaluation.evaluate(cluster.pk)))
        return real(*arguments)

    monkeypatch.setattr(evaluation, "_looks", meanwhile)
    assert after(60) == [("n1", Status.OPEN)]
    assert second[1] == ([], False)
    assert Delivery.objects.count() == 1


def test_a_look_whose_claim_was_lost_writes_nothing(seeing, after, cluster, clock, monkeypatch):
    seeing.fires_for("n1")
    real = evaluation._looks

    def slow(*arguments):
        result = real(*arguments)
        clock.forward(seconds=evaluation.CLAIM.total_seconds() + 1)
        monkeypatch.setattr(evaluation, "_looks", real)
        assert evaluation.evaluate(cluster.pk)  # another worker, for the claim has run out
        Alert.objects.update(sentence="of the other")
        return result

    monkeypatch.setattr(evaluation, "_looks", slow)
    clock.forward(seconds=40)
    assert not evaluation.evaluate(cluster.pk)
    assert Alert.objects.get().sentence == "of the other"


def test_the_database_keeps_one_live_alert_of_a_subject(seeing, after, cluster):
    seeing.fires_for("n1")
    after()
    twin = Alert(rule="toy", cluster=cluster, subject_kind="node", subject="n1", subject_name="n1", severity="warning")
    with pytest.raises(IntegrityError), transaction.atomic():
        twin.save(force_insert=True)
    holding = rulebook.of_cluster(cluster.pk)[0]
    with transaction.atomic():  # as if the look had not known of it: the other's is the one
        opened = evaluation._opened(
            cluster.pk, holding, evaluation._by_subject(seeing.found), {}, now() + timedelta(hours=1)
        )
    assert (opened, Alert.objects.count()) == ([], 1)


def test_a_rule_that_fails_closes_nothing_and_others_go_on(seeing, after, monkeypatch):
    fine = Seeing()
    other = AlertRule("other", "x", "x", Severity.WARNING, fine.look)
    monkeypatch.setattr(hooks.alert_rules, "_subscribers", [lambda: [seeing.rule, other]])
    seeing.fires_for("n1")
    after()
    after(60)
    seeing.found, fine.found = ZeroDivisionError("x"), RuleResult([AlertCondition(SubjectKind.NODE, "n2", "n2", "x")])
    assert after(600) == [("n1", Status.OPEN), ("n2", Status.OPEN)]
    row = Evaluation.objects.get()
    assert (row.failures, row.blind) == (1, {"toy": evaluation.BLIND})


def test_a_rule_switched_off_closes_what_it_has_open_and_is_not_asked(seeing, after, cluster):
    admin = UserFactory(roles=["admin"])
    seeing.fires_for("n1")
    after()
    after(60)
    seeing.asked.clear()
    rulebook.change(seeing.rule, cluster, by=admin, version=0, is_enabled=False)
    assert after() == [("n1", Status.CLOSED)]
    assert seeing.asked == []
    assert Alert.objects.get().ending == Alert.Ending.RULE_OFF


def test_the_threshold_and_times_of_the_cluster_count_more_than_those_of_everywhere(seeing, after, cluster):
    admin = UserFactory(roles=["admin"])
    rulebook.change(seeing.rule, None, by=admin, version=0, threshold=7.0, opens_after=0)
    after()
    rulebook.change(seeing.rule, cluster, by=admin, version=0, threshold=9.0, severity="warning")
    seeing.fires_for("n1")
    assert after() == [("n1", Status.OPEN)]
    assert seeing.asked == [7.0, 9.0]
    assert Alert.objects.get().severity == "warning"


def test_what_changes_meanwhile_is_written_and_what_does_not_is_only_seen_again(
    seeing, after, clock, django_assert_max_num_queries
):
    seeing.fires_for("n1")
    after()
    after(60)
    seeing.found = RuleResult([AlertCondition(SubjectKind.NODE, "n1", "n1", "Worse.", figures={"celsius": 91.5})])
    after()
    alert = Alert.objects.get()
    assert (alert.sentence, alert.figures, alert.last_seen_at) == ("Worse.", {"celsius": 91.5}, clock.at)
    seeing.fires_for(*(f"m{n}" for n in range(300)))
    after()
    after(60)
    clock.forward(seconds=30)
    with django_assert_max_num_queries(9):  # of 301 alerts
        evaluation.evaluate(alert.cluster_id)


def test_a_silence_holds_over_a_closing_and_the_next_opening(seeing, after, cluster):
    Channel.objects.create(name="chat", what=["alerts"], url="https://chat.example/x")
    operator = UserFactory(roles=["operator"])
    seeing.fires_for("n1")
    after()
    after(60)
    assert Delivery.objects.count() == 1
    alert_actions.silence(Alert.objects.get(), by=operator, until=now() + timedelta(hours=8), note="known")
    seeing.found = RuleResult()
    after()
    assert after(120) == [("n1", Status.CLOSED)]
    seeing.fires_for("n1")
    after()
    after(60)
    again = Alert.objects.get(status=Status.OPEN)
    assert (again.is_silenced, again.note) == (True, "known")
    assert Delivery.objects.count() == 1


def test_so_many_alerts_of_one_rule_are_enough(seeing, after, monkeypatch):
    monkeypatch.setattr(evaluation, "MOST", 3)
    seeing.fires_for(*"abcde")
    assert [subject for subject, _ in after()] == ["a", "b", "c"]


def test_closed_alerts_are_forgotten_after_their_days_and_open_ones_never(seeing, after, clock, settings):
    seeing.fires_for("n1", "n2")
    after()
    after(60)
    seeing.fires_for("n2")
    after()
    after(120)
    clock.forward(days=settings.SETPOINT_ALERT_DAYS + 1)
    assert evaluation.forget() == 1
    assert list(Alert.objects.values_list("subject", flat=True)) == ["n2"]
