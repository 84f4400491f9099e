"""Typed reading of SETPOINT_* environment variables. A malformed value ends the process with the variable's name."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from accounts.access.networks import canonical

_POSTGRESQL = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
"""Django's names of what libpq calls otherwise; every other parameter is an option."""


class BadEnvironment(SystemExit):
    """A variable that cannot be used. Ends the process with the message; a half-configured server must not start."""


def _read(name: str) -> str:
    """The variable, or the content of the file that `<name>_FILE` names, as secrets are mounted. "" when neither."""
    if path := os.environ.get(f"{name}_FILE"):
        if name in os.environ:
            raise BadEnvironment(f"{name} and {name}_FILE are both set; keep one")
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadEnvironment(f"{name}_FILE: {error}") from error
    return os.environ.get(name, "")


def text(name: str, default: str = "") -> str:
    return _read(name) or default


def flag(name: str, default: bool = False) -> bool:
    value = _read(name).strip().lower()
    if not value:
        return default
    if value in ("1", "true", "yes", "on"):
        return True
    if value in ("0", "false", "no", "off"):
        return False
    raise BadEnvironment(f"{name} must be true or false, not {value!r}")


def integer(name: str, default: int, *, least: int = 0) -> int:
    value = _read(name)
    try:
        number = int(value) if value else default
    except ValueError:
        raise BadEnvironment(f"{name} must be a whole number, not {value!r}") from None
    if number < least:
        raise BadEnvironment(f"{name} must be at least {least}, not {number}")
    return number


def seconds(name: str, default: float, *, twice: str = "", than: float = 0) -> float:
    """`twice`: it must be at least two times the setting of that name, which is `than`."""
    value = _read(name)
    try:
        number = float(value) if value else default
    except ValueError:
        raise BadEnvironment(f"{name} must be a number of seconds, not {value!r}") from None
    if not 0 < number < 1e9:  # nan and inf too
        raise BadEnvironment(f"{name} must be more than 0 and less than 1e9 seconds, not {value!r}")
    if number < 2 * than:
        raise BadEnvironment(f"{name} must be at least twice {twice}, which is {than:g}; it is {number:g}")
    return number


def words(name: str, default: str = "") -> list[str]:
    """Comma-separated."""
    return [word.strip() for word in (_read(name) or default).split(",") if word.strip()]


def some_of(name: str, choices: Sequence[str]) -> frozenset[str]:
    """Comma-separated words of these."""
    given = frozenset(words(name))
    if unknown := sorted(given - set(choices)):
        raise BadEnvironment(f"{name} must name some of {', '.join(choices)}, not {unknown[0]!r}")
    return given


def networks(name: str) -> str:
    """Comma-separated address ranges, as one canonical text."""
    given = words(name)
    if not given and _read(name).strip():
        raise BadEnvironment(f"{name} has no address range: write some, such as 10.0.0.0/8, or leave it empty")
    text_, wrong = canonical(given)
    if wrong:
        raise BadEnvironment(f"{name}: {wrong[0]}")
    return text_


def one_of(name: str, choices: Sequence[str]) -> str:
    """One of these words; empty without any."""
    given = text(name).strip()
    if given and given not in choices:
        raise BadEnvironment(f"{name} must be one of {', '.join(choices)}, not {given!r}")
    return given


def prices(name: str) -> dict[str, float]:
    """Comma-separated `product=price`."""
    out = {}
    for word in words(name):
        product, _, price = (part.strip() for part in word.partition("="))
        try:
            out[product] = float(price)
        except ValueError:
            out[product] = -1.0
        if not product or not 0 <= out[product] < 1e6:  # nan and inf too
            raise BadEnvironment(f"{name} must be product=price, …, not {word!r}")
    return out


def metric_names(name: str) -> list[str]:
    """Comma-separated names of Prometheus metrics, each once."""
    given = list(dict.fromkeys(words(name)))
    for word in given:
        if len(word) > 200 or not re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", word):
            raise BadEnvironment(
                f"{name} must be names of metrics, such as my_trainer_step, separated by commas, not {word[:200]!r}"
            )
    if len(given) > 20:
        raise BadEnvironment(f"{name} must be at most 20 names, not {len(given)}")
    return given


def mail_security(text: str) -> tuple[bool, bool]:
    """(STARTTLS, TLS from the first byte) of `starttls`, `tls` or `none`."""
    value = text.strip().lower()
    if value not in ("starttls", "tls", "none"):
        raise BadEnvironment(f"SETPOINT_MAIL_SECURITY must be starttls, tls or none, not {value!r}")
    return value == "starttls", value == "tls"


