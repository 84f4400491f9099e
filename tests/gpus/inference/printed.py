"""Texts of inference servers in their formats, word for word, and targets of a simulated Prometheus that print them."""

from __future__ import annotations

import re
from pathlib import Path

from simfleet.controllers.monitoring import Scraped

FOLDER = Path(__file__).parent / "exporters"
LINE = re.compile(r"([\w:]+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def text(name):
    return (FOLDER / f"{name}.prom").read_text()


def parsed(printed):
    """Yield (type, name, labels, value) of each sample."""
    types = dict(re.findall(r"# TYPE (\S+) (\w+)", printed))
    for line in printed.splitlines():
        if match := LINE.fullmatch(line):
            name, labels, value = match[1], dict(LABEL.findall(match[2] or "")), float(match[3])
            family = name if name in types else re.sub("_(bucket|sum|count|total)$", "", name)
            yield types[family], name, labels, value


def target(namespace, pod, *, job="podmonitor/team", address="", **more):
    number = sum(map(ord, f"{namespace}/{pod}"))
    labels = {"namespace": namespace, "pod": pod, "job": job}
    return labels | {"instance": address or f"10.9.{number >> 8}.{number & 255}:8000"} | more


def scraped(labels, printed, start, until):
    """Scrape a server whose counters rise evenly from its start to what it prints at `until`."""
    rows = list(parsed(printed))

    def samples(at):
        part = (at - start) / (until - start)
        for kind, name, own, value in rows if part >= 0 else ():
            yield name, own, value * part if kind in ("counter", "histogram") else value

    return Scraped(labels, samples)
