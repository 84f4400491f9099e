"""One running demo for the tests of this folder, which one process runs in the order of their files' names.

Making its world takes minutes of a processor. The last file ends it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.full.harness.demo import Demo


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    made = Demo(tmp_path_factory.mktemp("demo"))
    yield made
    made.end()


@pytest.fixture(scope="session")
def values(demo: Demo) -> Mapping[str, str]:
    return demo.values()
