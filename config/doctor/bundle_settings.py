"""The settings that a support bundle shows: an allow-list of numbers, switches and words; of others, whether it is set.

Every variable that the product reads is in one of the lists; a test asks for it. What is in none is not shown.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from django.conf import settings

NUMBERS = {
    "SETPOINT_EMBEDDED": "EMBEDDED", "SETPOINT_DEBUG": "DEBUG", "SETPOINT_MAIL_PORT": "EMAIL_PORT",
    **{name: name for name in (
        "SETPOINT_PROXIES", "SETPOINT_WORKER_THREADS", "SETPOINT_WEB_THREADS", "SETPOINT_STEP_UP_MINUTES",
        "SETPOINT_CALL_TIMEOUT_SECONDS", "SETPOINT_LEASE_SECONDS", "SETPOINT_SWEEP_SECONDS", "SETPOINT_FRESH_SECONDS",
        "SETPOINT_PLAN_FRESH_SECONDS", "SETPOINT_PLAN_EXPIRY_HOURS", "SETPOINT_REMIND_HOURS", "SETPOINT_REVERT_DAYS",
        "SETPOINT_PARALLEL_CALLS", "SETPOINT_HELM_SECONDS", "SETPOINT_READY_SECONDS", "SETPOINT_WAIT_HOURS",
        "SETPOINT_AGENT_SILENT_SECONDS", "SETPOINT_COMPLIANCE_HISTORY_DAYS", "SETPOINT_GPU_SECONDS",
        "SETPOINT_GPU_BUCKET_DAYS", "SETPOINT_GPU_HOUR_DAYS", "SETPOINT_GPU_BAND_DAYS", "SETPOINT_GPU_IDLE_MINUTES",
        "SETPOINT_STUDY_HOURS", "SETPOINT_STUDY_SETTLE_MINUTES", "SETPOINT_ALERT_SECONDS", "SETPOINT_ALERT_DAYS",
        "SETPOINT_DELIVERY_DAYS", "SETPOINT_BREAK_GLASS_HOURS", "SETPOINT_BREAK_GLASS_REVIEW_HOURS",
        "SETPOINT_BREAK_GLASS_PER_DAY",
    )},
}  # fmt: skip
"""Variable → the setting with its value, which is a number or a switch."""
WORDS = {
    "SETPOINT_LOG_LEVEL": ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
    "SETPOINT_LOG_FORMAT": ("json", "console"),
    "SETPOINT_MAIL_SECURITY": ("starttls", "tls", "none"),
    "SETPOINT_DATABASE_POOLER": ("none", "transaction"),
}
"""Variable → the words that it may be; anything else is not shown."""
COUNTED = {
    "SETPOINT_HOSTS": "ALLOWED_HOSTS", "SETPOINT_TRUSTED_ORIGINS": "CSRF_TRUSTED_ORIGINS",
    "SETPOINT_ALLOW_NETWORKS": "SETPOINT_ALLOW_NETWORKS", "SETPOINT_OIDC_PROVIDERS": "SETPOINT_OIDC",
    "SETPOINT_SAML_PROVIDERS": "SETPOINT_SAML",
    "SETPOINT_LOCAL_ACCOUNTS": "SETPOINT_LOCAL_ACCOUNTS", "SETPOINT_SECOND_FACTOR": "SETPOINT_SECOND_FACTOR",
    "SETPOINT_CREDENTIAL_KEYS": "SETPOINT_CREDENTIAL_KEYS", "SETPOINT_GPU_PRICES": "SETPOINT_GPU_PRICES",
    "SETPOINT_HELM_CREDENTIAL_KEYS": "SETPOINT_HELM_CREDENTIAL_KEYS",
    "SETPOINT_AUDIT_FORWARD": "SETPOINT_AUDIT_FORWARD", "SETPOINT_GPU_STEP_METRICS": "SETPOINT_GPU_STEP_METRICS",
}  # fmt: skip
"""Variable → the setting with its list, of which the length is shown."""
PRESENT = (
    "SETPOINT_VAR", "SETPOINT_URL", "SETPOINT_DATABASE_URL", "SETPOINT_APPLICATION_DATABASE_URL", "SETPOINT_BROKER_URL",
    "SETPOINT_BROKER_MASTER", "SETPOINT_METRICS_TOKEN", "SETPOINT_ADMIN_EMAIL", "SETPOINT_ADMIN_PASSWORD",
    "SETPOINT_SECRET_KEY", "SETPOINT_TOKEN_PEPPER", "SETPOINT_AUDIT_KEY", "SETPOINT_AUDIT_HEADS_FILE",
    "SETPOINT_AUDIT_HEADS_SYSLOG", "SETPOINT_AUDIT_HEADS_WEBHOOK", "SETPOINT_STEP_UP", "SETPOINT_INSTALLATION",
    "SETPOINT_HELM", "SETPOINT_GPU_CURRENCY", "SETPOINT_MAIL_HOST", "SETPOINT_MAIL_USER", "SETPOINT_MAIL_PASSWORD",
    "SETPOINT_MAIL_FROM", "SETPOINT_BREAK_GLASS_CLASS", "SETPOINT_STANDBY_ALIVE",
    "SETPOINT_POWER_NETWORKS",
)  # fmt: skip
"""Variables of which only is shown whether the environment has them."""
SCHEMES = ("redis", "rediss", "sentinel", "memory", "amqp")
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
SHORTEST_SECRET = 6
"""Characters: what is shorter, such as `none`, is in ordinary words, and protects nothing."""


def shown() -> dict[str, Any]:
    """Return what may be shown of the settings."""
    numbers = {name: getattr(settings, attribute) for name, attribute in NUMBERS.items()}
    return {
        "numbers": {name: value for name, value in numbers.items() if isinstance(value, (bool, int, float))},
        "words": {name: word for name, among in WORDS.items() if (word := os.environ.get(name, "").strip()) in among},
        "counts": {name: len(getattr(settings, attribute)) for name, attribute in COUNTED.items()},
        "set": {name: name in os.environ or f"{name}_FILE" in os.environ for name in PRESENT},
        "https": bool(settings.IS_HTTPS),
        "database": _database(settings.DATABASES["default"]),
        "broker": _word(urlsplit(settings.CELERY_BROKER_URL).scheme, SCHEMES),
        "has_broker": bool(settings.SETPOINT_HAS_BROKER),
    }


def _database(of: dict[str, Any]) -> dict[str, Any]:
    return {
        "engine": _word(str(of["ENGINE"]).rpartition(".")[2], ("postgresql", "sqlite3")),
        "hosts": len([host for host in str(of.get("HOST") or "").split(",") if host]),
        "sslmode": _word(str(of.get("OPTIONS", {}).get("sslmode", "")), SSL_MODES),
        "pooled": bool(of.get("DISABLE_SERVER_SIDE_CURSORS")),
    }


def _word(value: str, among: tuple[str, ...]) -> str:
    return value if value in among else "other" if value else ""


# ── What must not be in it ────────────────────────────────────────────────────────────────────────────────────────────
def secrets() -> Iterator[tuple[str, str]]:
    """Yield (name, value) of each secret that this process was given, to look for it in what was written."""
    for name, value in _given():
        if len(value) >= SHORTEST_SECRET:
            yield name, value


def _given() -> Iterator[tuple[str, str]]:
    for name in ("SECRET_KEY", "SETPOINT_TOKEN_PEPPER", "SETPOINT_AUDIT_KEY", "SETPOINT_METRICS_TOKEN"):
        yield name, str(getattr(settings, name))
    yield "SETPOINT_MAIL_PASSWORD", str(settings.EMAIL_HOST_PASSWORD)
    yield "SETPOINT_ADMIN_PASSWORD", os.environ.get("SETPOINT_ADMIN_PASSWORD", "")
    for name in ("SETPOINT_CREDENTIAL_KEYS", "SETPOINT_HELM_CREDENTIAL_KEYS"):
        yield from ((name, str(key)) for key in getattr(settings, name))
    for file in sorted(Path(settings.VAR).glob("*.key")):
        yield file.name, file.read_text(encoding="utf-8", errors="replace").strip()
    for database in (*settings.DATABASES.values(), settings.SETPOINT_APPLICATION_DATABASE):
        yield "SETPOINT_DATABASE_URL", str(database.get("PASSWORD") or "")
        yield "SETPOINT_DATABASE_URL", str(database.get("OPTIONS", {}).get("sslpassword") or "")
    for url in str(settings.CELERY_BROKER_URL).split(";"):
        yield "SETPOINT_BROKER_URL", unquote(urlsplit(url).password or "")
    webhook = urlsplit(str(settings.SETPOINT_AUDIT_HEADS_WEBHOOK))
    yield from (("SETPOINT_AUDIT_HEADS_WEBHOOK", part) for part in (webhook.path.strip("/"), webhook.query))
    for name, value in os.environ.items():
        if name.lower().endswith("_proxy") and (password := urlsplit(value).password):
            yield name, unquote(password)
    yield from ((f"SETPOINT_OIDC_{row.key.upper()}_CLIENT_SECRET", row.client_secret) for row in settings.SETPOINT_OIDC)


def forms(secret: str) -> set[bytes]:
    """Return the byte strings that show a secret: as it is, in JSON, in a URL, in hex, and inside any base64 text."""
    raw = secret.encode()
    out = {raw, quote(secret, safe="").encode(), quote(secret).encode(), raw.hex().encode()}
    out |= {json.dumps(secret, ensure_ascii=ascii)[1:-1].encode() for ascii in (True, False)}
    for offset in range(
        3
    ):  # of its first byte in a group of three; what groups at the ends share with others is cut off
        encoded = base64.b64encode(b"\0" * offset + raw)
        inside = encoded[(0, 2, 3)[offset] : len(encoded) - (0, 3, 2)[(offset + len(raw)) % 3] or None]
        out |= {inside, inside.replace(b"+", b"-").replace(b"/", b"_")}
    return out
