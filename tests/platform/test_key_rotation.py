"""Key rotation: after `rotate_credentials` no room's stored secrets need the older keys, so they can be removed."""

from __future__ import annotations

import pytest
from cryptography.fernet import Fernet
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import models

from accounts.access import factors
from accounts.models import SecondFactor
from audit.models import Record
from clusters.connection import encryption, registry
from clusters.models import Cluster
from common import hooks
from gpus.models import TelemetrySource
from jobs.models import TicketConnection
from notices.models import Channel
from tests.clusters.factories import ClusterFactory
from tests.components.factories import RepositoryFactory
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db


def sealed_columns() -> set[tuple[str, str, str]]:
    """(model, ciphertext, key) of every model, by the columns' names."""
    columns = set()
    for model in apps.get_models():
        names = {field.name for field in model._meta.fields}
        for field in model._meta.fields:
            if isinstance(field, models.BinaryField) and f"{field.name}_key" in names:
                columns.add((model._meta.label, field.name, f"{field.name}_key"))
    return columns


@pytest.fixture
def keys(settings):
    """(old, new), with one secret of each kind sealed with the old one; both are configured."""
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    settings.SETPOINT_CREDENTIAL_KEYS = [old]
    source = TelemetrySource(cluster=ClusterFactory())
    source.set_secret("of telemetry")
    source.save()
    repository = RepositoryFactory()
    repository.set_secret("of a repository")
    repository.save()
    RepositoryFactory()  # without any
    channel = Channel(name="chat")
    channel.set_secret("of a channel")
    channel.save()
    factor = SecondFactor(user=UserFactory())
    factors.seal_key(factor, "of an app")
    factor.save()
    connection = TicketConnection(name="tickets")
    connection.set_secret("whsec_" + "A" * 32)
    connection.save()
    settings.SETPOINT_CREDENTIAL_KEYS = [new, old]
    return old, new


def test_every_sealed_column_is_among_the_stored_secrets(keys):
    stored = {(type(s.row)._meta.label, *s.columns) for s in hooks.stored_secrets()}
    assert stored == sealed_columns()


def test_afterwards_the_newest_key_opens_all(keys, settings):
    before = {s.target: s.row for s in hooks.stored_secrets()}
    set_at = Cluster.objects.get().credential_set_at
    call_command("rotate_credentials")
    settings.SETPOINT_CREDENTIAL_KEYS = keys[:0:-1]
    for secret in hooks.stored_secrets():
        data, key = (getattr(secret.row, column) for column in secret.columns)
        if data:
            assert encryption.unseal(secret.place, secret.field, encryption.Sealed(bytes(data), key))
        if hasattr(secret.row, "version"):  # no editor is asked to reload it
            assert secret.row.version == before[secret.target].version
    assert Cluster.objects.get().credential_set_at == set_at  # so no watch starts again
    assert registry.credentials(Cluster.objects.get()).token == "t0ken"
    assert TelemetrySource.objects.get().open_secret() == "of telemetry"
    assert Channel.objects.get().open_secret() == "of a channel"
    actions = sorted(Record.objects.filter(action__endswith=".reseal").values_list("action", flat=True))
    kinds = ("chart-repository", "cluster", "notice-channel", "second-factor", "telemetry", "ticket-connection")
    assert actions == [f"{kind}.reseal" for kind in kinds]
    factor = SecondFactor.objects.get()
    assert factor.is_genuine
    assert factors.key_of(factor) == "of an app"


def test_a_second_time_there_is_nothing_to_do(keys, capsys):
    call_command("rotate_credentials")
    call_command("rotate_credentials")
    assert capsys.readouterr().out.splitlines()[1].startswith("0 secrets")
    assert Record.objects.filter(action__endswith=".reseal").count() == 6


def test_who_replaces_a_secret_meanwhile_wins(keys, monkeypatch):
    real = encryption.unseal

    def meanwhile(place, field, sealed):
        text = real(place, field, sealed)
        if field == "telemetry":
            source = TelemetrySource.objects.get()
            source.set_secret("replaced")
            source.save()
        return text

    monkeypatch.setattr(encryption, "unseal", meanwhile)
    call_command("rotate_credentials")
    monkeypatch.undo()
    assert TelemetrySource.objects.get().open_secret() == "replaced"


def test_what_does_not_open_is_named_and_the_rest_is_done(keys):
    TelemetrySource.objects.update(secret=b"rubbish")
    cluster = Cluster.objects.get()
    with pytest.raises(CommandError, match=f"telemetry of {cluster.name} cannot be read"):
        call_command("rotate_credentials")
    cluster.refresh_from_db()
    assert cluster.credential_key == encryption.fingerprint(keys[1])
