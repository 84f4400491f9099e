"""The bodies that typed clients send: read as they are meant, and refused in words where they are not."""

from __future__ import annotations

import pytest

from simfleet.apiserver.protobuf import MAGIC, decoded
from simfleet.apiserver.store import ApiError


def _field(number, content):
    if isinstance(content, int):
        return bytes([number << 3]) + bytes([content])
    content = content.encode() if isinstance(content, str) else content
    return bytes([number << 3 | 2, len(content)]) + content


def _sent(kind, *fields):
    of = _field(1, "v1") + _field(2, kind)
    return MAGIC + _field(1, of) + _field(2, b"".join(fields))


METADATA = _field(1, "s") + _field(3, "") + _field(11, _field(1, "owner") + _field(2, "helm"))
SECRET = _sent(
    "Secret",
    _field(1, METADATA),
    _field(2, _field(1, "release") + _field(2, b"\x00\xff")),
    _field(3, "x"),
    _field(5, 1),
)


def test_a_secret_is_read_and_empty_texts_are_absent():
    assert decoded(SECRET) == {
        "kind": "Secret",
        "apiVersion": "v1",
        "metadata": {"name": "s", "labels": {"owner": "helm"}},
        "data": {"release": "AP8="},
        "type": "x",
        "immutable": True,
    }


def test_options_of_a_delete_are_read():
    sent = _sent("DeleteOptions", _field(1, 0), _field(2, _field(1, "uid")), _field(4, "Background"), _field(5, "All"))
    assert decoded(sent) == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "uid"},
        "propagationPolicy": "Background",
        "dryRun": ["All"],
    }


def test_other_kinds_are_refused_in_words():
    with pytest.raises(ApiError, match="reads no protobuf of Pod") as refusal:
        decoded(_sent("Pod"))
    assert refusal.value.code == 415


WITHOUT_OBJECT = len(_sent("Secret")) - 2
"""Cut there it is whole: an object without fields, which Go leaves out."""


@pytest.mark.parametrize("length", [n for n in range(4, len(SECRET)) if n != WITHOUT_OBJECT])
def test_what_is_cut_short_is_refused(length):
    with pytest.raises(ApiError) as refusal:
        decoded(SECRET[:length])
    assert refusal.value.code in (400, 415)


@pytest.mark.parametrize("garbage", [b"\xff" * 40, b"\x08\x01\x10\x01", _field(1, 5), _field(1, b"\x0a\x02\xff\xfe")])
def test_garbage_is_refused(garbage):
    with pytest.raises(ApiError) as refusal:
        decoded(MAGIC + garbage)
    assert refusal.value.code in (400, 415)
