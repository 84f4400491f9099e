"""A difference shows what changes, in which order, and nothing that is secret."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.fleet import FleetUnavailable, Forbidden
from clusters.kube.discovery import Resource, ServedApis
from components.helm.patches import marked
from components.helm.rendering import Manifest
from components.plans import diff, impact, taken_back
from components.plans.diff import Compared, Comparison
from components.plans.folding import folded
from components.plans.impact import destroyed
from components.plans.prepared import Destroyed
from tests.components.kube import Kube

CRDS = "apiextensions.k8s.io/v1"
TYPES = (
    Resource("v1", "Namespace", "namespaces", False),
    Resource("v1", "ConfigMap", "configmaps", True),
    Resource("v1", "Secret", "secrets", True),
    Resource("v1", "PersistentVolumeClaim", "persistentvolumeclaims", True),
    Resource("apps/v1", "DaemonSet", "daemonsets", True),
    Resource(CRDS, "CustomResourceDefinition", "customresourcedefinitions", False),
    Resource("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "validatingwebhooks", False),
    Resource("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "mutatingwebhooks", False),
    Resource("example.com/v1", "Thing", "things", True),
)
SERVED = ServedApis("v1.35.4", {(one.api_version, one.kind): one for one in TYPES})
MAPS = "/api/v1/namespaces/space/configmaps"


@pytest.fixture
def kube() -> Kube:
    made = Kube()
    made.say("GET", "/api/v1/namespaces", {"items": [{"metadata": {"name": "space"}}]})
    return made


def manifest(kind: str, name: str = "a", api_version: str = "v1", generated: tuple[str, ...] = (), **over) -> Manifest:
    return Manifest({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **over}, generated)


def there(kube: Kube, one: Manifest, *, owned: bool = True, becomes: dict | None = None, **over) -> None:
    """Put an object into the cluster, as helm would have made it, with the answer of a dry run of it."""
    resource = SERVED.find(one.api_version, one.kind)
    raw = {**(marked(one.raw, "one", "space") if owned else one.raw), **over}
    raw = {**raw, "metadata": {**raw["metadata"], "uid": "u", "resourceVersion": "7", "managedFields": [{}]}}
    path = resource.path("space" if resource.is_namespaced else "", one.name)
    kube.say("GET", path, raw)
    kube.say("PATCH", path, lambda how: (200, {**raw, **(becomes or {}), "status": {"seen": True}}))


def comparison(kube: Kube, **over) -> Comparison:
    return Comparison(**({"server": kube, "served": SERVED, "release": "one", "namespace": "space"} | over))


def differences(kube: Kube, *wanted: Manifest, old: tuple[Manifest, ...] = (), **over):
    one = comparison(kube, **over)
    return one.shown(one.compare(wanted, old))


def notes(kube: Kube, *wanted: Manifest, old: tuple[Manifest, ...] = (), crds: tuple[Manifest, ...] = ()):
    compared = comparison(kube).compare(wanted, old)
    return impact.notes(kube, SERVED, compared, crds, destroyed(kube, SERVED, compared))


# ── What changes ──────────────────────────────────────────────────────────────────────────────────────────────────────
def test_what_is_not_there_is_created_as_the_api_server_would(kube):
    kube.say("POST", MAPS, lambda how: (201, {**how["body"], "immutable": False}))
    (one,) = differences(kube, manifest("ConfigMap", data={"x": "1"}))
    assert (one.change, one.kind, one.namespace, one.name) == ("created", "ConfigMap", "space", "a")
    assert "+immutable: false" in one.diff
    (asked,) = [request for request in kube.asked if request["method"] == "POST"]
    assert asked["query"] == {"dryRun": "All", "fieldManager": "helm"}
    assert asked["body"]["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "Helm"}


def test_a_kind_or_namespace_that_is_not_there_yet_is_not_validated(kube):
    elsewhere = Manifest({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "later"}})
    found = differences(kube, elsewhere, manifest("Later", api_version="later.example.com/v1"))
    assert [(one.kind, one.change, one.namespace) for one in found] == [
        ("ConfigMap", "unvalidated", "later"),
        ("Later", "unvalidated", "space"),
    ]
    assert all(request["method"] == "GET" for request in kube.asked)


def test_what_would_stay_the_same_is_not_shown(kube):
    one = manifest("ConfigMap", data={"x": "1"})
    there(kube, one)
    assert differences(kube, one, old=(one,)) == []


def test_a_custom_resource_with_the_same_manifest_is_not_even_asked_about(kube):
    one = manifest("Thing", api_version="example.com/v1", spec={"x": 1})
    there(kube, one, spec={"x": 2})
    assert differences(kube, one, old=(one,)) == []
    assert [request["method"] for request in kube.asked if "things" in request["path"]] == ["GET"]


def test_helm_v4_applies_and_is_asked_so(kube):
    one = manifest("ConfigMap", data={"x": "1"})
    there(kube, one, becomes={"data": {"x": "2"}})
    differences(kube, one, old=(one,), is_server_side=True)
    (asked,) = [request for request in kube.asked if request["method"] == "PATCH"]
    assert asked["content_type"] == "application/apply-patch+yaml"


def test_what_the_new_manifest_lacks_is_deleted_unless_it_is_kept_or_gone(kube):
    keep = {"metadata": {"name": "kept", "annotations": {"helm.sh/resource-policy": "keep"}}}
    gone, stays = manifest("ConfigMap", "gone"), manifest("ConfigMap", "stays", data={"x": "1"})
    there(kube, stays)
    (one,) = differences(kube, old=(gone, stays, manifest("ConfigMap", **keep)))
    assert (one.change, one.name) == ("deleted", "stays")
    assert "-  x: '1'" in one.diff


def test_an_object_under_a_newer_version_of_its_api_is_the_same_object(kube):
    kube.say("GET", MAPS + "/a", {"kind": "ConfigMap", "metadata": {"name": "a"}})
    one = comparison(kube)
    assert one.identity(manifest("Thing", api_version="example.com/v1beta1")) == one.identity(
        manifest("Thing", api_version="example.com/v1")
    )


def test_the_gravest_stands_first(kube):
    kube.say("POST", MAPS, lambda how: (201, how["body"]))
    crd = manifest("CustomResourceDefinition", "things.example.com", CRDS, spec={})
    changed, claim = manifest("ConfigMap", "b", data={"x": "1"}), manifest("PersistentVolumeClaim", "c")
    there(kube, changed, becomes={"data": {"x": "2"}})
    there(kube, crd)
    there(kube, claim)
    found = differences(kube, manifest("ConfigMap", "a"), changed, old=(crd, claim, changed))
    assert [(one.kind, one.change) for one in found] == [
        ("CustomResourceDefinition", "deleted"),
        ("PersistentVolumeClaim", "deleted"),
        ("ConfigMap", "changed"),
        ("ConfigMap", "created"),
    ]


# ── What is never shown ───────────────────────────────────────────────────────────────────────────────────────────────
def test_a_secret_shows_which_keys_change_and_no_value(kube):
    one = manifest("Secret", data={"same": "c2FtZQ==", "other": "bmV3", "added": "YWRk"})
    before = {"same": "c2FtZQ==", "other": "b2xk", "removed": "Z29uZQ=="}
    last = {"kubectl.kubernetes.io/last-applied-configuration": "c2FtZQ=="}
    there(kube, one, data=before, becomes={"data": one.raw["data"]})
    path = "/api/v1/namespaces/space/secrets/a"
    kube.answers["GET", path][1]["metadata"]["annotations"] |= last
    (shown,) = differences(kube, one, old=(one,))
    lines = [line for line in shown.diff.splitlines() if line[0] in "+-"]
    assert lines == [
        "-  other: (hidden)",
        "-  removed: (hidden)",
        "+  added: (hidden)",
        "+  other: (hidden, changed)",
    ]
    assert not any(text in shown.diff for text in ("c2FtZQ", "bmV3", "b2xk", "YWRk", "Z29uZQ"))


def test_what_is_generated_is_marked_and_a_resolved_secret_is_covered(kube):
    one = manifest("ConfigMap", generated=("/data/ca",), data={"ca": "CA-2", "url": "https://u:hunter2@x"})
    there(kube, one, data={"ca": "CA-1", "url": "y"}, becomes={"data": dict(one.raw["data"])})
    (shown,) = differences(kube, one, old=(one,), hidden=("hunter2",))
    assert "+  ca: (regenerated)" in shown.diff
    assert "+  url: https://u:(hidden)@x" in shown.diff
    assert "CA-2" not in shown.diff


@pytest.mark.parametrize(
    ("secret", "written", "told"),
    [
        ("it's: here", "url: {}", "it''s"),  # as YAML quotes it
        (
            "-----BEGIN-----\nbm90aGluZw\n-----END-----\n",
            "tls:\n    key: |\n      {}",
            "bm90aGluZw",
        ),  # indented by a chart
        ("-----BEGIN-----\nbm90aGluZw\n-----END-----\n", '{{"key": "{}"}}', "bm90aGluZw"),
        ("hunter22", "auth: aHVudGVyMjI=", "aHVudGVyMjI="),
        ("24680", "{}", "24680"),
    ],
)
def test_a_secret_is_covered_however_a_chart_writes_it(secret, written, told):
    text = written.format(secret.strip().replace("\n", "\\n" if "{{" in written else "\n      "))
    shown = diff.unified({}, {"data": {"config": int(text) if text.isdigit() else text}}, (secret,))
    assert told not in shown
    assert "(hidden)" in shown


def test_one_changed_line_of_a_long_text_is_one_line_of_the_difference():
    long = "\n".join(f"line {number}" for number in range(50))
    text = diff.unified({"data": {"a": long}}, {"data": {"a": long.replace("line 25", "other")}})
    assert [line for line in text.splitlines() if line[0] in "+-"] == ["-    line 25", "+    other"]


def test_a_difference_beyond_all_measure_is_cut(monkeypatch):
    monkeypatch.setattr(diff, "MAX_DIFF", 1000)
    text = diff.unified({}, {"data": {str(number): "x" * 50 for number in range(100)}})
    assert len(text) < 1100
    assert text.endswith("… and more")


# ── What is said in words ─────────────────────────────────────────────────────────────────────────────────────────────
def test_an_object_of_nobody_or_of_another_release_blocks(kube):
    one = manifest("ConfigMap")
    there(kube, one, owned=False)
    (note,) = notes(kube, one)
    assert (note.severity, note.code) == ("block", "not-ours")
    assert "No release made it" in note.detail

    kube.say("GET", f"{MAPS}/a", marked(one.raw, "other", "elsewhere"))
    assert "It belongs to the release elsewhere/other." in notes(kube, one)[0].detail


def test_what_the_api_server_would_refuse_blocks_with_its_words(kube):
    said = {"kind": "Status", "code": 422, "message": "spec.replicas: Invalid value: -1"}
    kube.say("POST", MAPS, said, status=422)
    (note,) = notes(kube, manifest("ConfigMap"))
    assert (note.severity, note.title) == ("block", "ConfigMap a would be refused")
    assert "Invalid value: -1" in note.detail


@pytest.mark.parametrize(("status", "error"), [(403, Forbidden), (503, FleetUnavailable)])
def test_what_may_not_be_asked_or_has_no_answer_is_no_difference(kube, status, error):
    kube.say("POST", MAPS, {"kind": "Status", "code": status, "message": "no"}, status=status)
    with pytest.raises(error):
        comparison(kube).compare([manifest("ConfigMap")])


def definition(**versions) -> Manifest:
    listed = [{"name": name, "schema": schema} for name, schema in versions.items()]
    spec = {"group": "example.com", "names": {"kind": "Thing"}, "versions": listed}
    return manifest("CustomResourceDefinition", "things.example.com", CRDS, spec=spec)


@pytest.mark.parametrize(
    ("page", "count", "words"),
    [
        ({"items": [{}], "metadata": {"remainingItemCount": 41}}, 42, "and with it 42 objects"),
        ({"items": [{}]}, 1, "and with it 1 object"),
        ({"items": []}, 0, "it has no objects"),
    ],
)
def test_a_kind_that_is_removed_says_how_many_objects_go_with_it(kube, page, count, words):
    there(kube, definition())
    kube.say("GET", "/apis/example.com/v1/things", page)
    compared = comparison(kube).compare([], [definition()])
    assert destroyed(kube, SERVED, compared) == (Destroyed("things.example.com", "Thing", count),)
    (note,) = notes(kube, old=(definition(),))
    assert note.severity == "warn"
    assert words in note.title


def test_what_may_not_be_counted_is_not_called_none(kube):
    there(kube, definition())
    kube.say("GET", "/apis/example.com/v1/things", {"kind": "Status", "code": 403, "message": "no"}, status=403)
    (found,) = destroyed(kube, SERVED, comparison(kube).compare([], [definition()]))
    assert found.count == -1
    (note,) = notes(kube, old=(definition(),))
    assert "and with it all its objects" in note.title


def test_a_revert_takes_definitions_of_templates_along_and_leaves_those_of_crds(kube):
    """helm deletes what is in its manifest; what `crds/` brought is not, and what asks to be kept is kept."""
    kube.say("POST", CRDS, {})
    keeps = definition()
    keeps.raw["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
    for made, crds, codes in (
        ((definition(),), (), ["revert-destroys"]),
        ((keeps,), (), []),
        ((), (definition(),), ["revert-leaves"]),
    ):
        compared = [Compared(one, "created", "") for one in made]
        found = impact.notes(kube, SERVED, compared, crds, is_install=True)
        assert [note.code for note in found] == codes


def test_a_definition_in_crds_that_differs_is_said_because_helm_leaves_it(kube):
    there(kube, definition(v1={"type": "object"}))
    assert notes(kube, crds=(definition(v1={"type": "object"}),)) == []
    (note,) = notes(kube, crds=(definition(v1={"type": "object"}, v2={}),))
    assert (note.code, note.severity) == ("crd-stale", "warn")
    assert "things.example.com" in note.detail


def daemon(image: str, strategy: str = "RollingUpdate") -> Manifest:
    spec = {"updateStrategy": {"type": strategy}, "template": {"spec": {"containers": [{"name": "a", "image": image}]}}}
    return manifest("DaemonSet", api_version="apps/v1", spec=spec)


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ("RollingUpdate", "DaemonSet space/a restarts on 1,200 nodes"),
        ("OnDelete", "DaemonSet space/a changes on 1,200 nodes, and its pods do not restart by themselves"),
    ],
)
def test_a_daemonset_says_on_how_many_nodes_it_restarts(kube, strategy, words):
    status = {"desiredNumberScheduled": 1200}
    there(kube, daemon("old", strategy), status=status, becomes={"spec": daemon("new", strategy).raw["spec"]})
    assert [note.title for note in notes(kube, daemon("new", strategy), old=(daemon("old", strategy),))] == [words]


def test_webhooks_of_one_name_are_told_of_once_with_all_that_refuse(kube):
    for kind in ("Validating", "Mutating"):
        path = f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}webhooks"
        kube.say("POST", path, lambda how: (201, how["body"]))
    both = [
        manifest(
            f"{kind}WebhookConfiguration",
            "hook",
            "admissionregistration.k8s.io/v1",
            webhooks=[{"name": f"{kind.lower()}.example.com"}],
        )
        for kind in ("Validating", "Mutating")
    ]
    told = [impact for impact in notes(kube, *both) if impact.code == "webhook"]
    assert len(told) == 1
    assert "validating.example.com" in told[0].detail
    assert "mutating.example.com" in told[0].detail


def test_labels_of_chart_and_version_are_folded_and_nothing_else_is():
    def labeled(version: str, **more: Any) -> dict[str, Any]:
        labels = {"helm.sh/chart": f"a-{version}", "app.kubernetes.io/version": version, "app": "a"}
        template = {"metadata": {"labels": labels}}
        return {"kind": "X", "metadata": {"name": "x", "labels": labels}, "spec": more, "template": template}

    def compared(before: dict[str, Any], after: dict[str, Any]) -> Compared:
        return Compared(manifest("X", "x"), "changed", "space", before, after)

    plain = [{"metadata": {"labels": {"helm.sh/chart": f"a-{one}"}}, "spec": {"a": 1}} for one in "12"]
    pods = (labeled("1"), labeled("2"))
    kept, told = folded([compared(*plain), compared(*pods), compared(plain[0], {**plain[1], "spec": {"a": 2}})])

    assert [one.live for one in kept] == [pods[0], plain[0]], "pods restart by a label of theirs: that stays in sight"
    assert all(one.result["metadata"]["labels"] == one.live["metadata"]["labels"] for one in kept)
    assert kept[0].result["template"] == pods[1]["template"]
    assert "3 objects" in told[0].title
    assert "1 of them" in told[0].detail


def test_fields_that_somebody_else_set_are_named_with_who_and_never_with_a_secret():
    held = {"f:data": {"f:color": {}, "f:password": {}}}
    fields_of = [{"manager": "kubectl-edit", "time": "2026-11-22T02:10:00Z", "fieldsV1": held}]
    live = {"metadata": {"managedFields": fields_of}, "data": {"color": "pink", "password": "hunter2222", "own": "1"}}
    wanted = {"metadata": {}, "data": {"color": "blue", "password": "correct-horse", "own": "2"}}

    for kind in ("ConfigMap", "Secret"):
        [note] = taken_back.notes([Compared(manifest(kind, "a"), "changed", "space", live, wanted)], ())
        said = note.title + note.detail
        assert "data.color" in said
        assert "kubectl-edit" in said
        assert "2026-11-22 02:10 UTC" in said
        assert ("pink" in said and "blue" in said) == (kind == "ConfigMap")
        assert "data.own" not in said, "helm's own, or nobody's"
        assert "hunter2222" not in said
        assert "correct-horse" not in said


def test_webhooks_volumes_and_generated_passwords_are_said(kube):
    hooks = [{"name": "strict.example.com"}, {"name": "mild.example.com", "failurePolicy": "Ignore"}]
    hook = manifest("ValidatingWebhookConfiguration", "hook", "admissionregistration.k8s.io/v1", webhooks=hooks)
    kube.say("POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhooks", lambda how: (201, how["body"]))
    claim, made = (
        manifest("PersistentVolumeClaim", "c"),
        manifest("Secret", "s", generated=("/data/x",), data={"x": "eA=="}),
    )
    there(kube, claim)
    there(kube, made, data={"x": "eQ=="}, becomes={"data": {"x": "eA=="}})
    found = {note.code: note for note in notes(kube, hook, made, old=(claim, made))}
    assert found.keys() == {"webhook", "volume-removal", "generated"}
    assert "strict.example.com" in found["webhook"].detail
    assert "mild" not in found["webhook"].detail
    assert "space/s" in found["generated"].title


def test_definitions_of_a_chart_that_are_not_there_are_created_and_said(kube):
    new, known = manifest("CustomResourceDefinition", "new.example.com", CRDS), definition()
    there(kube, known, owned=False)
    absent = comparison(kube).absent([new, known])
    assert [(one.wanted.name, one.change) for one in absent] == [("new.example.com", "created")]
    (note,) = impact.created(absent)
    assert "new.example.com" in note.detail
    assert impact.created([]) == []


def test_one_that_is_being_deleted_is_created_once_more(kube):
    there(kube, definition(), metadata={"name": "things.example.com", "deletionTimestamp": "2026-11-22T02:10:00Z"})
    assert [one.wanted.name for one in comparison(kube).absent([definition()])] == ["things.example.com"]


def test_hooks_are_named_with_their_moment():
    def hook(name: str, moments: str) -> Manifest:
        return Manifest({"kind": "Job", "metadata": {"name": name, "annotations": {"helm.sh/hook": moments}}})

    found = [hook("a", "pre-install, pre-upgrade"), hook("b", "test"), hook("c", "post-install")]
    (note,) = impact.hooks(found, is_upgrade=False)
    assert note.title == "helm runs hooks of the chart: Job a (pre-install), Job c (post-install)"
    assert "Job a (pre-upgrade)" in impact.hooks(found, is_upgrade=True)[0].title
    assert impact.hooks(found[1:2], is_upgrade=False) == []
