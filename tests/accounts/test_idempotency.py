from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connections

from accounts.access import repeats
from accounts.models import ApiToken, RepeatableRequest, User
from audit.models import Record
from common.idempotency import KeyInUse
from tests import marks
from tests.factories import TokenClient, UserFactory

WISH = {"email": "new@example.com"}
KEY = {"Idempotency-Key": "k-1"}


def admin() -> TokenClient:
    return TokenClient(UserFactory(roles=["admin"]))


@pytest.mark.django_db
def test_a_request_sent_twice_creates_once_and_is_answered_alike() -> None:
    client = admin()
    first = client.post("/api/v1/users", WISH, headers=KEY)
    again = client.post("/api/v1/users", WISH, headers=KEY)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json() | {"link": None}  # a link is shown once
    assert first.json()["link"]["link"]
    assert again["Location"] == first["Location"]
    assert again["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first
    assert Record.objects.filter(action="user.create").count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize(("path", "wish"), [("/api/v1/users", {"email": "b@example.com"}), ("/api/v1/tokens", WISH)])
def test_a_key_used_for_something_else_is_refused(path: str, wish: dict[str, str]) -> None:
    client = admin()
    client.post("/api/v1/users", WISH, headers=KEY)
    answer = client.post(path, wish, headers=KEY)
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency-key-reused")
    assert not User.objects.filter(email="b@example.com").exists()


@pytest.mark.django_db
def test_a_key_belongs_to_its_user() -> None:
    assert admin().post("/api/v1/users", WISH, headers=KEY).status_code == 201
    assert admin().post("/api/v1/users", {"email": "b@example.com"}, headers=KEY).status_code == 201


@pytest.mark.django_db
def test_a_refused_request_frees_its_key() -> None:
    client = admin()
    assert client.post("/api/v1/users", {"email": "no"}, headers=KEY).status_code == 422
    assert client.post("/api/v1/users", WISH, headers=KEY).status_code == 201


@pytest.mark.django_db
def test_a_key_is_forgotten_after_a_day(clock) -> None:
    client = admin()
    marks.put(ApiToken.objects.all(), expires_at=clock.at + timedelta(days=30))
    client.post("/api/v1/users", WISH, headers=KEY)
    clock.forward(hours=24, seconds=1)
    assert client.post("/api/v1/users", {"email": "b@example.com"}, headers=KEY).status_code == 201
    clock.forward(hours=24, seconds=1)
    assert repeats.forget_old() == 1
    assert not RepeatableRequest.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("key", ["", " ", "x" * 256, "a b", "ä"])
def test_a_key_that_is_none_is_refused(key: str) -> None:
    assert admin().post("/api/v1/users", WISH, headers={"Idempotency-Key": key}).status_code == 422


@pytest.mark.django_db
def test_a_key_held_by_a_killed_process_is_free_again_after_its_hold(clock) -> None:
    user = UserFactory()
    dead = repeats.claim(user=user, key="k", fingerprint="f")
    with pytest.raises(KeyInUse):
        repeats.claim(user=user, key="k", fingerprint="f")
    clock.forward(repeats.HOLD.total_seconds() + 1)
    mine = repeats.claim(user=user, key="k", fingerprint="f")
    dead.finish(status=201, headers={}, body="{}")  # not dead after all: too late, the key is another's
    dead.forget()
    assert RepeatableRequest.objects.get().status is None
    mine.finish(status=201, headers={}, body="{}")
    assert RepeatableRequest.objects.get().status == 201


@pytest.mark.django_db(transaction=True)
def test_of_eight_at_once_one_creates_and_the_others_are_told_to_wait_or_given_its_answer() -> None:
    client = admin()
    barrier, answers = threading.Barrier(8), []

    def submit() -> None:
        barrier.wait()
        answers.append(client.post("/api/v1/users", WISH, headers=KEY))
        connections.close_all()

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert User.objects.filter(email=WISH["email"]).count() == 1
    assert Record.objects.filter(action="user.create").count() == 1
    created = [a for a in answers if a.status_code == 201]
    waiting = [a for a in answers if a.status_code == 409]
    assert len(created) + len(waiting) == 8
    assert sum("Idempotency-Replayed" not in a for a in created) == 1
    assert {a.json()["code"] for a in waiting} <= {"in-progress"}
