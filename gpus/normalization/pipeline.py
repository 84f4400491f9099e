"""Pipeline from exporters' series, of any generation and scrape method, to one `Reading`.

All series are gathered first (`claims`), then judged: which are percentages (`ratios`), which pods are exporters
(`attribution`), which of several claims about a device counts, and how MIG splits it (`merging`). The order of series
never matters, and no number is ever made up: a refused value is absent, and counted. Cost is linear in the number of
series, which may be an iterator.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from gpus.metrics.findings import Findings
from gpus.metrics.samples import PROFILING, ExporterPod, Reading, Series
from gpus.normalization.attribution import Attribution
from gpus.normalization.deduplication import Merger
from gpus.normalization.observations import Claims
from gpus.normalization.scaling import scales
from gpus.telemetry.exposition import MAX_SERIES


def normalize(
    series: Iterable[Series],
    *,
    when: datetime,
    exporters: Iterable[ExporterPod] = (),
    findings: Findings | None = None,
    limit: int = MAX_SERIES,
) -> Reading:
    """Return the reading of one cluster's GPUs at `when` (aware), from all series of its exporters.

    `exporters` are their pods as the API server knows them: with them a node's name need not be taken from labels.
    `findings` may already hold what the source met; pass the one that `exposition.parse` fills while this reads.
    """
    findings = Findings() if findings is None else findings
    claims = Claims(when, findings)
    claims.hear(series, limit)
    claims.drop_unreached()
    attribution = Attribution(claims, exporters)
    merger = Merger(attribution, scales(claims.evidence), findings)
    samples, boards = merger.devices(claims)
    return Reading(
        when=when,
        samples=tuple(samples),
        boards=tuple(boards),
        generations=claims.generations(),
        honor_labels=attribution.honor_labels(),
        profiling=any(not PROFILING.isdisjoint(sample.values) for sample in samples),
        exporter_versions=attribution.versions(),
        series=claims.heard,
        findings=findings.all(),
    )
