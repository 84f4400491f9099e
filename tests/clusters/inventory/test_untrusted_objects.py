"""Objects are untrusted input: none raises, and what is stored can be read."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clusters.inventory import store
from clusters.models import Cluster, Node
from tests.clusters.factories import ClusterFactory
from tests.clusters.inventory.observed import AT, see

pytestmark = pytest.mark.django_db

words = st.text(st.characters(exclude_categories=()), max_size=8)  # with NUL and lone surrogates
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
rubbish = st.one_of(
    json_values,
    st.fixed_dictionaries(
        {
            "metadata": json_values
            | st.fixed_dictionaries(
                {"uid": st.just("u1"), "name": st.just("n1"), "labels": json_values, "annotations": json_values},
                optional={"resourceVersion": json_values, "generation": json_values, "ownerReferences": json_values},
            )
        },
        optional={
            "spec": json_values
            | st.fixed_dictionaries(
                {"nodeUID": st.just("u1")},
                optional={
                    "taints": json_values,
                    "containers": st.lists(st.fixed_dictionaries({"resources": json_values}), max_size=2),
                    "unschedulable": json_values,
                    "renewTime": json_values,
                },
            ),
            "status": json_values
            | st.fixed_dictionaries(
                {},
                optional={
                    "conditions": json_values,
                    "nodeInfo": json_values,
                    "allocatable": json_values,
                    "capacity": json_values,
                    "observed": json_values | json_values.map(json.dumps),
                    "settings": json_values,
                    "restart": json_values,
                    "protocol": json_values,
                },
            ),
        },
    ),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raws=st.lists(rubbish, max_size=4))
def test_rubbish_never_raises_and_what_is_stored_can_be_read(raws):
    cluster = Cluster.objects.first() or ClusterFactory()

    for complete in (False, True):
        see(cluster, *raws, complete=complete)
        store.observe_tunings(cluster, raws, complete=complete, at=AT, deleted=raws)
        store.observe_pods(cluster, raws, complete=complete, at=AT, deleted=raws)
        store.observe_leases(cluster, raws, at=AT)

    list(Node.objects.all())
