"""Many devices' buckets of one step of time as a few kilobytes: a row of the database for hundreds of devices.

JSON by device, compressed: names stand once, and neighbors look alike. Numbers keep six significant digits, counters
and shares of time as well; that is a millionth, where exporters themselves round to a hundredth.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from gpus.metrics.buckets import Bucket, Device
from gpus.metrics.samples import Metric

LEVEL = 6
METRICS = {str(metric): metric for metric in Metric}


def pack(buckets: Iterable[tuple[Device, Bucket]]) -> bytes:
    """All of one start."""
    rows = sorted(buckets, key=lambda pair: (pair[0].node_name, pair[0].uuid, pair[0].instance))
    names = sorted({metric for _, bucket in rows for metric in bucket.means})
    listed = [
        [*device, short(bucket.covered), short(bucket.held), bucket.holder]
        + [None if (value := bucket.means.get(name)) is None else short(value) for name in names]
        for device, bucket in rows
    ]
    return zipped({"metrics": [str(name) for name in names], "devices": listed}, LEVEL)


def unpack(data: bytes, start: datetime, nodes: Collection[str] | None = None) -> Iterator[tuple[Device, Bucket]]:
    """Yield the devices of a packed step with their buckets, restricted to `nodes` if given."""
    step = unzipped(data)
    names = [METRICS.get(name) for name in step["metrics"]]
    is_known = None not in names
    for uuid, instance, node, model, covered, held, holder, *values in step["devices"]:
        if nodes is not None and node not in nodes:
            continue
        means: Mapping[Any, float]
        if is_known and None not in values:
            means = dict(zip(names, values, strict=True))
        else:
            means = {name: value for name, value in zip(names, values, strict=True) if name and value is not None}
        yield Device(uuid, instance, node, model), Bucket(start, covered, held, means, holder)


def column(data: bytes, metric: Metric) -> Iterator[tuple[str, str, float, float]]:
    """UUID, instance, share of the time that readings cover, and one metric, of the devices that have it.

    Less than half of what `unpack` costs, where all of a fleet is looked at for one figure.
    """
    step = unzipped(data)
    if metric not in step["metrics"]:
        return
    place = 7 + step["metrics"].index(metric)
    for row in step["devices"]:
        if (value := row[place]) is not None:
            yield row[0], row[1], row[4], value


def zipped(value: Any, level: int) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode(), level)


def unzipped(data: bytes) -> Any:
    return json.loads(zlib.decompress(data))


def short(value: float) -> float:
    """Six significant digits; whole numbers without a fraction."""
    if -1e6 < value < 1e6 and value == (whole := int(value)):  # most are, and formatting takes six times as long
        return whole
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() else rounded
