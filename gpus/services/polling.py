"""Readings of all clusters' telemetry: schedule, claims, and the recorded results.

The row is the queue. A claim is a conditional update with an end; a killed worker costs one claim. A change of the
source revokes the claim, so a reading in progress stores nothing more. No network call is made in a transaction.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, Sum

from clusters.models import Cluster, Node
from common.clock import now
from gpus.metrics.samples import Code, Reading
from gpus.models import TelemetrySource
from gpus.normalization.pipeline import normalize
from gpus.services import shared_gpus
from gpus.storage import devices, rollups
from gpus.telemetry import factory, quoting
from gpus.telemetry.prometheus import SKEW_SECONDS
from gpus.telemetry.source import Gathering, Unreadable

log = logging.getLogger(__name__)

State = TelemetrySource.State
READ_SECONDS = 60.0
"""For all that a reading asks; what has not answered by then is left out."""
CLAIM = timedelta(seconds=READ_SECONDS + 60)
"""A reading, and the storing of 40,000 GPUs."""
AFTER_FAILURE = timedelta(seconds=60)
WHERE_NOTHING_IS = timedelta(minutes=5)
"""Until an exporter is looked for again where there was none."""
AT_ONCE = 200
DROPPED = frozenset(
    {Code.LINES_REFUSED, Code.SERIES_OVER_LIMIT, Code.NOT_FINITE, Code.ABSURD, Code.STALE, Code.NO_DEVICE}
)
"""Findings that count series which were left out against the source's will."""


class ClaimLost(Exception):
    """Another party reads now, or the source was changed, or is gone."""


@dataclass(frozen=True, slots=True)
class PollResult:
    state: str
    sentence: str
    gathering: Gathering
    reading: Reading | None = None
    """None where nothing is known: what is stored stays as it was."""


def reconcile() -> None:
    """Each cluster has a source; one query where they all do."""
    missing = Cluster.objects.filter(telemetry=None).values_list("pk", flat=True)
    new = [TelemetrySource(cluster_id=pk) for pk in missing]
    if new:
        TelemetrySource.objects.bulk_create(new, ignore_conflicts=True)  # another worker may be faster


def due() -> list[int]:
    """Sources to read now, those that wait longest first."""
    rows = TelemetrySource.objects.filter(_free(now()), is_enabled=True).order_by("due_at", "pk")
    return list(rows.values_list("pk", flat=True)[:AT_ONCE])


def _free(at: datetime) -> Q:
    return Q(claimed_until=None, due_at__lte=at) | Q(claimed_until__lt=at)


def tick(pk: int) -> bool:
    """Make one reading if it is due and unclaimed. Returns whether this was the one that stored it."""
    at, started = now(), time.monotonic()
    until = at + CLAIM
    next_ = at + timedelta(seconds=settings.SETPOINT_GPU_SECONDS * random.uniform(0.95, 1.05))  # noqa: S311
    rows = TelemetrySource.objects.filter(_free(at), pk=pk, is_enabled=True)
    if not rows.update(claimed_until=until, due_at=next_):
        return False
    try:
        source = TelemetrySource.objects.select_related("cluster").get(pk=pk, claimed_until=until)
        outcome = _stored(source, read(source, at), at, lambda: _held(pk, until))
        _record(source, outcome, until, milliseconds=round((time.monotonic() - started) * 1000))
    except (ClaimLost, TelemetrySource.DoesNotExist):
        return False
    return True


def _stored(source: TelemetrySource, outcome: PollResult, at: datetime, claimed: devices.Claimed) -> PollResult:
    """Store a reading; a failure to store becomes the outcome. Raises ClaimLost."""
    try:
        if outcome.reading is None:
            rollups.lost(source.cluster_id, at, claimed=claimed)
        else:
            reading = shared_gpus.held_by_their_pods(source.cluster_id, outcome.reading)
            devices.store(source.cluster_id, reading, claimed=claimed)
            rollups.store(source.cluster_id, reading, claimed=claimed)
    except ClaimLost:
        raise
    except Exception:
        log.exception("storing telemetry of %s failed", source.cluster)
        sentence = "Setpoint itself failed while it stored this; its log says how."
        return PollResult(State.FAILED, sentence, outcome.gathering)
    return outcome


@contextmanager
def _held(pk: int, until: datetime) -> Iterator[None]:
    """Hold the claim in a transaction, so that it cannot be taken away. Raises ClaimLost."""
    with transaction.atomic():
        mine = TelemetrySource.objects.select_for_update().filter(pk=pk, claimed_until=until)
        if not list(mine.values_list("pk", flat=True)):
            raise ClaimLost
        yield


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def read(source: TelemetrySource, at: datetime, *, seconds: float = READ_SECONDS) -> PollResult:
    """Asks the source, saved or not, and stores nothing. Waits on the network: hold no transaction."""
    outcome, concealed = (
        _reading(source, Gathering(when=at, deadline=time.monotonic() + seconds)),
        quoting.secrets(source),
    )
    into = outcome.gathering
    into.reasons = [(quoting.quoted(what, concealed), quoting.quoted(why, concealed)) for what, why in into.reasons]
    return replace(outcome, sentence=quoting.quoted(outcome.sentence, concealed))


