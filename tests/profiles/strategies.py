"""Profile documents, sound and rotten, for hypothesis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from contract import disk_layouts, isolation, key_lists, kubelet, resource_managers
from contract.nodetuning import Operator
from profiles.catalog import known_settings
from profiles.catalog.known_settings import Shape
from profiles.content.cluster import WantedObject
from profiles.document import setting_check
from profiles.document.document import DocumentComponent, DocumentSetting, Extends, ProfileDocument

LAYOUTS = (
    "layout=single,filesystem=ext4,mount=/mnt/fast-disks",
    "layout=single,filesystem=xfs,mount=/srv/scratch,options=discard+noatime,label=fast,min=1000,max=8000",
    "layout=raid0,filesystem=ext4,mount=/data/scratch,min=1000",
)
SETTABLE = [info for info in known_settings.all() if not info.observe_only and info.owner != "kubelet"]
ALONE = [
    info
    for info in SETTABLE
    # Keys that look at one another are left out here: what they say together has tests of its own.
    if not info.coupled and "gc_thresh" not in info.key and not info.key.startswith("hugepages")
    if info.key not in kubelet.TOGETHER and info.key not in resource_managers.FLAGS
    if not any(info.key in group for group in key_lists.ONE_VALUE)
]


@st.composite
def wishes(draw: Any, among: Any = ALONE) -> DocumentSetting:
    info = draw(st.sampled_from(among))
    operator = draw(st.sampled_from(info.operators))
    if info.choices:
        value = draw(st.sampled_from(info.choices))
    elif info.key == "cmdline.crashkernel":  # a word with a grammar of its own
        value = draw(st.sampled_from(("512M", "256M,high", "1G-64G:256M,64G-:512M")))
    elif info.key == resource_managers.CPUS:
        cpus = st.sets(st.integers(0, resource_managers.LARGEST_CPU), min_size=1, max_size=6)
        value = draw(cpus.map(resource_managers.cpu_text))
    elif info.key == isolation.KEY:
        cpus = st.sets(st.integers(1, resource_managers.LARGEST_CPU), min_size=1, max_size=6).map(
            resource_managers.cpu_text
        )
        value = draw(st.sampled_from(("", "domain,", "services,", "domain,services,"))) + draw(cpus)
    elif info.key == resource_managers.MEMORY:
        sizes = st.dictionaries(st.integers(0, 9), st.integers(1, 2**40), min_size=1, max_size=3)
        value = draw(sizes.map(resource_managers.memory_text))
    elif info.key in kubelet.SERVICE_LIMITS.keys() - kubelet.HARD:
        value = draw(st.just(kubelet.UNLIMITED) | st.integers(kubelet.LEAST_LOCKED, 2**62).map(str))
    elif info.key == disk_layouts.KEY:
        value = draw(st.sampled_from(LAYOUTS))
    elif info.shape is Shape.WORD:
        value = draw(st.from_regex(r"[a-z0-9][a-z0-9_.,:=-]{0,20}", fullmatch=True))
    else:
        number = st.integers(info.minimum, info.maximum)
        numbers = draw(st.lists(number, min_size=info.count, max_size=info.count))
        value = " ".join(map(str, sorted(numbers) if info.is_ascending else numbers))
    try:
        setting = setting_check.ask(info.key, value, str(operator))
    except setting_check.SettingRefused:  # a single value that is denied, such as yama.ptrace_scope=3, or too few ports
        widest = " ".join(str(number) for number in (info.minimum, info.maximum)[: info.count or 1])
        setting = setting_check.ask(info.key, info.choices[0] if info.choices else widest, str(Operator.EQUALS))
    why = draw(st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), max_size=30))
    return DocumentSetting(setting.key, setting.operator, setting.value, why)


_name = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
mark_keys = st.builds("{}.example.com/{}".format, _name, _name)
marks = st.dictionaries(mark_keys, st.from_regex(r"[A-Za-z0-9]{0,10}", fullmatch=True), max_size=4)
taints = st.dictionaries(
    st.tuples(mark_keys, st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])), _name, max_size=3
)
extends = st.none() | st.builds(Extends, _name, st.none() | st.integers(1, 999))


@st.composite
def documents(draw: Any, parents: Any = extends) -> ProfileDocument:
    settings = {wish.key: wish for wish in draw(st.lists(wishes(), max_size=6))}
    return ProfileDocument(
        extends=draw(parents),
        description=draw(st.text(st.characters(codec="ascii", categories=("L", "N")), max_size=30)),
        settings=tuple(settings[key] for key in sorted(settings)),
        labels=tuple(sorted(draw(marks).items())),
        annotations=tuple(sorted(draw(marks).items())),
        taints=tuple(sorted((key, effect, value) for (key, effect), value in draw(taints).items())),
    )


# ── What is wanted of the cluster ─────────────────────────────────────────────────────────────────────────────────────
_unseen = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u2028", "\u2029", "\ufeff", "\ufffe", "\uffff"]
texts = st.text(st.characters(codec="utf-8", exclude_characters=[c for c in _unseen if c not in "\n\t"]), max_size=12)
numbers = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e6, 1e6).filter(lambda n: n != int(n))
plain = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
values_of_charts = st.dictionaries(texts, plain, max_size=4)
_label = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
_version = st.sampled_from(["", "1.20.0", "v26.7.0", "1.2.3-rc.1+build"])
_reasons = st.sampled_from(["", "because", "e5", "yes", "# no"])
_presets = st.none() | st.lists(_label, max_size=3, unique=True).map(tuple)
component_wishes = st.builds(DocumentComponent, _label, _version, _presets, values_of_charts, _reasons)
quantities = st.integers(0, 512) | st.sampled_from(["8", "64", "1k"])
_spec = st.fixed_dictionaries({"spec": st.fixed_dictionaries({"hard": st.dictionaries(
    st.sampled_from(["requests.nvidia.com/gpu", "requests.rdma/hca_a", "pods"]), quantities, min_size=1
)})})  # fmt: skip
_weight = st.fixed_dictionaries({"spec": st.fixed_dictionaries({"weight": st.integers(1, 65535)})})
objects = st.one_of(
    st.builds(WantedObject, st.just("v1"), st.just("ResourceQuota"), _label, _label, _spec),
    st.builds(WantedObject, st.just("scheduling.volcano.sh/v1beta1"), st.just("Queue"), _label, st.just(""), _weight),
    st.builds(WantedObject, st.just("v1"), st.just("Namespace"), _label.map("n-{}".format), st.just(""), st.just({})),
)


@st.composite
def whole_documents(draw: Any, parents: Any = extends) -> ProfileDocument:
    """Draw documents with components and policy objects."""
    nodes = draw(documents(parents))
    components = {wish.name: wish for wish in draw(st.lists(component_wishes, max_size=3))}
    policies = {wanted.title: wanted for wanted in draw(st.lists(objects, max_size=4))}
    ordered = sorted(policies.values(), key=lambda wanted: (wanted.kind, wanted.namespace, wanted.name))
    return replace(nodes, components=tuple(components[name] for name in sorted(components)), policies=tuple(ordered))
