"""Runs of checks: what comes of each end that a pod can have, and that no pod is ever left behind."""

from __future__ import annotations

import pytest

from clusters.fleet import FleetUnavailable, PodRef
from clusters.models import Cluster
from common.errors import Invalid, NotAllowed, WrongState
from gpus.models import CheckRun
from gpus.services.checks import runs, starting
from jobs.models import Freeze
from tests.gpus.checks import outputs
from tests.gpus.checks.conftest import IMAGE

pytestmark = pytest.mark.django_db
Status, Outcome = CheckRun.Status, CheckRun.Outcome


def test_a_check_passes_and_leaves_nothing(checking):
    (run,) = checking.start()
    checking.until(run, Status.RUNNING)
    (pod,) = checking.pods()
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    checking.ended(run)
    assert (run.outcome, run.reason, run.program_version) == (Outcome.PASSED, "8 results passed", "4.2.3")
    assert checking.pods() == []


def test_the_pod_has_no_rights_and_only_its_own_node(checking):
    run = checking.until(checking.start("n2")[0], Status.RUNNING)
    checking.world.tick(5)
    (pod,) = checking.pods()
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    assert spec["nodeName"] == "n2"
    assert spec["automountServiceAccountToken"] is False
    assert spec["priorityClassName"] == "setpoint-checks"
    assert not spec.keys() & {"serviceAccountName", "hostNetwork", "hostPID", "hostIPC"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not container["securityContext"]["privileged"]
    assert all("emptyDir" in volume for volume in spec.get("volumes", ()))
    checking.ended(run)


def test_a_failure_is_the_programs_own_word(checking):
    checking.prints(outputs.dcgm_4(("Hardware", "memory", "Fail"), gpus=8), exit_code=226)
    run = checking.ended(checking.start()[0])
    assert run.outcome == Outcome.FAILED
    assert run.notes == ["memory on GPU 7: Detected 3 volatile double-bit ECC errors on GPU 1."]
    assert checking.pods() == []


@pytest.mark.parametrize(
    ("printed", "about"),
    [
        ("", {}),
        ("Error: unable to connect to nv-hostengine", {"exit_code": 1}),
        (outputs.dcgm_4(("Hardware", "memory", "Pass")), {"exit_code": 1}),
        (outputs.dcgm_4(("Hardware", "memory", "Pass"))[:-20], {}),
        (outputs.fio(), {}),
        ("x" * (4 * 1024 * 1024 + 1), {}),
    ],
    ids=["nothing", "an error", "a pass with a bad end", "cut off", "of another program", "too long"],
)
def test_what_is_not_understood_is_no_result(checking, printed, about):
    checking.prints(printed, **about)
    run = checking.ended(checking.start()[0])
    assert run.outcome == Outcome.UNKNOWN
    assert run.reason
    assert checking.pods() == []


def test_an_image_that_cannot_be_pulled_is_given_up(checking):
    checking.prints("", is_missing=True)
    run = checking.ended(checking.start()[0])
    assert (run.outcome, "ImagePull" in run.reason) == (Outcome.NOT_RUN, True)
    assert checking.pods() == []


def test_a_program_that_hangs_is_ended(checking):
    checking.prints("", seconds=10**6)
    run = checking.ended(checking.start()[0])
    assert run.outcome == Outcome.UNKNOWN
    assert checking.pods() == []


def test_a_pod_that_another_party_removes_is_no_result(checking):
    run = checking.until(checking.start()[0], Status.RUNNING)
    checking.world.tick(5)
    checking.world.fleet.remove_pod(PodRef("setpoint-checks", run.pod_name, ""))
    assert checking.ended(run).outcome == Outcome.UNKNOWN


def test_a_pod_of_the_runs_name_that_is_not_its_own_is_left_alone(checking):
    (run,) = checking.start()
    metadata = {"name": run.pod_name, "namespace": "setpoint-checks"}
    spec = {"containers": [{"name": "c", "image": "other:1"}]}
    checking.world.fleet.run_pod({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    assert checking.ended(run).outcome == Outcome.NOT_RUN
    assert [pod["metadata"]["name"] for pod in checking.pods()] == [run.pod_name]


def test_a_cluster_without_the_rights_says_what_to_apply(checking):
    checking.world.sim.api.forbidden.add(("create", "pods"))
    run = checking.ended(checking.start()[0])
    assert run.outcome == Outcome.NOT_RUN
    assert "deploy/setpoint-checks.yaml" in run.reason


# ── only idle nodes, and only so many ─────────────────────────────────────────────────────────────────────────────────
def test_a_node_whose_gpus_are_held_is_waited_for(checking):
    checking.world.sim.pods.add("train", namespace="team", gpus=1, node="n1")
    checking.world.tick(5)
    (run,) = checking.start()
    for _ in range(8):
        checking.step(30)
    run.refresh_from_db()
    assert (run.status, "holds GPUs" in run.reason) == (Status.WAITING, True)
    assert checking.pods() == []


def test_a_node_that_stays_busy_is_given_up(checking):
    checking.world.sim.pods.add("train", namespace="team", gpus=1, node="n1")
    checking.world.tick(5)
    (run,) = checking.start()
    for _ in range(300):
        checking.step(30)
    run.refresh_from_db()
    assert (run.status, run.outcome) == (Status.ENDED, Outcome.NOT_RUN)


def test_never_more_at_once_than_allowed(checking):
    many = checking.start("n1", "n2", "n3", at_once=2)
    most = 0
    for _ in range(200):
        checking.step(2)
        most = max(most, len(checking.pods()))
    assert most == 2
    assert {CheckRun.objects.get(pk=run.pk).outcome for run in many} == {Outcome.PASSED}


def test_never_more_at_once_than_the_clusters_budget(checking):
    Cluster.objects.update(budget=1)
    checking.start("n1", "n2", "n3", at_once=3)
    most = 0
    for _ in range(60):
        checking.step(2)
        most = max(most, len(checking.pods()))
    assert most == 1


def test_nothing_begins_in_a_freeze(checking):
    Freeze.objects.create(cluster=checking.world.cluster, reason="end of the year")
    (run,) = checking.start()
    checking.step(30)
    run.refresh_from_db()
    assert (run.status, "end of the year" in run.reason) == (Status.WAITING, True)


def test_nothing_is_done_in_a_cluster_of_another_installation(checking):
    (run,) = checking.start()
    Cluster.objects.update(ownership=Cluster.Ownership.FOREIGN)
    checking.slice()
    run.refresh_from_db()
    assert run.status == Status.WAITING
    assert checking.pods() == []


# ── people ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_viewer_starts_and_stops_nothing(checking):
    (run,) = checking.start()
    with pytest.raises(NotAllowed):
        starting.start("dcgm-medium", checking.world.cluster, ["n2"], at_once=1, by=checking.world.approver)
    with pytest.raises(NotAllowed):
        starting.stop(run, by=checking.world.approver)
    with pytest.raises(NotAllowed):
        starting.set_image("dcgm-medium", "registry.example/evil:1", by=checking.world.operator)


def test_one_node_has_one_check_at_a_time(checking):
    checking.start("n1")
    with pytest.raises(WrongState):
        checking.start("n2", "n1")
    assert CheckRun.objects.count() == 1


def test_a_check_without_an_image_does_not_start(checking):
    starting.set_image("dcgm-medium", "", by=checking.world.admin)
    with pytest.raises(WrongState):
        checking.start()


@pytest.mark.parametrize(
    "image",
    [
        "dcgm", "dcgm:4", "registry.example/dcgm", "https://registry.example/dcgm:4", "r.example/x:1 --rm",
        "r.example/../x:1",
    ],
)  # fmt: skip
def test_an_image_names_its_registry_and_version(checking, image):
    with pytest.raises(Invalid):
        starting.set_image("dcgm-medium", image, by=checking.world.admin)


@pytest.mark.parametrize("moment", [Status.WAITING, Status.STARTING, Status.RUNNING])
def test_a_stop_at_any_moment_leaves_nothing(checking, moment):
    checking.prints("", seconds=600)
    run = checking.until(checking.start()[0], moment)
    starting.stop(run, by=checking.world.operator)
    assert checking.ended(run).outcome in (Outcome.NOT_RUN, Outcome.UNKNOWN)
    assert checking.pods() == []
    with pytest.raises(WrongState):
        starting.stop(run, by=checking.world.operator)


# ── killed workers and lost answers ───────────────────────────────────────────────────────────────────────────────────
class Killed(BaseException):
    """The process ends here."""


VERBS = ("run_pod", "pod", "pod_log", "remove_pod")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_worker_killed_around_any_call_costs_a_claim(checking, monkeypatch, clock, verb, after):
    fleet, real = checking.world.fleet, getattr(checking.world.fleet, verb)
    kills = iter([True])

    def once(*args, **kwargs):
        if not after and next(kills, False):
            raise Killed
        answer = real(*args, **kwargs)
        if after and next(kills, False):
            raise Killed
        return answer

    monkeypatch.setattr(fleet, verb, once)
    (run,) = checking.start()
    killed = 0
    for _ in range(200):
        try:
            checking.step(5)
        except Killed:
            killed += 1
            assert not runs.advance(run.pk), "another worker took what is claimed"
            clock.forward(seconds=runs.CLAIM.total_seconds() + 1)
            checking.world.look()
    run.refresh_from_db()
    assert killed == 1
    assert (run.status, run.outcome) == (Status.ENDED, Outcome.PASSED)
    assert checking.pods() == []


@pytest.mark.parametrize("verb", VERBS)
def test_an_answer_that_is_lost_is_looked_for_again(checking, monkeypatch, verb):
    fleet, real = checking.world.fleet, getattr(checking.world.fleet, verb)
    lost = iter([True, True])

    def flaky(*args, **kwargs):
        answer = real(*args, **kwargs)
        if next(lost, False):
            raise FleetUnavailable("no answer within 10 s")
        return answer

    monkeypatch.setattr(fleet, verb, flaky)
    run = checking.ended(checking.start()[0])
    assert run.outcome == Outcome.PASSED
    assert checking.pods() == []


def test_a_pod_made_after_its_run_ended_is_removed(checking, monkeypatch):
    """A worker that slept through its claim creates the pod when another has ended the run already."""
    run = checking.until(checking.start()[0], Status.STARTING)
    fleet, real = checking.world.fleet, checking.world.fleet.run_pod

    def late(manifest):
        CheckRun.objects.filter(pk=run.pk).update(status=Status.ENDED, claim="")
        return real(manifest)

    monkeypatch.setattr(fleet, "run_pod", late)
    assert not runs.advance(run.pk)
    checking.world.tick(60)
    assert checking.pods() == []


def test_delivered_twice_one_of_them_does_it(checking):
    run = checking.until(checking.start()[0], Status.STARTING)
    CheckRun.objects.filter(pk=run.pk).update(claim="other", claimed_until="2100-01-01T00:00Z")
    assert not runs.advance(run.pk)
    assert checking.pods() == []


def test_a_cluster_is_not_disconnected_while_its_nodes_are_checked(checking):
    checking.start()
    assert "1 check of its nodes" in next(iter(runs.blockers(checking.world.cluster)))
    assert CheckRun.objects.get().image == IMAGE
