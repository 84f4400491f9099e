"""Watches of metadata alone: what they tell, and what never travels. The same against both."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from clusters.kube.apiserver import Call
from clusters.watch import following
from clusters.watch.following import Follower
from clusters.watch.streams import WatchTimings
from common.hooks import Followed, ObjectChange
from tests.contract.door import DoorWorld

CORE = "/api/v1/namespaces/default"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
PARTIAL = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"


@pytest.fixture
def world(over_http):
    over_http.label = {"followed-by": over_http.name("test")}
    return over_http


class Listener:
    def __init__(self, world, plural: str, api_version: str = "v1") -> None:
        (key, value), *_ = world.label.items()
        self.follower = Follower(
            world.server, Followed(api_version, plural, f"{key}={value}"), WatchTimings(shortest_watch=0.05)
        )
        self.world, self.heard, self.lists = world, [], 0
        self.thread = threading.Thread(target=self.follower.run, daemon=True)
        self.thread.start()
        self.until(lambda: self.lists)

    def until(self, is_so):
        deadline = time.monotonic() + 20
        while True:
            lists, heard = self.follower.drain()
            self.lists, self.heard = self.lists + lists, self.heard + heard
            if is_so():
                return
            assert time.monotonic() < deadline, self.heard
            if isinstance(self.world, DoorWorld):
                self.world.cluster.tick(1)
            time.sleep(0.02)

    def next(self) -> ObjectChange:
        self.until(lambda: self.heard)
        return self.heard.pop(0)


@pytest.fixture
def follow(world) -> Iterator[type]:
    made = []

    def begin(plural: str, api_version: str = "v1") -> Listener:
        made.append(Listener(world, plural, api_version))
        return made[-1]

    yield begin
    for listener in made:
        listener.follower.stop.set()


def test_no_data_of_a_secret_travels(world):
    name = world.name("secret")
    labeled = {"name": name, "labels": world.label}
    made = world.objects.post(f"{CORE}/secrets", {"metadata": labeled, "stringData": {"word": "hunter2222"}})[1]
    query = {"labelSelector": f"followed-by={world.label['followed-by']}"}
    listed = world.server.ask(
        Call("list", "secrets"), "GET", "/api/v1/secrets", query=query, accept=PARTIAL.format("List")
    )
    metadata_list = listed.object("PartialObjectMetadataList")
    assert [{*item} <= {"metadata", "kind", "apiVersion"} for item in metadata_list["items"]] == [True]
    assert metadata_list["items"][0]["metadata"]["uid"] == made["metadata"]["uid"]
    watched = world.server.stream(
        Call("watch", "secrets"),
        "/api/v1/secrets",
        query | {"watch": "1", "timeoutSeconds": "1"},
        timeout=1,
        accept=PARTIAL.format(""),
    )
    for event in watched:
        assert event["object"]["kind"] == "PartialObjectMetadata"
        assert not {"data", "stringData"} & {*event["object"]}


def test_what_is_made_changed_and_removed_is_heard_with_whose_it_was(world, follow):
    objects, name = world.objects, world.name("map")
    seen = follow("configmaps")
    objects.post(f"{CORE}/configmaps", {"metadata": {"name": world.name("other")}})
    labeled = {"name": name, "labels": world.label, "annotations": {"whose": "mine"}}
    objects.post(f"{CORE}/configmaps", {"metadata": labeled, "data": {"a": "1"}})
    made = seen.next()
    assert (made.namespace, made.name, made.annotations, made.is_status) == ("default", name, {"whose": "mine"}, False)

    objects.patch(f"{CORE}/configmaps/{name}", {"data": {"a": "2"}})
    assert not seen.next().is_status
    objects.patch(f"{CORE}/configmaps/{name}", {"metadata": {"labels": None, "annotations": None}})
    assert seen.next().annotations == {"whose": "mine"}, "what leaves the selection is heard as whose it was"

    objects.patch(f"{CORE}/configmaps/{name}", {"metadata": {"labels": world.label}})
    seen.next()
    objects.delete(f"{CORE}/configmaps/{name}")
    assert seen.next().name == name
    assert seen.lists == 1


def test_a_status_alone_is_told_apart_from_a_change(world, follow):
    objects, name = world.objects, world.name("run")
    pod = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "one"}]}}
    spec = {"replicas": 0, "paused": True, "selector": {"matchLabels": {"app": name}}, "template": pod}
    seen = follow("deployments", "apps/v1")
    objects.post(DEPLOYMENTS, {"metadata": {"name": name, "labels": world.label}, "spec": spec})
    seen.until(lambda: seen.heard)
    condition = {"type": "Progressing", "status": "Unknown", "reason": "Test"}
    seen.until(lambda: objects.get(f"{DEPLOYMENTS}/{name}")[1].get("status", {}).get("observedGeneration"))
    seen.heard.clear()
    objects.patch(f"{DEPLOYMENTS}/{name}/status", {"status": {"conditions": [condition]}})
    assert seen.next().is_status
    seen.heard.clear()
    objects.patch(f"{DEPLOYMENTS}/{name}", {"spec": {"minReadySeconds": 7}})
    seen.until(lambda: any(not event.is_status for event in seen.heard))


def test_what_may_not_be_watched_is_said(world, follow, monkeypatch):
    monkeypatch.setattr(following, "FORBIDDEN_SECONDS", 0.1)
    seen = Follower(world.server, Followed("v1", "nothings", "a=b"), WatchTimings(backoff=0.05))
    seen.step()
    seen.step()
    assert "nothings" in seen.why
