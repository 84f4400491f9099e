"""Detection of charts that need the cluster to render: their own templates, or a value that they render, call `lookup`.

A chart that does not is rendered without the cluster, by any helm, and depends on nothing of the cluster but its
version and what it serves. helm v4 otherwise builds every object while it renders, so that a chart with objects of its
own kinds cannot be planned before these exist.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from components.charts import archives

_LOOKUP = re.compile(rb"\blookup\b")
_DEFINITION = re.compile(r"(?:charts/[^/]+/)*(crds/.+\.(?:ya?ml|json))")
"""As helm has it: the folder of a chart or a subchart, of any name, and files that hold manifests."""


def asks_cluster(chart: bytes, values: Mapping[str, Any]) -> bool:
    """Return whether the chart may ask the cluster: the word beside any action counts, since `tpl` renders any text.

    Raises BadArchive.
    """
    return _chart_asks(chart) or _asks(repr(values).encode())


@lru_cache(maxsize=2)
def _chart_asks(chart: bytes) -> bool:
    """Every file counts, not templates alone: `tpl (.Files.Get …)` renders any of them, and values.yaml, too.

    Texts for people, which often explain it, count where a template reads files at all. What is put together while it
    renders cannot be seen here: `components.helm.recorded` finds what came of it.
    """
    files = archives.files(chart)
    reads_files = any(b"Files" in data for path, data in files.items() if not path.endswith(".md"))
    return any(_asks(data) for path, data in files.items() if reads_files or not path.endswith(".md"))


def _asks(text: bytes) -> bool:
    return b"{{" in text and _LOOKUP.search(text) is not None


def has_definitions(chart: bytes) -> bool:
    """Return whether the chart, or a subchart of it, brings a folder `crds/`. Raises BadArchive."""
    return bool(definitions(chart))


@lru_cache(maxsize=2)
def definitions(chart: bytes) -> tuple[tuple[str, bytes], ...]:
    """Each file of a folder `crds/`, subcharts' too: `crds/…` and its content as helm copies it. Raises BadArchive."""
    files = []
    for path, data in archives.files(chart).items():
        if at := _DEFINITION.fullmatch(path):
            files.append((at[1], data.removeprefix(b"\xef\xbb\xbf").rstrip()))
    return tuple(files)
