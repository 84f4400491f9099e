"""Typed reading of SETPOINT_* environment variables. A malformed value ends the process with the variable's name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


class BadEnvironment(SystemExit):
    """A variable that cannot be used. Ends the process with the message; a half-configured server must not start."""


def text(name: str, default: str = "") -> str:
    return os.environ.get(name, default)


def flag(name: str, default: bool = False) -> bool:
    value = os.environ.get(name, "").strip().lower()
    if value in ("", None):
        return default
    if value in ("1", "true", "yes", "on"):
        return True
    if value in ("0", "false", "no", "off"):
        return False
    raise BadEnvironment(f"{name} must be true or false, not {value!r}")


def integer(name: str, default: int, *, least: int = 0) -> int:
    value = os.environ.get(name, "")
    try:
        number = int(value) if value else default
    except ValueError:
        raise BadEnvironment(f"{name} must be a whole number, not {value!r}") from None
    if number < least:
        raise BadEnvironment(f"{name} must be at least {least}, not {number}")
    return number


def seconds(name: str, default: float) -> float:
    value = os.environ.get(name, "")
    try:
        number = float(value) if value else default
    except ValueError:
        raise BadEnvironment(f"{name} must be a number of seconds, not {value!r}") from None
    if number <= 0:
        raise BadEnvironment(f"{name} must be more than 0 seconds, not {value!r}")
    return number


def words(name: str, default: str = "") -> list[str]:
    """Comma-separated."""
    return [word.strip() for word in os.environ.get(name, default).split(",") if word.strip()]


def database(name: str, default: str) -> dict[str, Any]:
    """`sqlite:///absolute/path` or `postgresql://user:password@host:port/name`."""
    url = os.environ.get(name, "") or default
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        path = Path(unquote(parts.path))
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(path),
            "OPTIONS": {
                # IMMEDIATE takes the write lock at BEGIN, so a read-then-write never fails half way with "locked".
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=20000;",
            },
        }
    if parts.scheme in ("postgres", "postgresql"):
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts.path.lstrip("/"),
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "HOST": parts.hostname or "",
            "PORT": str(parts.port or ""),
            "CONN_MAX_AGE": 60,
            "CONN_HEALTH_CHECKS": True,
            "OPTIONS": {"connect_timeout": 5},
        }
    raise BadEnvironment(f"{name} must begin with sqlite:// or postgresql://")


def secret(name: str, file: Path) -> str:
    """From the variable, else from `file`, which is made (mode 0600) on first use."""
    if value := os.environ.get(name):
        return value
    if not file.exists():
        import secrets

        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as out:
            out.write(secrets.token_urlsafe(48))
    return file.read_text().strip()
