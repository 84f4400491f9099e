"""Settings, addresses, Celery, errors as answers, the embedded server, the demo and the commands."""

from config import memory

memory.load()

from config.celery import app as celery_app  # noqa: E402  what `load` comes before

__all__ = ["celery_app"]
