"""Connected clusters on which a chart does not run: helm itself judges its `kubeVersion` before it renders."""

from __future__ import annotations

import time

from clusters.models import Cluster
from components.helm import client
from components.helm.client import HelmError, HelmJob

SECONDS = 20.0
MOST = 8
"""Versions of Kubernetes that are asked for: one short run of helm each."""
_REFUSED = "chart requires kubeVersion"


def unfit(content: bytes) -> list[str]:
    """A sentence for each version of Kubernetes that the chart refuses. What helm cannot judge is left to a plan."""
    rows = Cluster.objects.exclude(kubernetes_version="").order_by("name").values_list("kubernetes_version", "name")
    there: dict[str, list[str]] = {}
    for version, name in rows:
        there.setdefault(version, []).append(name)
    out = []
    until = time.monotonic() + SECONDS
    for version, names in list(there.items())[:MOST]:
        try:
            client.program().template(HelmJob("one", "one", deadline=until), content, {}, kube_version=version)
        except HelmError as error:
            if _REFUSED in str(error):
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                out.append(f"It does not run on {', '.join(names[:3])}{more} ({version}): {error}")
    return out
