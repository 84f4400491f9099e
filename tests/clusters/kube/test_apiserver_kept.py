"""Lists and watches of which little is kept: one page is held at a time, and a list that breaks is no list."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest

from clusters import objects
from clusters.fleet import FleetUnavailable, Gone, Untrusted
from clusters.inventory import pod_rows
from clusters.kube import responses
from tests.clusters.factories import raw_pod
from tests.clusters.kube.scripted import answer, status
from tests.clusters.kube.test_apiserver_watches import event, events

A_PAGE = 50
HOLDS_ONE_IN = 10


def pod(number, **over):
    return raw_pod(f"p{number}", gpus=over.pop("gpus", 8 if number % HOLDS_ONE_IN == 0 else 0), **over)


def pages(count, instead=None):
    """Pages of pods, as many as `count`; `instead` answers the request of the last one."""

    def say(connection, request):
        token = re.search(r"continue=(\d+)", request)
        number = int(token[1]) if token else 0
        if instead and number == count - 1:
            instead(connection, request)
            return
        meta = {"resourceVersion": "900000"} | ({"continue": str(number + 1)} if number + 1 < count else {})
        items = [pod(number * A_PAGE + index) for index in range(A_PAGE)]
        answer(200, {"kind": "PodList", "metadata": meta, "items": items})(connection, request)

    return say


class Decoded(dict):
    """A mapping of decoded JSON, counted for as long as it lives."""

    living = most = 0

    def __init__(self, *given):
        super().__init__(*given)
        Decoded.living += 1
        Decoded.most = max(Decoded.most, Decoded.living)

    def __del__(self):
        Decoded.living -= 1


def most_decoded(serve, monkeypatch, count, keep):
    """Return how many decoded mappings lived at most beyond those that are kept, and the page."""
    decoder = SimpleNamespace(loads=lambda body: json.loads(body, object_hook=Decoded))
    monkeypatch.setattr(responses, "json", decoder)
    fleet, _ = serve(pages(count))
    Decoded.living = Decoded.most = 0
    page = fleet.list("pods", keep=keep)
    return Decoded.most, page


def test_of_a_list_one_page_is_held_whatever_its_length(serve, monkeypatch):
    of_one, _ = most_decoded(serve, monkeypatch, 1, lambda raw: None)

    most, page = most_decoded(serve, monkeypatch, 20, lambda raw: None)

    assert of_one > 5 * A_PAGE
    assert most <= of_one + A_PAGE
    assert (page.items, len(page.left_out)) == ([], 20 * A_PAGE)


def test_what_is_kept_is_all_that_grows(serve, monkeypatch):
    of_one, page = most_decoded(serve, monkeypatch, 1, pod_rows.kept)
    kept_of_one = Decoded.living

    most, page = most_decoded(serve, monkeypatch, 20, pod_rows.kept)

    assert most <= of_one + 20 * kept_of_one
    assert len(page.items) == 20 * A_PAGE / HOLDS_ONE_IN
    assert not page.left_out & {objects.uid(raw) for raw in page.items}


@pytest.mark.parametrize(
    ("instead", "error"),
    [
        (lambda connection, request: connection.close(), FleetUnavailable),
        (answer(200, '{"kind":"PodList","metadata":{},"items":[{"metadata"'), Untrusted),
        (answer(200, {"kind": "PodList", "metadata": {}, "items": ["text"]}), Untrusted),
        (answer(500, status(500)), FleetUnavailable),
        (answer(410, status(410, "the continue token is too old")), FleetUnavailable),
    ],
)
def test_a_list_that_breaks_at_its_last_page_is_no_list(serve, instead, error):
    fleet, _ = serve(pages(3, instead))
    with pytest.raises(error):
        fleet.list("pods", keep=pod_rows.kept)


def test_a_list_whose_version_is_forgotten_begins_again_and_holds_each_pod_once(serve):
    forgotten = [True]

    def once(connection, request):
        if forgotten.pop() if forgotten else False:
            answer(410, status(410, "the continue token is too old"))(connection, request)
        else:
            pages(3)(connection, request)

    fleet, server = serve(pages(3, once))
    page = fleet.list("pods", keep=pod_rows.kept)

    assert len(server.requests) == 6
    uids = [objects.uid(raw) for raw in page.items]
    assert len(set(uids)) == len(uids) == 3 * A_PAGE / HOLDS_ONE_IN
    assert len(page.left_out) == 3 * A_PAGE - len(uids)


def test_of_an_event_that_is_not_kept_its_names_and_version_come(serve):
    raw, held = pod(1, gpus=0), pod(2, gpus=8)
    bookmark = event("BOOKMARK", metadata={"resourceVersion": "99999999", "creationTimestamp": None})
    fleet, _ = serve(events(event("ADDED", **raw), event("MODIFIED", **held), bookmark))

    brief, whole, mark = fleet.watch("pods", "4", timeout=2, keep=pod_rows.kept)

    names = {key: raw["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")}
    assert (brief.is_brief, brief.object) == (True, {"metadata": names})
    assert (whole.is_brief, whole.object["spec"]["nodeName"]) == (False, "n1")
    assert (mark.is_brief, mark.resource_version) == (False, "99999999")


def test_an_event_of_a_finished_pod_that_is_not_kept_tells_how_it_ended(serve):
    raw = pod(1, gpus=0)
    raw["status"] = {"phase": "Failed", "reason": "Evicted"}
    fleet, _ = serve(events(event("MODIFIED", **raw)))

    brief = next(fleet.watch("pods", "4", timeout=2, keep=pod_rows.kept))

    assert (brief.is_brief, set(brief.object)) == (True, {"metadata", "status"})
    assert brief.object["status"] == raw["status"]


def test_an_object_without_metadata_ends_no_watch(serve):
    lines = [{"type": "MODIFIED", "object": {"metadata": meta}} for meta in (None, [], "text", {"uid": ["x"]})]
    fleet, _ = serve(events(*lines, event("ERROR", **status(410))))
    watch = fleet.watch("pods", "4", timeout=2, keep=pod_rows.kept)
    assert [next(watch).is_brief for _ in lines] == [True] * 4
    with pytest.raises(Gone):
        next(watch)


def test_names_are_read_without_labels_and_annotations(serve):
    raw = pod(1) | {"spec": {}, "status": {}}
    raw["metadata"]["labels"] = {"a": "b"}
    fleet, _ = serve(answer(200, {"kind": "PartialObjectMetadataList", "metadata": {}, "items": [raw]}))
    (head,) = fleet.heads("pods").items
    assert head == {"metadata": {key: raw["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")}}
