"""XIDs are judged as NVIDIA's catalog does; the codes here are from an independent review's list."""

from __future__ import annotations

import pytest

from gpus.metrics import xids


@pytest.mark.parametrize(
    ("codes", "severity"),
    [
        ((109, 110, 136, 143, 151, 155, 156, 158), "bad"),
        ((46, 48, 62, 64, 74, 79, 95, 119, 120, 140, 150), "bad"),
        ((144, 145, 146, 147, 148, 149, 154), "warn"),
        ((63, 92, 94, 121, 157), "warn"),
        ((8, 11, 13, 25, 31, 32, 39, 43, 45, 60, 68, 69, 80, 82, 96, 105, 126, 135, 139, 141), "ok"),
    ],
)
def test_each_code_is_as_severe_as_its_immediate_action(codes, severity):
    assert {code: xids.ADVICE[code].severity for code in codes} == dict.fromkeys(codes, severity)


def test_what_clears_by_a_reset_is_reset_before_the_vendor_is_called():
    assert {xids.ADVICE[code].word for code in (48, 74, 64, 95)} == {"reset the GPU"}


def test_a_code_has_one_bucket_a_name_and_advice():
    codes = [int(code) for bucket in xids.CATALOG["buckets"].values() for code in bucket]
    assert len(codes) == len({*codes})
    assert {*codes} == {*xids.NAMES} == {*xids.ADVICE}
    special = [int(code) for part in ("repaired", "noted", "decoded") for code in xids.CATALOG[part]]
    assert len(special) == len({*special})
    assert {*special} <= {*codes}
    assert {*xids.CATALOG["buckets"]} == {*xids.BUCKETS}


def test_only_what_was_repaired_or_contained_is_called_so():
    called = {code for code, advice in xids.ADVICE.items() if "repaired" in advice.what}
    assert called == {63, 92, 94, 121, 160}
    assert {xids.ADVICE[code].severity for code in (147, 148, 157, 165, 171, 172)} == {"warn"}


def test_a_code_that_nobody_knows_is_to_be_looked_up():
    (xid,) = xids.reported([(999, 1, "last")])
    assert (xid.code, xid.name, xid.advice) == (999, "", xids.OTHER)
