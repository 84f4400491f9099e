"""helm's own records, as it writes them, as it leaves them when it is killed, and as another party might write them."""

from __future__ import annotations

import base64
import gzip
import json

import pytest
import yaml

from clusters.fleet import Conflict, FleetRefused, Untrusted
from components.catalog.entry import ChartReference
from components.helm import releases
from components.plans import gitops
from components.plans.gitops import Manager, ProposedChange
from tests.components.kube import Kube, payload, record

SECRETS = "/api/v1/namespaces/space/secrets"


def kube(*records) -> Kube:
    made = Kube()
    made.say("GET", SECRETS, {"kind": "SecretList", "items": list(records)})
    return made


def test_a_history_is_read_in_its_order_whatever_the_order_of_the_list():
    records = [record(payload(number, "superseded" if number < 11 else "failed")) for number in (11, 2, 10)]
    history = releases.history(kube(*records), "space", "one")
    assert [revision.number for revision in history.revisions] == [2, 10, 11]
    assert history.last.status == "failed"
    assert history.deployed is None
    assert history.numbered(10).number == 10
    assert history.numbered(3) is None


def test_after_a_removal_no_earlier_revision_is_in_force():
    """helm leaves the revision before a failed upgrade as deployed when the failed one is removed."""
    records = [record(payload(1)), record(payload(2, "uninstalled"))]
    history = releases.history(kube(*records), "space", "one")
    assert (history.last.status, history.deployed) == ("uninstalled", None)
    everywhere = Kube()
    everywhere.say("GET", "/api/v1/secrets", {"kind": "SecretList", "items": records})
    assert releases.newest(everywhere) == []


def test_a_release_is_what_helm_recorded():
    release = releases.history(kube(record(payload(3, apply_method="ssa"))), "space", "one").deployed.read()
    assert (release.revision, release.status, release.chart, release.chart_version) == (3, "deployed", "tiny", "1.2.3")
    assert release.values == {"color": "blue"}
    assert release.is_server_side
    assert "ConfigMap" in release.manifest
    assert "blue" not in repr(release)


def test_a_release_that_is_not_there_has_no_history():
    history = releases.history(kube(), "space", "one")
    assert (history.last, history.deployed) == (None, None)


def test_only_this_releases_records_are_asked_for():
    server = kube()
    releases.history(server, "space", "one")
    assert server.asked[0]["query"]["labelSelector"] == "owner=helm,name=one"
    with pytest.raises(FleetRefused):
        releases.history(server, "space", "one,owner=me")
    with pytest.raises(FleetRefused):
        releases.history(server, "../kube-system", "one")


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"release": "%%%"},
        {"release": base64.b64encode(b"%%%").decode()},
        {"release": base64.b64encode(base64.b64encode(b"\x1f\x8bnothing")).decode()},
        {"release": base64.b64encode(base64.b64encode(b"[]")).decode()},
        {"release": base64.b64encode(base64.b64encode(gzip.compress(b"[" * 100_000))).decode()},
        {"release": base64.b64encode(base64.b64encode(gzip.compress(bytes(70 << 20)))).decode()},
    ],
)
def test_a_record_that_helm_did_not_write_is_not_believed(data):
    raw = record(payload()) | {"data": data}
    with pytest.raises(Untrusted, match=r"sh\.helm\.release\.v1\.one\.v1 cannot be read"):
        releases.history(kube(raw), "space", "one").last.read()


def test_records_without_a_number_are_passed_over():
    raw = record(payload())
    raw["metadata"]["labels"]["version"] = "x"
    assert releases.history(kube(raw), "space", "one").last is None


@pytest.mark.parametrize("status", sorted(releases.PENDING))
def test_a_pending_revision_is_recorded_as_failed_at_the_version_that_was_read(status):
    server = kube(record(payload(4, status)))
    revision = releases.history(server, "space", "one").last
    assert revision.is_pending
    server.say("PATCH", f"{SECRETS}/sh.helm.release.v1.one.v4", {"kind": "Secret"})

    releases.mend(server, revision, "helm was killed")

    change = server.asked[-1]["body"]
    assert change["metadata"]["resourceVersion"] == "7"
    assert change["metadata"]["labels"]["status"] == "failed"
    written = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(change["data"]["release"]))))
    assert written["info"]["status"] == "failed"
    assert written["info"]["description"] == "helm was killed"
    assert written | {"info": 0} == payload(4, status) | {"info": 0}


@pytest.mark.parametrize(("deleted", "status"), [("2026-01-01T00:00:00Z", "uninstalled"), ("", "failed")])
def test_the_newest_that_is_superseded_counts_as_what_it_was(deleted, status):
    left = payload(2, "superseded")
    left["info"]["deleted"] = deleted
    history = releases.history(kube(record(payload(1, "superseded")), record(left)), "space", "one")
    assert [revision.status for revision in history.revisions] == ["superseded", status]
    assert (history.last.is_abandoned, history.last.read().status, history.deployed) == (True, status, None)


def test_a_revision_that_another_helm_wrote_meanwhile_is_left_alone():
    server = kube(record(payload(4, "pending-upgrade")))
    path = f"{SECRETS}/sh.helm.release.v1.one.v4"
    server.say("PATCH", path, {"kind": "Status", "message": "changed", "code": 409}, status=409)
    with pytest.raises(Conflict):
        releases.mend(server, releases.history(server, "space", "one").last, "helm was killed")


def test_every_release_of_a_chart_is_found_by_its_newest_revision():
    made = Kube()
    other = payload(1, chart={"metadata": {"name": "other"}}, name="two")
    items = [record(payload(1)), record(payload(2)), record(other), record(payload(1, "uninstalled", name="gone"))]
    made.say("GET", "/api/v1/secrets", {"kind": "SecretList", "items": items})
    assert releases.find(made, "tiny") == [("space", "one")]


# ── Who keeps it ──────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("meta", "who"),
    [
        ({}, None),
        ({"labels": {"app.kubernetes.io/instance": "volcano"}}, None),
        (
            {"annotations": {"argocd.argoproj.io/tracking-id": "batch:apps/Deployment:a/b"}},
            Manager("Argo CD", "batch"),
        ),
        ({"labels": {"argocd.argoproj.io/instance": "batch"}}, Manager("Argo CD", "batch")),
        (
            {"labels": {"helm.toolkit.fluxcd.io/name": "batch", "helm.toolkit.fluxcd.io/namespace": "flux"}},
            Manager("Flux", "batch", "flux"),
        ),
    ],
)
def test_argo_cd_and_flux_are_known_by_their_marks(meta, who):
    assert gitops.manager([{"metadata": {}}, {"metadata": meta}]) == who


def test_what_to_commit_instead_is_ready_to_copy():
    chart = ChartReference("oci", "oci://registry.example/charts", "tiny")
    wish = ProposedChange(chart, "1.2.3", "one", "space", {"color": "blue"})
    argo, flux = Manager("Argo CD", "batch"), Manager("Flux", "batch", "flux")
    application = yaml.safe_load(gitops.to_commit(argo, wish))
    assert application["spec"]["source"] == {
        "repoURL": "registry.example/charts",
        "chart": "tiny",
        "targetRevision": "1.2.3",
        "helm": {"releaseName": "one", "valuesObject": {"color": "blue"}},
    }
    release = yaml.safe_load(gitops.to_commit(flux, wish))
    assert release["kind"] == "HelmRelease"
    assert release["spec"]["chart"]["spec"] == {"chart": "tiny", "version": "1.2.3"}
    assert release["metadata"] == {"name": "batch", "namespace": "flux"}
    assert "Argo CD's Application batch" in argo.refusal("one")
