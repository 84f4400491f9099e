"""Objects of custom kinds through the port: whole lists, and a kind that a cluster does not serve."""

from __future__ import annotations

import pytest

from clusters.fleet import NotFound
from contract import names


def test_objects_of_a_custom_kind_are_listed_whole(world):
    fleet = world.ruler()
    objects = fleet.custom(names.API_VERSION, names.PLURAL)
    listed = fleet.list("nodetunings").items
    assert sorted(raw["metadata"]["name"] for raw in objects) == sorted(raw["metadata"]["name"] for raw in listed)


@pytest.mark.parametrize("api", ["scheduling.example.dev/v1beta1", f"{names.API_VERSION.partition('/')[0]}/v9"])
def test_a_kind_that_is_not_served_is_not_found(world, api):
    with pytest.raises(NotFound):
        world.ruler().custom(api, names.PLURAL)
