"""Logs: one JSON object a line (or a readable line, with SETPOINT_LOG_FORMAT=console), always with the request id."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any

import structlog

from common.requests import request_id

_SECRET_WORDS = ("password", "secret", "authorization", "token", "kubeconfig", "credential")
_SECRETS = re.compile(r"(/link/|[?&]token=|sp_[a-z0-9]{12}\.)[A-Za-z0-9_-]{8,}")
"""Links to set a password, set-up tokens and API tokens, anywhere in a text: readers of logs do not own them."""
Event = MutableMapping[str, Any]


def add_request_id(_logger: Any, _method: str, event: Event) -> Event:
    if identifier := request_id():
        event.setdefault("request_id", identifier)
    return event


def mask_secrets(_logger: Any, _method: str, event: Event) -> Event:
    """The last line of defense; nothing should log such a value in the first place."""
    for name, value in event.items():
        if name != "event" and any(word in name.lower() for word in _SECRET_WORDS):
            event[name] = "••••••"
        elif isinstance(value, str):
            event[name] = _SECRETS.sub(r"\1••••••", value)
    return event


SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    add_request_id,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    mask_secrets,
]


def configuration(level: str, style: str) -> dict[str, Any]:
    """Django's LOGGING. `style` is json or console; everything goes to standard error."""
    renderer: list[Any] = (
        # Plain: the other formatters print the variables of each frame, passwords among them.
        [mask_secrets, structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)]
        if style == "console"
        else [
            structlog.processors.format_exc_info,
            mask_secrets,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ]
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *SHARED,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "lines": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": SHARED,
                "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "lines"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django": {"handlers": [], "level": "INFO", "propagate": True},
            # One line a request is config.middleware's; runserver's and Django's "Not Found" would be a second one.
            "django.server": {"handlers": [], "level": "ERROR", "propagate": True},
            "django.request": {"level": "ERROR"},
            "celery": {"level": "WARNING"},
            "kombu": {"level": "WARNING"},
            "waitress": {"level": "WARNING"},
            "fido2": {"level": "WARNING"},  # each use of a passkey; the audit record has it, with its person
            "signxml": {"level": "WARNING"},  # at DEBUG, what was signed, word for word
            # It warns of each request that waits for a thread: a browser's first page asks for ten files at once.
            "waitress.queue": {"level": "ERROR"},
        },
    }
