"""Impact of a difference, in words: blocks, losses and restarts."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.fleet import FleetUnavailable, Forbidden
from components.helm.patches import marked
from components.helm.rendering import Manifest
from components.plans import impact, taken_back
from components.plans.diff import Compared
from components.plans.folding import folded
from components.plans.impact import destroyed
from components.plans.prepared import Destroyed
from tests.components.plans.comparing import CRDS, MAPS, SERVED, comparison, manifest, notes, there


def test_an_object_of_nobody_or_of_another_release_blocks(kube):
    config_map = manifest("ConfigMap")
    there(kube, config_map, owned=False)
    (note,) = notes(kube, config_map)
    assert (note.severity, note.code) == ("block", "not-ours")
    assert "No release made it" in note.detail

    kube.say("GET", f"{MAPS}/a", marked(config_map.raw, "other", "elsewhere"))
    assert "It belongs to the release elsewhere/other." in notes(kube, config_map)[0].detail


def test_what_the_api_server_would_refuse_blocks_with_its_words(kube):
    refusal = {"kind": "Status", "code": 422, "message": "spec.replicas: Invalid value: -1"}
    kube.say("POST", MAPS, refusal, status=422)
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


def test_kinds_without_objects_are_removed_in_one_sentence():
    gone = [Destroyed(f"{kind.lower()}s.example.com", kind, count) for kind, count in (("A", 0), ("B", 2), ("C", 0))]
    impacts = impact.notes(None, SERVED, (), (), gone)
    assert [note.title for note in impacts] == [
        "2 kinds are removed that have no objects: A, C",
        "The kind B is removed, and with it 2 objects",
    ]


def test_what_may_not_be_counted_is_not_called_none(kube):
    there(kube, definition())
    kube.say("GET", "/apis/example.com/v1/things", {"kind": "Status", "code": 403, "message": "no"}, status=403)
    (destroyed_kind,) = destroyed(kube, SERVED, comparison(kube).compare([], [definition()]))
    assert destroyed_kind.count == -1
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
        compared = [Compared(crd, "created", "") for crd in made]
        impacts = impact.notes(kube, SERVED, compared, crds, is_install=True)
        assert [note.code for note in impacts] == codes


def test_a_definition_in_crds_that_differs_is_said_because_helm_leaves_it(kube):
    there(kube, definition(v1={"type": "object"}))
    assert notes(kube, crds=(definition(v1={"type": "object"}),)) == []
    (note,) = notes(kube, crds=(definition(v1={"type": "object"}, v2={}),))
    assert (note.code, note.severity) == ("crd-stale", "warn")
    assert note.title.startswith("1 definition in crds/ differs")
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
    webhooks = [impact for impact in notes(kube, *both) if impact.code == "webhook"]
    assert len(webhooks) == 1
    assert "validating.example.com" in webhooks[0].detail
    assert "mutating.example.com" in webhooks[0].detail


def test_labels_of_chart_and_version_are_folded_and_nothing_else_is():
    def labeled(version: str, **more: Any) -> dict[str, Any]:
        labels = {"helm.sh/chart": f"a-{version}", "app.kubernetes.io/version": version, "app": "a"}
        template = {"metadata": {"labels": labels}}
        return {"kind": "X", "metadata": {"name": "x", "labels": labels}, "spec": more, "template": template}

    def compared(before: dict[str, Any], after: dict[str, Any]) -> Compared:
        return Compared(manifest("X", "x"), "changed", "space", before, after)

    plain = [{"metadata": {"labels": {"helm.sh/chart": f"a-{version}"}}, "spec": {"a": 1}} for version in "12"]
    pods = (labeled("1"), labeled("2"))
    kept, summaries = folded([compared(*plain), compared(*pods), compared(plain[0], {**plain[1], "spec": {"a": 2}})])

    assert [difference.live for difference in kept] == [pods[0], plain[0]], (
        "pods restart by a label of theirs: that stays in sight"
    )
    assert all(difference.result["metadata"]["labels"] == difference.live["metadata"]["labels"] for difference in kept)
    assert kept[0].result["template"] == pods[1]["template"]
    assert "3 objects" in summaries[0].title
    assert "1 of them" in summaries[0].detail


def test_fields_that_somebody_else_set_are_named_with_who_and_never_with_a_secret():
    held = {"f:data": {"f:color": {}, "f:password": {}}}
    fields_of = [{"manager": "kubectl-edit", "time": "2026-11-22T02:10:00Z", "fieldsV1": held}]
    live = {"metadata": {"managedFields": fields_of}, "data": {"color": "pink", "password": "hunter2222", "own": "1"}}
    wanted = {"metadata": {}, "data": {"color": "blue", "password": "correct-horse", "own": "2"}}

    for kind in ("ConfigMap", "Secret"):
        [note] = taken_back.notes([Compared(manifest(kind, "a"), "changed", "space", live, wanted)], ())
        text = note.title + note.detail
        assert "data.color" in text
        assert "kubectl-edit" in text
        assert "2026-11-22 02:10 UTC" in text
        assert ("pink" in text and "blue" in text) == (kind == "ConfigMap")
        assert "data.own" not in text, "helm's own, or nobody's"
        assert "hunter2222" not in text
        assert "correct-horse" not in text


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
    by_code = {note.code: note for note in notes(kube, hook, made, old=(claim, made))}
    assert by_code.keys() == {"webhook", "volume-removal", "generated"}
    assert "strict.example.com" in by_code["webhook"].detail
    assert "mild" not in by_code["webhook"].detail
    assert "space/s" in by_code["generated"].title


def test_definitions_of_a_chart_that_are_not_there_are_created_and_said(kube):
    new, known = manifest("CustomResourceDefinition", "new.example.com", CRDS), definition()
    there(kube, known, owned=False)
    absent = comparison(kube).absent([new, known])
    assert [(difference.wanted.name, difference.change) for difference in absent] == [("new.example.com", "created")]
    (note,) = impact.created(absent)
    assert "new.example.com" in note.detail
    assert impact.created([]) == []


def test_one_that_is_being_deleted_is_created_once_more(kube):
    there(kube, definition(), metadata={"name": "things.example.com", "deletionTimestamp": "2026-11-22T02:10:00Z"})
    assert [difference.wanted.name for difference in comparison(kube).absent([definition()])] == ["things.example.com"]


def test_hooks_are_named_with_their_moment():
    def hook(name: str, moments: str) -> Manifest:
        return Manifest({"kind": "Job", "metadata": {"name": name, "annotations": {"helm.sh/hook": moments}}})

    hooks = [hook("a", "pre-install, pre-upgrade"), hook("b", "test"), hook("c", "post-install")]
    (note,) = impact.hooks(hooks, is_upgrade=False)
    assert note.title == "helm runs hooks of the chart: Job a (pre-install), Job c (post-install)"
    assert "Job a (pre-upgrade)" in impact.hooks(hooks, is_upgrade=True)[0].title
    assert impact.hooks(hooks[1:2], is_upgrade=False) == []
