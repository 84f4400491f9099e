"""Blast radius of a plan's components, on its page and over REST."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from components.plans.hits import Hit
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
    for said in ("gpu-operator", "GPU pods stop", "The driver is loaded again.", "spec.driver.version", "n1, n2",
                 "nvidia-driver-daemonset", "team/Job train", "DaemonSet gpu-operator/old"):  # fmt: skip
        assert said in risks, said
    assert "Which pods it stops is not known in advance" in risks
    tiles = text[text.index("Impact of this plan") : text.index('id="risks"')]
    assert "components disturb 2, 1 at once" in tiles
    assert "no node leaves service" not in text


def test_rest_says_the_same_as_the_page(world, plan):
    client = Client()
    client.force_login(world.approver)
    rows = client.get(f"/api/v1/plans/{plan.pk}/components").json()
    row = (rows["results"] if isinstance(rows, dict) else rows)[0]

    assert (row["worst_class"], row["blast"]["worst"], row["blast"]["places"]) == ("gpu-pods", "gpu-pods", 1)
    assert row["blast"]["hits"][0]["nodes"] == ["n1", "n2"]
    told = client.get(f"/api/v1/plans/{plan.pk}").json()
    assert (told["worst_class"], told["summary"]["gpus_out_at_once"]) == ("gpu-pods", 8)
