"""Conformance of a component: installed by real helm into the simulated fleet, then changed by hand."""

from __future__ import annotations

import json
import time

import pytest

from components.catalog import catalog
from components.charts import archives
from components.models import ClusterValues
from components.release import conformance, work
from components.release.conformance import conform
from profiles.content.cluster import WantedComponent
from simfleet.apiserver.callers import person
from tests.clusters.factories import ClusterFactory, reached_with
from tests.components.packing import entry, versioned
from tests.simfleet.site import Site

pytestmark = pytest.mark.django_db

VALUES = "color: green\ngiven: ''\n"
TEMPLATE = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-settings}
data:
  color: {{ .Values.color }}
---
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}-made}
stringData: {word: {{ .Values.given | quote }}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: {{ .Release.Name }}-agent}
spec:
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      containers:
      - name: main
        image: registry.example.org/agent:{{ .Chart.Version }}
        env: [{name: API_TOKEN, value: {{ .Values.given | quote }}}]
"""
CALLER = person("mallory")


class World:
    def __init__(self, site: Site) -> None:
        self.site, self.sim = site, site.sim
        self.cluster = reached_with(ClusterFactory(), site.credentials)
        self.wanted = WantedComponent("tiny", "1.0.0", values={"color": "blue"})

    def install(self, wanted: WantedComponent) -> None:
        self.wanted = wanted
        how = {"deadline": time.monotonic() + 60, "stop": lambda: False, "tell": lambda line: None}
        work.carry_out(self.cluster, work.prepare(self.cluster, wanted), direction="forward", **how)
        self.site.until(lambda: self.look().state != "not-ready", locked=False)

    def look(self) -> conformance.Conformity:
        return conform(self.cluster, self.wanted)

    def patch(self, plural: str, name: str, change: dict, manager: str = "kubectl-edit") -> None:
        with self.sim.lock:
            self.sim.api.patch(CALLER, plural, name, change, "tiny-system", manager=manager)


@pytest.fixture
def world(tmp_path, settings):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    more = "presets: {big: {title: Bigger, why: For tests, values: {color: huge}, sources: [S]}}"
    (tmp_path / "tiny.yaml").write_text(
        entry("tiny", "2.0.0", "1.0.0", workload="DaemonSet/{release}-agent", more=more)
    )
    for version in ("1.0.0", "2.0.0"):
        archives.store(versioned("tiny", version, TEMPLATE, VALUES), origin="uploaded", by="admin")
    site = Site(tmp_path)
    site.sim.add_node("n1")
    with catalog.extended(tmp_path):
        yield World(site)
    site.close()


IMAGE = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "evil.example.org/agent"}]}}}}


def test_what_somebody_changes_is_named_with_who_and_a_secret_never(world):
    missing = world.look()
    assert (missing.state, missing.sentence) == ("missing", "helm has no release tiny in tiny-system.")

    world.install(WantedComponent("tiny", "1.0.0", values={"color": "blue", "given": "hunter2222"}))
    right = world.look()
    assert (right.state, right.sentence, right.differences) == ("compliant", "", ())
    assert (right.installed, right.assigned, right.number) == ("1.0.0", "1.0.0", 1)
    assert set(right.kinds) == {("v1", "configmaps"), ("v1", "secrets"), ("apps/v1", "daemonsets")}
    assert [(revision["number"], revision["is_ours"]) for revision in right.history] == [(1, True)]

    with world.sim.lock:
        was = world.sim.store.get("daemonsets", "tiny-agent", "tiny-system").copy()
        image = json.loads(json.dumps(was["spec"]))
        image["template"]["spec"]["containers"][0]["image"] = "evil.example.org/agent"
    world.patch("daemonsets", "tiny-agent", {"spec": image})
    world.patch("secrets", "tiny-made", {"data": {"word": "c3RvbGVuLXdvcmQ="}}, "thief")
    with world.sim.lock:
        world.sim.api.delete(CALLER, "configmaps", "tiny-settings", "tiny-system")
    off = world.look()
    assert off.state == "drifted"
    assert off.sentence == "ConfigMap tiny-system/tiny-settings is gone, and 2 more differences."
    gone, changed, secret = off.differences
    assert "does not record who deletes" in gone.note
    assert changed.path == "spec.template.spec.containers[main].image"
    assert (changed.approved, changed.live) == ("registry.example.org/agent:1.0.0", "evil.example.org/agent")
    assert (changed.who, bool(changed.at)) == ("kubectl-edit", True)
    assert (secret.path, secret.who) == ("data.word", "thief")
    assert secret.live != secret.approved
    dumped = str([difference.to_json() for difference in off.differences])
    assert not any(text in dumped for text in ("c3RvbGVuLXdvcmQ", "stolen-word", "hunter2222", "aHVudGVyMjIyMg"))

    repair = work.prepare(world.cluster, world.wanted)
    assert {difference.name: difference.change for difference in repair.objects} == {
        "tiny-settings": "created",
        "tiny-agent": "changed",
        "tiny-made": "changed",
    }, "a plan of the same revision would put all of it back"
    world.install(world.wanted)
    assert world.look().state == "compliant"
    assert work.prepare(world.cluster, world.wanted).action == "none"


def test_a_plain_secret_in_an_environment_is_not_shown_either(world):
    world.install(WantedComponent("tiny", "1.0.0", values={"given": "hunter2222"}))
    with world.sim.lock:
        spec = world.sim.store.get("daemonsets", "tiny-agent", "tiny-system").copy()["spec"]
    spec["template"]["spec"]["containers"][0]["env"][0]["value"] = "another-password"
    world.patch("daemonsets", "tiny-agent", {"spec": spec})
    (difference,) = world.look().differences
    assert difference.path.endswith("env[API_TOKEN].value")
    assert (difference.approved, difference.live) == ("(hidden)", "(hidden)")


def test_another_release_than_ours_and_wishes_that_moved_on_are_told_apart(world):
    world.install(WantedComponent("tiny", "1.0.0", values={"color": "blue"}))
    ClusterValues.objects.create(cluster=world.cluster, component="tiny", values={"color": "red"})
    moved = world.look()
    assert (moved.state, moved.sentence) == (
        "behind",
        "What is wanted is another by now: color is. A plan would bring it.",
    )
    world.wanted = WantedComponent("tiny", "2.0.0", values={"color": "blue"})
    assert [difference.path for difference in world.look().differences] == ["version", "color"]

    ClusterValues.objects.all().delete()
    path = world.site.helm._folder / "tiny.tgz"
    path.write_bytes(versioned("tiny", "1.0.0", TEMPLATE, VALUES))
    world.site.helm("upgrade", "tiny", str(path), "--namespace=tiny-system", "--set=color=pink")
    world.wanted = WantedComponent("tiny", "1.0.0", values={"color": "blue"})
    theirs = world.look()
    assert theirs.state == "foreign"
    assert theirs.sentence == "Another party made revision 2 of tiny; color is other than assigned."
    assert [revision["is_ours"] for revision in theirs.history] == [False, True]


def test_what_cannot_be_seen_is_unknown(world):
    world.install(WantedComponent("tiny", "1.0.0"))
    world.sim.api.forbidden.add(("get", "daemonsets"))
    assert world.look().state == "unknown"
    world.sim.api.forbidden.clear()
    assert world.look().state == "compliant"
    world.sim.faults.add("refuse", verb="patch", resource="daemonsets")
    conformity = world.look()
    assert (conformity.state, conformity.sentence[:33]) == ("unknown", "Not all of it could be compared: ")
    world.sim.faults.clear()
    world.sim.faults.outage = True
    assert world.look().state == "unknown"
    world.sim.faults.outage = False
