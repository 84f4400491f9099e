"""Profile documents, sound and rotten, for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from contract.nodetuning import Operator
from profiles import catalogue, values
from profiles.catalogue import Shape
from profiles.document import Document, Extends, Wish

SETTABLE = [info for info in catalogue.all() if not info.observe_only and info.owner != "kubelet"]
ALONE = [
    info
    for info in SETTABLE
    # Keys that look at one another are left out here: what they say together has tests of its own.
    if not info.coupled and "gc_thresh" not in info.key and not info.key.startswith("hugepages")
]


@st.composite
def wishes(draw: Any, among: Any = ALONE) -> Wish:
    info = draw(st.sampled_from(among))
    operator = draw(st.sampled_from(info.operators))
    if info.choices:
        value = draw(st.sampled_from(info.choices))
    elif info.shape is Shape.WORD:
        value = draw(st.from_regex(r"[a-z0-9][a-z0-9_.,:=-]{0,20}", fullmatch=True))
    else:
        number = st.integers(info.minimum, info.maximum)
        numbers = draw(st.lists(number, min_size=info.count, max_size=info.count))
        value = " ".join(map(str, sorted(numbers) if info.is_ascending else numbers))
    try:
        asked = values.ask(info.key, value, str(operator))
    except values.Refused:  # a single value that is denied, such as yama.ptrace_scope=3
        asked = values.ask(info.key, info.choices[0] if info.choices else str(info.minimum), str(Operator.EQUALS))
    why = draw(st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), max_size=30))
    return Wish(asked.key, asked.operator, asked.value, why)


_name = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
mark_keys = st.builds("{}.example.com/{}".format, _name, _name)
marks = st.dictionaries(mark_keys, st.from_regex(r"[A-Za-z0-9]{0,10}", fullmatch=True), max_size=4)
taints = st.dictionaries(
    st.tuples(mark_keys, st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])), _name, max_size=3
)
extends = st.none() | st.builds(Extends, _name, st.none() | st.integers(1, 999))


@st.composite
def documents(draw: Any, parents: Any = extends) -> Document:
    settings = {wish.key: wish for wish in draw(st.lists(wishes(), max_size=6))}
    return Document(
        extends=draw(parents),
        description=draw(st.text(st.characters(codec="ascii", categories=("L", "N")), max_size=30)),
        settings=tuple(settings[key] for key in sorted(settings)),
        labels=tuple(sorted(draw(marks).items())),
        annotations=tuple(sorted(draw(marks).items())),
        taints=tuple(sorted((key, effect, value) for (key, effect), value in draw(taints).items())),
    )
