"""Blast radius of a plan's components, on its page and over REST."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from components.plans.hits import Hit
from components.plans.prepared import Destroyed
from jobs.approvals import reviews
from profiles.content.cluster import WantedComponent
from tests.jobs.engine.components.test_laws_of_operators import driver, upgrade
from tests.jobs.releases import Release, Releases


@pytest.fixture
def releases(monkeypatch: Any) -> Releases:
    return Releases(there={"gpu-operator": Release(["1.0.0"])}).install(monkeypatch)


@pytest.fixture
def plan(world, releases):
    world.sim.pods.add("train-0", node="n2", namespace="team", gpus=8, owner={"kind": "Job", "name": "train"})
    world.look()
    blast = replace(driver("n1", "n2"), deleted=("DaemonSet gpu-operator/old",), jobs=("team/Job train",), gpus=16)
    queue = Hit("Queue training", "changed", "gpu-pods", "GPUs may be taken back.", interrupts=True)
    return upgrade(world, releases, replace(blast, hits=(*blast.hits, queue)))


def test_the_page_shows_each_part_its_class_and_what_it_costs(world, plan):
    client = Client()
    client.force_login(world.approver)
    page = client.get(reverse("jobs:plan", args=[plan.number])).content.decode()
    text = " ".join(page.split())

    risks = text[text.index('id="risks"') : text.index('id="components"')]
    for phrase in ("gpu-operator", "GPU pods stop", "The driver is loaded again.", "spec.driver.version", "n1, n2",
                 "nvidia-driver-daemonset", "team/Job train", "DaemonSet gpu-operator/old"):  # fmt: skip
        assert phrase in risks, phrase
    assert "Which pods it stops is not known in advance" in risks
    tiles = text[text.index("Impact of this plan") : text.index('id="risks"')]
    assert "components disturb 2, 1 at once" in tiles
    assert "no node leaves service" not in text
    assert "in 1 namespace, 1 pod with GPUs <" in tiles, "what its operator stops, too"
    assert "takes gpu-operator from 1.0.0 to 2.0.0, which disturbs 2 nodes" in text
    assert not re.search(r"\w [,.](?=\s|<)", re.sub(r"</?\w[^>]*>", "", risks)), "no space before a comma or a period"


def test_gpus_out_are_a_share_of_all_that_the_component_reaches(world, releases):
    """The pool has fewer: the tile would say another whole than the component's own line."""
    for number in range(5):
        world.sim.add_node(f"m{number}", gpus=8, labels={"pool": "other"})
    world.observe()
    plan = upgrade(world, releases, replace(driver("n1", "m0", "m1", "m2", "m3", "m4"), gpus=48))
    client = Client()
    client.force_login(world.approver)
    text = " ".join(client.get(reverse("jobs:plan", args=[plan.number])).content.decode().split())

    assert plan.summary["gpus"] < 48
    assert '<div class="v">8 <small>of 48</small></div>' in text
    assert '8 <span class="mid fw4">of 48 GPUs at once</span>' in text


def test_a_change_of_version_says_from_which_and_that_a_revert_goes_back_to_it(world, plan):
    client = Client()
    client.force_login(world.approver)
    text = " ".join(client.get(reverse("jobs:plan", args=[plan.number])).content.decode().split())

    part = text[text.index('id="components"') :]
    assert part.index("<del>1.0.0</del>") < part.index("<ins>2.0.0</ins>")
    assert "restores the recorded originals; gpu-operator goes back to 1.0.0" in text


def test_a_removal_is_called_one_and_says_what_its_revert_does_not_bring_back(world, releases):
    releases.destroys["gpu-operator"] = (
        Destroyed("things.example.com", "Thing", 3), Destroyed("nones.example.com", "None", 0),
    )  # fmt: skip
    plan = world.plan(world.revision({}, components=[WantedComponent("gpu-operator", is_gone=True)]))
    reviews.request(plan, by=world.operator)
    client = Client()
    client.force_login(world.approver)
    text = " ".join(client.get(reverse("jobs:plan", args=[plan.number])).content.decode().split())

    assert '<span class="mono xs">things.example.com</span> (3). To approve, type <code>destroy 3 objects in' in text
    assert "nones.example.com" not in text
    assert "and removes gpu-operator 1.0.0" in text
    assert "installs or changes" not in text
    assert "<del>1.0.0</del> </span>" in text[text.index('id="components"') :]
    assert "gpu-operator comes back as it was, without the 3 objects of its kinds" in text


def test_rest_says_the_same_as_the_page(world, plan):
    client = Client()
    client.force_login(world.approver)
    rows = client.get(f"/api/v1/plans/{plan.pk}/components").json()
    row = (rows["results"] if isinstance(rows, dict) else rows)[0]

    assert (row["worst_class"], row["blast"]["worst"], row["blast"]["places"]) == ("gpu-pods", "gpu-pods", 1)
    assert row["blast"]["hits"][0]["nodes"] == ["n1", "n2"]
    body = client.get(f"/api/v1/plans/{plan.pk}").json()
    assert (body["worst_class"], body["summary"]["gpus_out_at_once"]) == ("gpu-pods", 8)


def test_caveats_of_its_step_are_on_the_page_and_over_rest(world, plan):
    row = plan.components.get(component="gpu-operator")
    caveats = ["ClusterPolicy <may> say ready.", "Its CRDs are not upgraded."]
    row.prepared = row.prepared | {"caveats": caveats}
    row.save()
    client = Client()
    client.force_login(world.approver)
    text = " ".join(client.get(reverse("jobs:plan", args=[plan.number])).content.decode().split())

    part = text[text.index('id="components"') :]
    assert 0 < part.index("Before an upgrade") < part.index("ClusterPolicy &lt;may&gt; say ready.")
    [over_rest] = client.get(f"/api/v1/plans/{plan.pk}/components").json()["results"]
    assert over_rest["caveats"] == caveats
