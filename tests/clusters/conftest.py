from __future__ import annotations

import pytest

from common import hooks


@pytest.fixture(autouse=True)
def no_rooms_above(monkeypatch):
    """This room is tested by itself: whoever subscribed from above stays out, and a test subscribes what it needs."""
    for hook in vars(hooks).values():
        if isinstance(hook, hooks.Hook | hooks.Question):
            monkeypatch.setattr(hook, "_subscribers", [])


@pytest.fixture
def told():
    """What subscribers of the two hooks were told: (hook, primary keys)."""
    heard: list[tuple[str, list[int]]] = []
    for hook in (hooks.nodes_changed, hooks.nodes_gone):
        hook.subscribe(lambda _, pks, name=hook.name: heard.append((name, list(pks))))
    return heard
