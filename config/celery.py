"""The Celery application. Tasks take ids and do one short slice; the beat schedule is the safety net, not the engine."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("setpoint")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
