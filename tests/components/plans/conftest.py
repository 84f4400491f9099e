"""A cluster with one namespace."""

from __future__ import annotations

import pytest

from tests.components.kube import Kube


@pytest.fixture
def kube() -> Kube:
    made = Kube()
    made.say("GET", "/api/v1/namespaces", {"items": [{"metadata": {"name": "space"}}]})
    return made
