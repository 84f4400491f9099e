"""Small charts as archives, made in memory: the same bytes at any time, as names of tests and digests need."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping

CHART = "apiVersion: v2\nname: tiny\nversion: 1.2.3\nappVersion: '7'\n"
CONFIG = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-settings
data:
  color: {{ .Values.color | quote }}
  kube: {{ .Capabilities.KubeVersion.Version }}
"""

_ENTRY = """\
name: {name}
title: {name}
summary: For tests.
documentation: https://example.org/docs
chart: {{kind: http, url: "https://charts.example.org", chart: {name}}}
sources: {{S: {{text: "Its README", url: "https://example.org"}}}}
versions: [{versions}]
namespace: {namespace}
pod_security: baseline
disruption: live
crds: {{names: [], stay: true}}
{more}
readiness: [{{workloads: {{namespace: {namespace}, kind: {kind}, names: ["{workload}"]}}}}]
hazards:
  upgrade: [{{text: None that is known, sources: [S]}}]
  removal: [{{text: None that is known, sources: [S]}}]
"""


def entry(name: str, *versions: str, workload: str, namespace: str = "", more: str = "") -> str:
    """The catalog's file of a component that is ready with one workload, `Kind/name`."""
    kind, _, called = workload.partition("/")
    version_list = ", ".join(f"{{version: {version}}}" for version in versions)
    place = namespace or f"{name}-system"
    return _ENTRY.format(name=name, versions=version_list, namespace=place, kind=kind, workload=called, more=more)


def versioned(name: str, version: str, template: str, values: str = "{}\n", **templates: str) -> bytes:
    """A chart of one file, or of these beside it."""
    files = {"Chart.yaml": f"apiVersion: v2\nname: {name}\nversion: {version}\n", "values.yaml": values}
    return packed(files | {f"templates/{key}.yaml": text for key, text in ({"a": template} | templates).items()})


def packed(files: Mapping[str, str | bytes], folder: str = "tiny") -> bytes:
    """A .tgz of these files under one folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(f"{folder}/{name}" if folder else name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return gzip.compress(out.getvalue(), mtime=0)


def tiny(**templates: str) -> bytes:
    """Chart tiny 1.2.3 with a ConfigMap, or with these templates instead."""
    shown = {f"templates/{name}.yaml": text for name, text in (templates or {"config": CONFIG}).items()}
    return packed({"Chart.yaml": CHART, "values.yaml": "color: green\n", **shown})


def bomb(mebibytes: int) -> bytes:
    """Unpacks to so many MiB of zeros in one template."""
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        chart = CHART.encode()
        entry = tarfile.TarInfo("tiny/Chart.yaml")
        entry.size = len(chart)
        tar.addfile(entry, io.BytesIO(chart))
        entry = tarfile.TarInfo("tiny/templates/big.yaml")
        entry.size = mebibytes << 20
        tar.addfile(entry, io.BytesIO(bytes(entry.size)))
    return out.getvalue()
