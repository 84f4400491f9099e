"""Render the same chart twice at most: the law here is what becomes of a manifest, not how helm makes it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import pytest

from components.helm.client import Helm, HelmJob

_as_product, _lock = Helm.template, threading.Lock()
_rendered: defaultdict[str, list[bytes]] = defaultdict(list)
_calls: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def rendered_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer in turn with two manifests of a chart that asks no cluster, in the tests of this folder alone.

    A plan compares two to see what the chart generates, as Volcano's does its certificates: so it still does.
    """
    monkeypatch.setattr(Helm, "template", _template)


def _template(helm: Helm, job: HelmJob, chart: bytes, values: Mapping[str, Any], **how: Any) -> bytes:
    if job.credentials is not None:
        return _as_product(helm, job, chart, values, **how)
    where = (helm.program, job.release, job.namespace, hashlib.sha256(chart).hexdigest(), values, how)
    key = json.dumps(where, sort_keys=True)
    with _lock:
        _calls[key] += 1
        if len(_rendered[key]) < 2:
            _rendered[key].append(_as_product(helm, job, chart, values, **how))
            return _rendered[key][-1]
        return _rendered[key][(_calls[key] - 1) % 2]
