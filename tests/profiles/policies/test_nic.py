"""The checks of a NicClusterPolicy before a cluster is asked."""

from __future__ import annotations

import json

import pytest

from profiles.document import schema
from profiles.document.document import InvalidProfile


def content(spec: object, name: str = "nic-cluster-policy"):
    body = {
        "apiVersion": "mellanox.com/v1alpha1",
        "kind": "NicClusterPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }
    text = json.dumps({"components": {"network-operator": {}}, "policies": [body]})
    return schema.flatten(schema.parse(text), None, origin="mine r1")


@pytest.mark.parametrize(
    ("spec", "name", "where"),
    [
        ({"nvIpam": {}}, "another", "metadata.name"),
        ({}, "nic-cluster-policy", "spec"),
        ({"ofedDrivers": {}}, "nic-cluster-policy", "spec.ofedDrivers"),
        ({"ofedDriver": "latest"}, "nic-cluster-policy", "spec.ofedDriver"),
        ({"ofedDriver": {"upgradePolicy": {"autoUpgrade": "yes"}}}, "nic-cluster-policy", "autoUpgrade"),
        ({"tolerations": {"key": "a"}}, "nic-cluster-policy", "spec.tolerations"),
    ],
)
def test_what_the_operator_would_ignore_or_refuse_is_refused_with_its_place(spec, name, where):
    with pytest.raises(InvalidProfile) as refused:
        content(spec, name)
    assert any(note.path.endswith(where) for note in refused.value.problems), refused.value.problems


@pytest.mark.parametrize(("most", "words"), [(0, "all nodes at once"), (4, "4 at a time"), (None, "1 at a time")])
def test_drivers_that_the_operator_upgrades_by_itself_are_told(most, words):
    upgrade = {"autoUpgrade": True} | ({} if most is None else {"maxParallelUpgrades": most})
    notes = content({"ofedDriver": {"upgradePolicy": upgrade}}).warnings
    upgrades = [note for note in notes if note.code == "own-upgrades"]
    assert len(upgrades) == 1
    assert words in upgrades[0].message


def test_a_driver_that_waits_for_a_person_is_not_warned_of():
    warnings = content({"ofedDriver": {"upgradePolicy": {"autoUpgrade": False}}}).warnings
    assert "own-upgrades" not in {note.code for note in warnings}
