"""The support bundle of `manage.py doctor --bundle`: what helps others to see what is wrong, and no secret.

Each part takes only what is known to be harmless: numbers, times, states that the code names, names of classes and of
migrations. Texts of people and of other programs are left out, but for the doctor's own findings, which quote none. At
the end each part is searched for every secret that this process was given, and left out should it hold one.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from config.doctor import bundle_rows, bundle_settings
from config.doctor.report import Report

FOLDER = "setpoint-support"
LARGEST = 1024 * 1024
"""Bytes of one part, before compression."""
MOST_FINDINGS = 1000
FORMAT = 1

Parts = Mapping[str, Callable[[], Any]]


class BundleRefused(Exception):
    """A bundle that cannot be written. `str()` says why."""


def parts_of(report: Report) -> dict[str, Callable[[], Any]]:
    """Return what is in a bundle, by the name of its file."""
    return {
        "versions.json": bundle_rows.versions,
        "settings.json": bundle_settings.shown,
        "doctor.json": lambda: _first_findings(report),
        "migrations.json": bundle_rows.migrations,
        "database.json": bundle_rows.database,
        "counts.json": bundle_rows.counts,
        "events.json": bundle_rows.events,
        "errors.json": bundle_rows.errors,
        "values.json": bundle_rows.values,
    }


def _first_findings(report: Report) -> dict[str, Any]:
    """Return the report, problems first where there are more findings than a person reads."""
    out = report.to_json()
    order = ("problem", "warning", "ok")
    kept = sorted(out["findings"], key=lambda finding: order.index(finding["state"]))[:MOST_FINDINGS]
    return out | {"findings": kept, "findings_left_out": len(out["findings"]) - len(kept)}


def packed(parts: Parts) -> tuple[bytes, dict[str, str]]:
    """Return the bundle as a file's bytes, and why parts were left out, by name."""
    texts, left_out = _texts(parts)
    return _packed(texts), left_out


def write(file: Path, parts: Parts) -> dict[str, str]:
    """Write a bundle, whole or not at all, readable by its owner alone.

    Returns why parts were left out, by name. Raises BundleRefused.
    """
    if file.exists():
        raise BundleRefused(f"{file} exists already; a bundle overwrites nothing.")
    content, left_out = packed(parts)
    try:
        handle, partial = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")  # mkstemp gives mode 0600
    except OSError as error:
        raise BundleRefused(f"{file.parent} cannot be written to: {error.strerror}.") from error
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.link(partial, file)  # unlike a rename it replaces nothing that has come there meanwhile
    except OSError as error:
        raise BundleRefused(f"{file} cannot be written: {error.strerror}.") from error
    finally:
        Path(partial).unlink(missing_ok=True)
    return left_out


def _texts(parts: Parts) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the parts as JSON, and why some hold nothing."""
    texts: dict[str, bytes] = {}
    left_out: dict[str, str] = {}
    for name, part in parts.items():
        texts[name], why = _text(part)
        if why:
            left_out[name] = why
    manifest = {"format": FORMAT, "left_out": left_out, "bytes": {name: len(text) for name, text in texts.items()}}
    return {"manifest.json": _json(manifest), **texts}, left_out


def _text(part: Callable[[], Any]) -> tuple[bytes, str]:
    try:
        text = _json(part())
    except Exception as error:  # the database may be what is broken; the text of an error could quote a secret
        why = f"it failed with {type(error).__name__}"
    else:
        held = sorted({name for name, secret in bundle_settings.secrets() if _holds(text, secret)})
        if held:
            why = f"it would show the value of {', '.join(held)}"
        elif len(text) > LARGEST:
            why = f"it has {len(text)} bytes, more than {LARGEST}"
        else:
            return text, ""
    return _json({"left_out": why}), why


def _holds(text: bytes, secret: str) -> bool:
    return any(form in text for form in bundle_settings.forms(secret))


def _json(of: Any) -> bytes:
    return json.dumps(of, indent=1, sort_keys=True, default=str, ensure_ascii=False).encode()


def _packed(texts: Mapping[str, bytes]) -> bytes:
    """Return a gzipped tar with the parts in their order: no names of accounts, and no times but those in the parts."""
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as archive:
        for name, text in texts.items():
            entry = tarfile.TarInfo(f"{FOLDER}/{name}")
            entry.size, entry.mode = len(text), 0o600
            archive.addfile(entry, io.BytesIO(text))
    return out.getvalue()
