from __future__ import annotations

from datetime import datetime
from uuid import uuid4

import pytest
from django.db import transaction
from django.utils.timezone import now

from audit.models import AppendOnly, Record
from audit.services import MASK, record
from clusters.models import Cluster
from common.requests import working_on
from tests.factories import TokenClient, UserFactory

pytestmark = pytest.mark.django_db


def note(**more):
    return record(**{"by": None, "action": "plan.approve", "target": "plan:1"} | more)


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.save(),
        lambda r: r.delete(),
        lambda r: Record.objects.update(message="x"),
        lambda r: Record.objects.all().delete(),
        lambda r: Record.objects.bulk_update([r], ["message"]),
        lambda r: Record.objects.update_or_create(pk=r.pk, defaults={"message": "x"}),
    ],
)
def test_a_record_is_never_changed_or_deleted(change) -> None:
    written = note(message="as it was")
    with pytest.raises(AppendOnly):
        change(written)
    assert Record.objects.get().message == "as it was"


def test_a_change_that_is_undone_leaves_no_record() -> None:
    with transaction.atomic():
        note()
        transaction.set_rollback(True)
    assert not Record.objects.exists()


def test_a_record_names_person_token_and_request() -> None:
    user = UserFactory()
    user.acting_token = TokenClient(user).token
    with working_on("request-12345"):
        written = note(by=user)
    assert written.actor == f"{user.email} (token test, sp_{user.acting_token.pk})"
    assert written.request_id == "request-12345"
    assert note(by=None).actor == "system"
    assert note(by="command line").actor == "command line"


def test_secrets_are_masked_by_their_key_however_deep() -> None:
    after = {
        "password": "p1", "kubeconfig": "p2", "client-key": "p3", "list": [{"api_key": "p4", "bearerToken": "p5"}],
        "credential": {"x": "p6"}, "Authorization": "p7", "empty_secret": "", "key": "vm.swappiness", "value": "10",
        "token_id": "kept", "credential_set_at": "kept",
    }  # fmt: skip
    written = Record.objects.get(pk=note(before=after, after=after).pk)
    for stored in (written.before, written.after):
        assert not any(f"p{n}" in str(stored) for n in range(1, 8))
        assert stored["password"] == stored["list"][0]["bearerToken"] == MASK
        assert (stored["key"], stored["value"], stored["token_id"]) == ("vm.swappiness", "10", "kept")


def test_whatever_it_tells_of_a_record_can_be_stored() -> None:
    odd = {"at": datetime(2026, 1, 1), "id": uuid4(), "nul": "a\x00b", "half": "\ud800", "inf": float("inf")}
    written = note(target_name="x" * 500 + "\x00", message="y" * 10_000, by="z" * 300, after=odd)
    written = Record.objects.get(pk=written.pk)
    assert (len(written.target_name), len(written.actor), len(written.message)) == (200, 200, 4000)
    assert "\x00" not in str(written.after)


def listed(user, **query):
    answer = TokenClient(user).get("/api/v1/audit", query)
    assert answer.status_code == 200, answer.json()
    return {row["message"] for row in answer.json()["results"] if row["message"]}


def test_one_sees_what_happened_in_ones_clusters_to_profiles_and_by_oneself() -> None:
    mine, other = (
        Cluster.objects.create(uid=e, name=e, environment=e, server="https://x", credential=b"")
        for e in ("staging", "production")
    )
    user = UserFactory(email="ann@example.com", roles=["viewer@env:staging"])
    note(message="my cluster", cluster_id=mine.pk)
    note(message="their cluster", cluster_id=other.pk)
    note(message="a profile", target="profile:1", action="profile.publish")
    note(message="a person", target="user:7", action="role.grant")
    note(message="by me", target="user:7", by=user)
    note(message="by me in spirit", target="user:7", by="ann@example.community")
    assert listed(user) == {"my cluster", "a profile", "by me"}
    assert listed(UserFactory(roles=["viewer@env:development"])) == {"a profile"}
    assert TokenClient(UserFactory()).get("/api/v1/audit").status_code == 403
    assert len(listed(UserFactory(roles=["viewer"]))) == 6


def test_filters_narrow_and_wrong_ones_are_refused_by_name() -> None:
    boss, cluster = UserFactory(roles=["viewer"]), uuid4()
    with working_on("request-abc"):
        note(message="a", by="ann@example.com", cluster_id=cluster, target_name="P-218")
    note(message="b", by="bob@example.com", action="rollout.start", target="rollout:2")
    for query, wanted in (
        ({"actor": "ANN"}, {"a"}),
        ({"action": "rollout."}, {"b"}),
        ({"target": "rollout"}, {"b"}),
        ({"target": "p-218"}, {"a"}),
        ({"cluster": str(cluster)}, {"a"}),
        ({"request_id": "request-abc"}, {"a"}),
        ({"since": now().isoformat()}, set()),
        ({"until": now().isoformat()}, {"a", "b"}),
    ):
        assert listed(boss, **query) == wanted, query
    for query in ({"cluster": "x"}, {"since": "yesterday"}, {"actor": "x" * 300}):
        answer = TokenClient(boss).get("/api/v1/audit", query)
        assert answer.status_code == 400
        assert [e["field"] for e in answer.json()["errors"]] == list(query)
