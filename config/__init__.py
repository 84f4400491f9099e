"""Settings, addresses, Celery, errors as answers, the embedded server, the demo and the commands."""

from config.celery import app as celery_app

__all__ = ["celery_app"]
