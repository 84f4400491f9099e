"""The memory of renderings in this folder's conftest.py: a plan must still see what a chart generates."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

from tests.components.release import conftest


def test_two_renderings_in_a_row_always_differ(monkeypatch):
    made = itertools.count()
    monkeypatch.setattr(conftest, "_as_product", lambda *_, **__: next(made))
    helm, job = SimpleNamespace(program="helm"), SimpleNamespace(credentials=None, release="memory", namespace="a")
    seen = [conftest._template(helm, job, b"chart", {}) for _ in range(7)]
    assert all(earlier != later for earlier, later in itertools.pairwise(seen))
    assert next(made) == 2, "each chart is rendered twice at most"
