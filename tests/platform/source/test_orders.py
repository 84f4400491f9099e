"""Rows are never in an order that the database is free to choose."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import pytest
from django.apps import apps
from django.db.models import DateTimeField, Model, UniqueConstraint

from tests.platform.source.files import ROOT, tracked


def _times() -> frozenset[str]:
    """Return the names of all fields that hold an instant, which two rows may share, as all do under a test's clock.

    The start of a period is none: it belongs to what its table holds to be unique.
    """
    models = apps.get_models()
    times = {f.name for model in models for f in model._meta.fields if isinstance(f, DateTimeField)}
    return frozenset(times - {name for model in models for rule in _unique(model) for name in rule})


def _unique(model: type[Model]) -> Iterator[tuple[str, ...]]:
    yield from (c.fields for c in model._meta.constraints if isinstance(c, UniqueConstraint))


def loose_orders(source: str, times: frozenset[str]) -> Iterator[int]:
    """Yield the lines of `order_by` whose last key is an instant, which leaves rows of one instant to the database."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "order_by"):
            continue
        if _is_loose([key.value for key in node.args[-1:] if isinstance(key, ast.Constant)], times):
            yield node.lineno


def _is_loose(last: Sequence[object], times: frozenset[str]) -> bool:
    """Return whether the last key, if there is one, is an instant."""
    return any(str(key).lstrip("-").rpartition("__")[2] in times for key in last)


@pytest.mark.parametrize(
    ("call", "is_loose"),
    [
        ('rows.order_by("at")', True),
        ('rows.order_by("name", "-created_at").first()', True),
        ('rows.order_by("plan__created_at")', True),
        ('rows.order_by("-at", "-pk")', False),
        ('rows.order_by("number")', False),
        ("rows.order_by()", False),
    ],
)
def test_an_order_by_an_instant_alone_is_noticed(call: str, is_loose: bool) -> None:
    assert bool(list(loose_orders(call, frozenset({"at", "created_at"})))) is is_loose


def test_no_model_is_ordered_by_an_instant_alone() -> None:
    times = _times()
    loose = {m._meta.label for m in apps.get_models() if _is_loose([*m._meta.ordering][-1:], times)}
    assert not loose - {"django_celery_results.TaskResult"}, 'add "pk" to its Meta.ordering'


def test_rows_of_one_instant_have_an_order() -> None:
    times = _times()
    assert {"at", "created_at", "stored_at"} <= times
    loose = {f"{path}:{line}" for path in tracked() for line in loose_orders((ROOT / path).read_text(), times)}
    assert not loose, 'add "pk", or whatever else tells two rows of one instant apart'
