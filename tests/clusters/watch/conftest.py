from __future__ import annotations

import pytest

from tests.clusters.watch.driven import DrivenCluster


@pytest.fixture
def here(db):
    return DrivenCluster()