def database(name: str, default: str) -> dict[str, Any]:
    """`sqlite:///absolute/path`, or libpq's `postgresql://user:password@host:port/name?sslmode=verify-full`.

    PostgreSQL's URLs are read by libpq itself, so several hosts and every parameter that it knows work.
    """
    url = _read(name) or default
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        if parts.query or parts.netloc:
            raise BadEnvironment(f"{name}: sqlite:///absolute/path takes neither a host nor parameters")
        if not parts.path.strip("/"):
            raise BadEnvironment(f"{name} names no file: sqlite:///absolute/path")
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
        given = [key for key, _ in parse_qsl(parts.query, keep_blank_values=True)]
        if twice := sorted({key for key in given if given.count(key) > 1}):
            raise BadEnvironment(f"{name} gives {twice[0]} twice: libpq would take the last of them, without a word")
        return _postgresql(name, url)
    raise BadEnvironment(f"{name} must begin with sqlite:// or postgresql://")


def _postgresql(name: str, url: str) -> dict[str, Any]:
    try:
        given: dict[str, Any] = conninfo_to_dict(url)
    except ProgrammingError as error:
        why = str(error).strip()  # which may show a piece of the password, unless it is about a parameter's name
        what = why if why.startswith("invalid URI query parameter") else "not a URL that PostgreSQL reads"
        raise BadEnvironment(f"{name}: {what}: percent-encode what is special in user and password") from None
    if not given.get("dbname"):
        raise BadEnvironment(f"{name} names no database: postgresql://user:password@host:port/name")
    if not all(port.isdigit() for port in str(given.get("port", "0")).split(",") if port):
        raise BadEnvironment(f"{name}: a port must be a number, not {given['port']!r}")
    named = {key: str(given.pop(of, "")) for key, of in _POSTGRESQL.items()}
    # Compiling a query takes PostgreSQL longer than answering any of ours: the list of clusters, 75 of 90 ms.
    options = f"-c jit=off {given.pop('options', '')}".strip()
    return {
        "ENGINE": "django.db.backends.postgresql",
        **named,
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {"connect_timeout": 5, **given, "options": options},
    }


def pooler(name: str, database: dict[str, Any]) -> None:
    """Fit a database's settings to a pooler before it: `none`, or `transaction`, one such as PgBouncer that gives a
    session to each transaction.

    There no cursor outlives its transaction, and no option comes with the connection: it would reach a session that
    others use too, and PgBouncer refuses it.
    """
    value = text(name, "none").strip().lower()
    if value not in ("none", "transaction"):
        raise BadEnvironment(f"{name} must be none or transaction, not {value!r}")
    if value == "none":
        return
    if not database["ENGINE"].endswith("postgresql"):
        raise BadEnvironment(f"{name} is for PostgreSQL only; the database is SQLite")
    if options := database["OPTIONS"].pop("options").removeprefix("-c jit=off").strip():
        raise BadEnvironment(f"{name}=transaction: take options={options} out of the URL: set it for the role instead")
    database["DISABLE_SERVER_SIDE_CURSORS"] = True


def broker(name: str, default: str, *, master: str) -> str:
    """Return Celery's URL; `none` without a broker. `master` names the variable of Sentinel's master.

    Celery finds out at the first message what is refused here: a process would start, and nothing would be sent.
    """
    url = _read(name).strip() or default
    if url == "none" or url.startswith("memory:"):
        return url
    parts = [urlsplit(part.strip()) for part in url.split(";")]
    if unknown := sorted({part.scheme for part in parts} - {"redis", "rediss", "sentinel", "amqp", "amqps"}):
        raise BadEnvironment(
            f"{name} must begin with redis://, rediss:// or sentinel://, or be none, not {unknown[0]!r}"
        )
    if len({part.scheme for part in parts}) > 1 or (len(parts) > 1 and parts[0].scheme.startswith("redis")):
        raise BadEnvironment(
            f"{name}: several addresses, divided by semicolons, are for Sentinels: sentinel:// in each"
        )
    for part in parts:
        try:
            is_whole = bool(part.hostname) and part.port != 0
        except ValueError:  # of the port, which shows no password
            is_whole = False
        if not is_whole:
            raise BadEnvironment(f"{name}: each address needs a host and, if any, a port that is a number")
    if parts[0].scheme == "sentinel" and not text(master):
        raise BadEnvironment(f"{name} names Sentinels: {master} must name the master that they know, such as mymaster")
    return url


def secret(name: str, file: Path) -> str:
    """Return a secret from the variable, else from `file`, which an embedded installation creates (mode 0600).

    Processes on several machines would each make one of their own and not understand each other: they raise
    BadEnvironment.
    """
    if value := _read(name):
        return value
    if not file.exists():
        if not flag("SETPOINT_EMBEDDED", default=True):
            raise BadEnvironment(f"{name} (or {name}_FILE) must be set, the same for every process: docs/operating.md")
        file.parent.mkdir(parents=True, exist_ok=True)
        # Linked into place whole: of two processes starting at once, both must read the same complete secret.
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")  # mkstemp gives mode 0600
        try:
            with os.fdopen(handle, "w") as out:
                out.write(secrets.token_urlsafe(48))
            os.link(temporary, file)
        except FileExistsError:
            pass
        finally:
            os.unlink(temporary)
    return file.read_text().strip()
