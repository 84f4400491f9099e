from __future__ import annotations

from celery import shared_task

from accounts import login, repeats, sessions


@shared_task(name="accounts.tasks.forget_old", ignore_result=True)
def forget_old() -> None:
    """Beat, every 10 minutes: rows that nobody asks for any more. Deliver me twice, nothing breaks."""
    repeats.forget_old()
    login.forget_old()
    sessions.forget_old()
