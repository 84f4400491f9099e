"""Pages of plans and rollouts as a person sees them, for tests."""

from __future__ import annotations

import re

from django.test import Client

from accounts.models import User

FORM = {
    "canary": "1", "batch": "25%", "budget": "0", "max_in_flight": "300", "max_failures": "0", "soak_seconds": "0",
    "drain_timeout_seconds": "1800", "step_deadline_seconds": "900", "reboot_deadline_seconds": "2700",
    "order": "idle-first", "on_failure": "stop",
}  # fmt: skip


def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def page(user: User, path: str, status: int = 200) -> str:
    answer = browser(user).get(path)
    assert answer.status_code == status, (path, answer.status_code)
    return answer.content.decode()


def text_of(html: str) -> str:
    main = html[html.index("<main") :] if "<main" in html else html
    return " ".join(re.sub(r"<[^>]*>", " ", main).split())


def button(html: str, label: str) -> str:
    """The whole tag of the button that says so."""
    buttons = re.findall(
        rf"<button[^>]*>(?:(?!</button>).)*{re.escape(label)}(?:(?!</button>).)*</button>", html, re.DOTALL
    )
    assert len(buttons) == 1, (label, buttons)
    return str(buttons[0])


def is_disabled(html: str, label: str) -> bool:
    return "aria-disabled" in button(html, label)
