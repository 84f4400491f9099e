"""Versions of charts: which steps between them are permitted, and with which versions of Kubernetes."""

from __future__ import annotations

import pytest

from components.catalog import catalog, versions
from components.catalog.versions import Upgrades, same_version
from components.values.clauses import Clause, look_up


@pytest.mark.parametrize(
    ("name", "before", "after", "is_refused"),
    [
        ("cilium", "1.19.4", "1.20.0", False),
        ("cilium", "1.18.4", "1.20.0", True),
        ("cilium", "1.20.0", "1.18.4", True),
        ("cilium", "1.20.0", "1.20.3", False),
        ("gpu-operator", "v26.3.2", "v26.7.0", False),
        ("gpu-operator", "v25.10.1", "v26.7.0", True),
        ("gpu-operator", "v25.3.0", "v25.10.0", False),
        ("gpu-operator", "v22.9.0", "v26.7.0", False),  # a line that the catalog does not know: nothing is claimed
        ("kube-prometheus-stack", "87.1.0", "88.5.3", False),
        ("kube-prometheus-stack", "80.0.0", "88.5.3", True),
        ("node-feature-discovery", "0.10.0", "0.19.0", False),
        ("volcano", "nonsense", "1.15.1", False),
    ],
)
def test_a_skip_that_the_makers_forbid_is_refused(name, before, after, is_refused):
    refusal = catalog.get(name).upgrades.refuses(before, after)
    assert bool(refusal) is is_refused
    assert not is_refused or (before in refusal and after in refusal)


def test_a_new_major_version_follows_the_last_minor_one():
    rule = Upgrades("one-minor")
    assert rule.refuses("1.31.0", "2.0.0") == ""
    assert "2 minor versions" in rule.refuses("1.31.0", "3.0.0")


@pytest.mark.parametrize(
    ("bounds", "server", "is_fine"),
    [
        (("1.33", "1.36"), "v1.35.4-eks-12", True),
        (("1.33", "1.36"), "v1.32.9", False),
        (("1.33", "1.36"), "v1.37.0", False),
        (("1.33", "1.36"), "1.33", True),
        (("1.25", ""), "v1.99.0", True),
        (("", "1.35"), "v1.36.0", False),
        (("1.33", "1.36"), "unknown", True),
    ],
)
def test_a_chart_runs_on_some_versions_of_kubernetes(bounds, server, is_fine):
    assert versions.Tested("1.0.0", *bounds).permits(server) is is_fine


def test_bounds_are_written_for_people():
    assert versions.Tested("1.0.0", "1.33", "1.36").kubernetes == "1.33 to 1.36"
    assert versions.Tested("1.0.0", "1.25").kubernetes == "1.25 or newer"
    assert versions.Tested("1.0.0", "", "1.35").kubernetes == "1.35 or older"
    assert versions.Tested("1.0.0").kubernetes == ""
    assert same_version("v1.2.3", "1.2.3")
    assert not same_version("1.2.3", "1.2.4")


def test_a_clause_reads_as_people_write_it():
    assert str(Clause("nfd.enabled", equals=False)) == "nfd.enabled = false"
    assert look_up({"a": {"b": 1}}, "a.b") == 1
    assert look_up({"a": 1}, "a.b") is None
