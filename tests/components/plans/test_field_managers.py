"""Differences between what is wanted and what there is, field by field."""

from __future__ import annotations

from components.plans import field_managers


def test_items_whose_name_would_be_a_mapping_are_told_apart_by_place():
    """A gateway of Istio has a mapping under `port`."""
    wanted = [{"port": {"number": 443}, "hosts": ["a"]}]
    live = [{"port": {"number": 443}, "hosts": ["b"]}]

    assert [(field_managers.text(path), want, have) for path, want, have in field_managers.differing(wanted, live)] == [
        ("[0].hosts[0]", "a", "b")
    ]
    assert list(field_managers.differing(wanted, wanted)) == []
