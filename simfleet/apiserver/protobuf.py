"""The few bodies that helm and other typed clients send as Kubernetes protobuf: Secrets, and options of a delete.

Answers are JSON, which those clients accept. Field numbers are those of the API's own .proto files.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from simfleet.apiserver.store import ApiError, Raw

MAGIC = b"k8s\0"
Reader = Callable[[Any], Any]
Fields = Mapping[int, tuple[str, str, Reader]]
"""Number to name, how it repeats (one, list, map), and how a value is read."""


def _text(value: bytes) -> str:
    return value.decode()


def _data(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _entry(read: Reader) -> Reader:
    def pair(value: bytes) -> tuple[str, Any]:
        fields = dict(_parts(value))
        return _text(fields.get(1, b"")), read(fields.get(2, b""))

    return pair


def _message(fields: Fields) -> Reader:
    return lambda value: _object(value, fields)


_TEXTS, _DATA = _entry(_text), _entry(_data)
_OWNER: Fields = {
    5: ("apiVersion", "one", _text),
    1: ("kind", "one", _text),
    3: ("name", "one", _text),
    4: ("uid", "one", _text),
    6: ("controller", "one", bool),
    7: ("blockOwnerDeletion", "one", bool),
}
_METADATA: Fields = {
    1: ("name", "one", _text),
    2: ("generateName", "one", _text),
    3: ("namespace", "one", _text),
    5: ("uid", "one", _text),
    6: ("resourceVersion", "one", _text),
    11: ("labels", "map", _TEXTS),
    12: ("annotations", "map", _TEXTS),
    13: ("ownerReferences", "list", _message(_OWNER)),
    14: ("finalizers", "list", _text),
}
_PRECONDITIONS: Fields = {1: ("uid", "one", _text), 2: ("resourceVersion", "one", _text)}
KINDS: Mapping[str, Fields] = {
    "Secret": {
        1: ("metadata", "one", _message(_METADATA)),
        2: ("data", "map", _DATA),
        3: ("type", "one", _text),
        4: ("stringData", "map", _TEXTS),
        5: ("immutable", "one", bool),
    },
    "DeleteOptions": {
        1: ("gracePeriodSeconds", "one", int),
        2: ("preconditions", "one", _message(_PRECONDITIONS)),
        4: ("propagationPolicy", "one", _text),
        5: ("dryRun", "list", _text),
    },
}


def decoded(sent: bytes) -> Raw:
    """An object from its wire form. Raises ApiError 400 for what is malformed, 415 for a kind that is not read."""
    try:
        envelope = dict(_parts(sent[len(MAGIC) :]))
        of = dict(_parts(envelope[1]))
        api_version, kind = _text(of.get(1, b"")), _text(of.get(2, b""))
        if kind not in KINDS:
            raise ApiError(415, "UnsupportedMediaType", f"simfleet reads no protobuf of {kind}: send JSON")
        return {"kind": kind, "apiVersion": api_version} | _object(envelope.get(2, b""), KINDS[kind])
    except (IndexError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise ApiError(400, "BadRequest", "the object provided is unrecognized") from error


def _object(value: bytes, fields: Fields) -> Raw:
    out: Raw = {}
    for number, content in _parts(value):
        if number not in fields:
            continue
        name, repeats, read = fields[number]
        if repeats == "list":
            out.setdefault(name, []).append(read(content))
        elif repeats == "map":
            key, item = read(content)
            out.setdefault(name, {})[key] = item
        elif content != b"" or read is not _text:  # Go writes empty texts too, and means that they are absent
            out[name] = read(content)
    return out


def _parts(value: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers with their numbers or bytes. Raises ValueError, IndexError."""
    at = 0
    while at < len(value):
        tag, at = _number(value, at)
        kind = tag & 7
        if kind == 0:
            content, at = _number(value, at)
            yield tag >> 3, content
            continue
        if kind == 2:
            length, at = _number(value, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + length > len(value):
            raise ValueError("cut short")
        yield tag >> 3, value[at : at + length]
        at += length


def _number(value: bytes, at: int) -> tuple[int, int]:
    total = shift = 0
    while True:
        byte = value[at]
        at += 1
        total |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return total, at
        shift += 7
        if shift > 63:
            raise ValueError("number too long")
