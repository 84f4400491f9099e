from __future__ import annotations

from celery import shared_task

from accounts.access import enrollment, login, repeats, sessions, tokens
from accounts.passkeys import challenges
from accounts.people import pending, telling
from accounts.workloads import exchange


@shared_task(name="accounts.tasks.forget_old", ignore_result=True)
def forget_old() -> None:
    """Delete outdated rows; beat runs it every 10 minutes. Deliver me twice, nothing breaks."""
    repeats.forget_old()
    login.forget_old()
    sessions.forget_old()
    enrollment.forget_old()
    tokens.forget_old()
    challenges.forget_old()
    exchange.forget_old()


@shared_task(name="accounts.tasks.pending", ignore_result=True)
def pending_changes() -> None:
    """Beat, every 20 s: ends what got no consent in time, and tells administrators by mail what waits."""
    pending.expire()
    telling.send()
