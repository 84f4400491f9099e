"""Taints that a pod tolerates, by Kubernetes' documentation and source."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters import tolerations
from clusters.inventory import rows
from simfleet.controllers import placing

GPU = {"key": "gpu", "value": "a100", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        # kubernetes.io, Taints and Tolerations: "A toleration matches a taint if the keys are the same and the effects
        # are the same, and the operator is Exists (no value), or Equal and the values are equal."
        ({"key": "gpu", "operator": "Equal", "value": "a100", "effect": "NoExecute"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "h100", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "PreferNoSchedule"}, False),
        # "operator defaults to Equal"
        ({"key": "gpu", "value": "a100"}, True),
        ({"key": "gpu"}, False),
        # "If the key is empty, then the operator must be Exists, which matches all keys and values."
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, False),
        # "An empty effect matches all effects with key key1."
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": ""}, True),
        # toleration.go: what is no operator tolerates nothing, and Lt and Gt are about numbers.
        ({"key": "gpu", "operator": "Near", "value": "a100"}, False),
        ({"key": "gpu", "operator": "Lt", "value": "9"}, False),
    ],
)
def test_a_taint_is_tolerated_as_the_documentation_says(toleration, is_tolerated):
    assert tolerations.suits(toleration, GPU) is is_tolerated


@pytest.mark.parametrize(
    ("operator", "toleration", "taint", "is_tolerated"),
    [
        ("Lt", "950", "900", True),
        ("Lt", "950", "950", False),
        ("Gt", "950", "1000", True),
        ("Gt", "950", "950", False),
        ("Gt", "-5", "0", True),
        ("Gt", "950", "many", False),
        ("Gt", "", "1", False),
    ],
)
def test_numbers_are_compared_the_taints_with_the_tolerations(operator, toleration, taint, is_tolerated):
    taints = {"key": "sla", "value": taint, "effect": "NoExecute"}
    assert tolerations.suits({"key": "sla", "operator": operator, "value": toleration}, taints) is is_tolerated


@pytest.mark.parametrize(
    ("own", "seconds"),
    [
        ([], 0),
        ([{"key": "gpu", "operator": "Exists"}], None),
        ([{"key": "gpu", "operator": "Exists", "tolerationSeconds": 60}], 60),
        ([{"key": "gpu", "operator": "Exists", "tolerationSeconds": 0}], 0),
        # getMinTolerationTime: "tolerationSeconds <= 0 ... return 0"
        ([{"key": "gpu", "operator": "Exists", "tolerationSeconds": -5}], 0),
        # GetMatchingTolerations takes the first that matches, and a later one for ever changes nothing.
        ([{"key": "gpu", "operator": "Exists", "tolerationSeconds": 60}, {"operator": "Exists"}], 60),
        ([{"operator": "Exists"}, {"key": "gpu", "operator": "Exists", "tolerationSeconds": 60}], None),
        ([{"key": "other", "operator": "Exists", "tolerationSeconds": 60}, {"operator": "Exists"}], None),
    ],
)
def test_it_is_evicted_at_once_after_its_seconds_or_never(own, seconds):
    assert tolerations.lasts(own, [GPU]) == seconds


def test_of_several_taints_the_shortest_time_counts_and_one_that_is_not_tolerated_ends_it():
    other = {"key": "other", "effect": "NoExecute"}
    own = [
        {"key": "gpu", "operator": "Exists", "tolerationSeconds": 60},
        {"key": "other", "operator": "Exists", "tolerationSeconds": 30},
    ]
    assert tolerations.lasts(own, [GPU, other]) == 30
    assert tolerations.lasts(own[:1], [GPU, other]) == 0
    assert tolerations.lasts([], [{"key": "gpu", "effect": "NoSchedule"}]) is None, "it evicts nobody"


words = st.sampled_from(["", "gpu", "other", "nvidia.com/gpu"])
operators = st.sampled_from(["", "Equal", "Exists"])
effects = st.sampled_from(["", "NoSchedule", "PreferNoSchedule", "NoExecute"])
tolerating = st.fixed_dictionaries(
    {"key": words, "operator": operators, "value": words, "effect": effects},
    optional={"tolerationSeconds": st.integers(-1, 100)},
)
taints = st.fixed_dictionaries({"key": words.filter(bool), "value": words, "effect": effects.filter(bool)})


@given(st.lists(tolerating, max_size=4), st.lists(taints, max_size=3))
def test_what_a_row_keeps_decides_as_the_whole_pod_does(own, there):
    pod = {"spec": {"tolerations": own}}
    assert tolerations.lasts(tolerations.brief(pod), there) == tolerations.lasts(tolerations.of_pod(pod), there)


@given(tolerating, taints)
def test_the_simulated_scheduler_judges_alike(toleration, taint):
    """Written apart from it; where there is no key Kubernetes' validation wants Exists."""
    if toleration["key"] or toleration["operator"] == "Exists":
        plain = {name: text for name, text in toleration.items() if text != ""}
        assert tolerations.suits(toleration, taint) is placing.suits(plain, taint)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(anything)
def test_rubbish_never_raises_and_is_no_toleration(rubbish: Any):
    pod = {"spec": {"tolerations": rubbish}}
    assert tolerations.lasts(tolerations.of_pod(pod), [GPU]) == 0
    assert tolerations.lasts(tolerations.brief(pod), [GPU]) == 0
    json.dumps(tolerations.brief(pod))


def test_most_pods_keep_nothing_in_their_row():
    """The API server gives every pod two with a limit, for nodes that are not Ready; schedulers' own evict no pod."""
    own = [
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {
            "key": "node.kubernetes.io/unreachable",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        },
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    ]
    limits = {"resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}}}
    raw = {"metadata": {"uid": "1", "name": "a"}, "spec": {"tolerations": own, "containers": [limits]}}
    assert rows.gpu_pod(raw)["tolerations"] == []
    own.append({"key": "team", "operator": "Equal", "value": "a\0", "effect": "NoExecute"})
    own.append({"key": "team", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5})
    assert rows.gpu_pod(raw)["tolerations"] == [{"key": "team", "value": "b", "tolerationSeconds": 5}]
