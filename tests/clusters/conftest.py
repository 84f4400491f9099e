from __future__ import annotations

import pytest

from common import hooks


@pytest.fixture(autouse=True)
def no_rooms_above(monkeypatch):
    """Test this app by itself: remove subscribers of the apps above; a test subscribes what it needs."""
    for hook in vars(hooks).values():
        if isinstance(hook, hooks.Hook | hooks.Question):
            monkeypatch.setattr(hook, "_subscribers", [])


@pytest.fixture
def notifications():
    """Return calls to subscribers of the two hooks: (hook, primary keys)."""
    heard: list[tuple[str, list[int]]] = []
    for hook in (hooks.nodes_changed, hooks.nodes_gone):
        hook.subscribe(lambda _, pks, name=hook.name: heard.append((name, list(pks))))
    return heard