def _reading(source: TelemetrySource, into: Gathering) -> PollResult:
    try:
        telemetry = factory.telemetry(source)
        try:
            reading = normalize(
                telemetry.series(into), when=into.when, exporters=into.exporters, findings=into.findings
            )
        finally:
            telemetry.close()
    except Unreadable as error:
        return PollResult(State.FAILED, str(error), into)
    except Exception:
        log.exception("reading telemetry of %s failed", source.cluster)
        return PollResult(State.FAILED, "Setpoint itself failed while it read this; its log says how.", into)
    return result_of(source, reading, into)


def result_of(source: TelemetrySource, reading: Reading, into: Gathering) -> PollResult:
    what = "exporters" if _reads_exporters(source, into) else "queries"
    sentences = [f"{into.unanswered:,} of {into.asked:,} {what} returned nothing."] if into.unanswered else []
    if into.partial:
        sentences.append(f"{into.partial:,} of {into.asked:,} {what} returned a part.")
    sentences += [f"{name}: {why}" for name, why in into.reasons[:2]]
    if into.skew_seconds is not None and abs(into.skew_seconds) > SKEW_SECONDS:
        way = "ahead of" if into.skew_seconds > 0 else "behind"
        sentences.append(f"Its clock is {abs(into.skew_seconds):,.0f} s {way} Setpoint's; ages are told by its own.")
    if not reading.samples and into.unanswered:
        return PollResult(State.FAILED, " ".join(sentences), into)
    if not reading.samples:
        return PollResult(State.EMPTY, " ".join([_nothing(source, reading, into), *sentences]), into, reading)
    return PollResult(
        State.PARTLY if into.unanswered or into.partial else State.WELL, " ".join(sentences), into, reading
    )


def _reads_exporters(source: TelemetrySource, into: Gathering) -> bool:
    return into.choice.reads == TelemetrySource.EXPORTERS if into.choice else source.reads_exporters


def _nothing(source: TelemetrySource, reading: Reading, into: Gathering) -> str:
    gpus = (
        Node.objects.present()
        .filter(cluster=source.cluster_id)
        .aggregate(n=Sum(F("gpu_count") - F("gpu_virtual")))["n"]
        or 0
    )
    known = f", though its nodes have {gpus:,} GPUs" if gpus else ""
    if not _reads_exporters(source, into):
        if reading.series:
            return f"Prometheus has {reading.series:,} series of GPUs, and none of them has a current value{known}."
        return f"Prometheus has no series of GPUs of this cluster{known}."
    if into.asked:
        return f"The exporters know of no GPUs{known}."
    return f"The cluster has no exporter of GPU metrics{known}: install the GPU Operator, or name a Prometheus."


# ── what is kept ──────────────────────────────────────────────────────────────────────────────────────────────────────
def _record(source: TelemetrySource, outcome: PollResult, until: datetime, *, milliseconds: int) -> None:
    """Raises ClaimLost."""
    at = now()
    fields: dict[str, Any] = row_fields(outcome) | {
        "tried_at": at,
        "milliseconds": milliseconds,
        "ticks": F("ticks") + 1,
        "claimed_until": None,
    }
    if outcome.state != source.state:
        fields["since"] = at
    if outcome.state == State.FAILED:
        fields |= {"failures": F("failures") + 1, "due_at": max(source.due_at, at + AFTER_FAILURE)}
    if outcome.state == State.EMPTY:
        fields["due_at"] = at + WHERE_NOTHING_IS
    if outcome.reading is not None:
        fields["dropped"] = F("dropped") + sum(
            finding.count for finding in outcome.reading.findings if finding.code in DROPPED
        )
    if not TelemetrySource.objects.filter(pk=source.pk, claimed_until=until).update(**fields):
        raise ClaimLost


def row_fields(outcome: PollResult) -> dict[str, Any]:
    """Return an outcome as the fields of a source's row."""
    into, reading = outcome.gathering, outcome.reading
    fields: dict[str, Any] = {
        "state": outcome.state,
        "sentence": outcome.sentence.replace("\0", "")[:500],
        "asked": into.asked,
        "unanswered": into.unanswered,
        "reasons": [list(reason) for reason in into.reasons],
        "skew_seconds": into.skew_seconds,
    }
    if into.choice is not None:
        fields |= {"chosen": into.choice.reads, "chosen_because": into.choice.because[:500]}
        fields["chosen_at"] = into.choice.at
    return (
        fields
        if reading is None
        else fields
        | {
            "read_at": reading.when,
            "series": reading.series,
            "devices": len(reading.samples),
            "findings": [[str(finding.code), finding.count, finding.example] for finding in reading.findings],
            "generations": sorted(map(str, reading.generations)),
            "honor_labels": str(reading.honor_labels),
            "has_profiling": reading.profiling,
            "exporter_versions": sorted(reading.exporter_versions),
        }
    )
