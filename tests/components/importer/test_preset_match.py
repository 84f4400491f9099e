"""Presets are found again in the values that were made with them, and nothing else changes by it."""

from __future__ import annotations

from itertools import combinations

from hypothesis import assume, given
from hypothesis import strategies as st

from components.catalog import catalog, text_values
from components.catalog.layering import coalesced, excluded, layered, leaves
from components.importer.preset_match import differing, presets_in

DEFAULTS = {"color": "green", "size": {"a": 1, "b": 2}, "gone": "soon"}
OVERRIDES = st.fixed_dictionaries(
    {},
    optional={
        "mine": st.integers(0, 9),
        "size": st.fixed_dictionaries({}, optional={"b": st.integers(3, 9), "c": st.lists(st.booleans(), max_size=2)}),
        "gone": st.none(),
    },
).map(lambda values: {key: value for key, value in values.items() if value != {}})


def tell_apart(component, presets) -> bool:
    """Each says something that none of the others does, and no two say otherwise of the same key."""
    leaf_values = {
        name: {path: _at(component, name, path) for path in leaves(component.presets[name].values)} for name in presets
    }
    for preset, other in combinations(presets, 2):
        if any(
            leaf_values[preset][path] != leaf_values[other][path]
            for path in leaf_values[preset].keys() & leaf_values[other].keys()
        ):
            return False
    base = {path: _value(component.values, path) for path in leaves(component.values)}
    return all(
        any(
            base.get(path) != value and not any(path in leaf_values[other] for other in presets if other != name)
            for path, value in leaf_values[name].items()
        )
        for name in presets
    )


def _at(component, name, path):
    return _value(component.presets[name].values, path)


def _value(values, path):
    for step in path:
        values = values[step]
    return values


@given(st.data())
def test_presets_and_overrides_come_back_from_what_they_made(data):
    component = data.draw(st.sampled_from(list(catalog.all())))
    presets = tuple(n for n in component.presets if data.draw(st.booleans()))
    assume(not excluded(component, presets) and tell_apart(component, presets))
    overrides = data.draw(OVERRIDES)
    made = layered(component, presets=presets, profile_values=overrides).values

    assert presets_in(component, made, DEFAULTS) == (presets, overrides)


@given(st.data())
def test_whatever_was_given_the_draft_makes_the_same_again(data):
    """Presets that were changed by hand, taken in half, or are the chart's own defaults, included."""
    component = data.draw(st.sampled_from([component for component in catalog.all() if component.presets]))
    # As charts and releases have them: a text is where a preset has only what it adds to one.
    sets = st.sampled_from(
        [text_values.as_texts(component, {}, preset.values) for preset in component.presets.values()]
    )
    drawn = data.draw(sets)
    given_ = layered(component, profile_values=drawn).values if data.draw(st.booleans()) else dict(drawn)
    for key in list(given_):
        if data.draw(st.booleans()):
            given_[key] = data.draw(
                st.one_of(st.none(), st.integers(), st.dictionaries(st.sampled_from("ab"), st.booleans()))
            )
    given_ |= data.draw(OVERRIDES)
    defaults = DEFAULTS | dict(data.draw(sets))

    presets, rest = presets_in(component, given_, defaults)

    drafted = layered(component, presets=presets, profile_values=rest).values
    before = layered(component, profile_values=differing(given_, defaults)).values
    made, original = (text_values.canonical(component, coalesced(values, defaults)) for values in (drafted, before))
    assert made == original
