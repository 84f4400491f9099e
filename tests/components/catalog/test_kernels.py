"""Kernel releases as nodes of real distributions report them, against a preset's need."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.catalog import catalog, kernels
from components.catalog.yaml_reader import BadCatalog
from tests.components.catalog.test_catalog import SMALL


@pytest.mark.parametrize(
    ("release", "number"),
    [
        ("5.14.0-427.el9", (5, 14)),
        ("5.14.0-427.13.1.el9_4.x86_64", (5, 14)),
        ("6.8.0-1015-azure", (6, 8)),
        ("6.1.0-13-amd64", (6, 1)),
        ("6.12-rc1", (6, 12)),
        ("6.10.4", (6, 10)),
        ("5.15.153.1-microsoft-standard-WSL2", (5, 15)),
        ("6.6.56+", (6, 6)),
        ("6.1.109-118.189.amzn2023.x86_64", (6, 1)),
        ("10.0.19042", (10, 0)),
        ("", None),
        ("6", None),
        ("six.eight", None),
        ("6.8rc", None),
        ("linux-6.8", None),
    ],
)
def test_a_release_has_the_number_at_its_beginning_or_none(release, number):
    assert kernels.version(release) == number


@pytest.mark.parametrize(
    ("release", "need", "verdict"),
    [
        ("6.8.0-1015-azure", ">=6.8", "meets"),
        ("6.10.4", ">=6.8", "meets"),
        ("6.1.0-13-amd64", ">=6.3", "too-old"),
        ("5.19.17", ">=6.3", "too-old"),
        ("5.14.0-427.el9", ">=6.8", "backported"),
        ("5.14.0-427.el9", ">=5.14", "meets"),
        ("", ">=6.8", "unknown"),
    ],
)
def test_numbers_are_compared_as_numbers_and_what_carries_backports_is_not_refused(release, need, verdict):
    assert kernels.judge(release, need) == verdict


@given(st.integers(1, 20), st.integers(0, 40), st.integers(1, 20), st.integers(0, 40), st.sampled_from(["", ".0-9-x"]))
def test_a_kernel_meets_exactly_the_needs_that_are_not_newer(major, minor, least_major, least_minor, tail):
    verdict = kernels.judge(f"{major}.{minor}{tail}", f">={least_major}.{least_minor}")
    assert (verdict == "meets") == ((major, minor) >= (least_major, least_minor))


@pytest.mark.parametrize("need", ["6.8", ">6.8", ">= 6.8", ">=6", ">=6.8.1", "<=6.8"])
def test_a_need_in_other_words_is_refused_with_what_is_right(tmp_path, need):
    text = SMALL.format(name="small").replace(
        "sources: [S]}\nreadiness", f"kernel: '{need}', sources: [S]}}\nreadiness"
    )
    (tmp_path / "small.yaml").write_text(text)
    with pytest.raises(BadCatalog, match=r"presets.big.kernel: .*is not a kernel need such as '>=6.8'"):
        catalog.load(tmp_path)


def test_what_cilium_says_of_a_kernel_in_words_is_data_as_well():
    for preset in catalog.get("cilium").presets.values():
        spoken = preset.why.partition("Needs Linux ")[2].split(" ")[0].rstrip(".,")
        assert not spoken or preset.kernel == f">={spoken}", preset.name
