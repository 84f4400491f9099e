from __future__ import annotations

import stat
from pathlib import Path
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet

from clusters.connection import encryption, registry
from tests.clusters.factories import ClusterFactory

OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()


def test_what_was_sealed_opens_again_and_is_not_readable_meanwhile(settings):
    settings.SETPOINT_CREDENTIAL_KEYS = [OLD]
    cluster = uuid4()

    sealed = encryption.seal(cluster, "credential", "s3cret-t0ken")

    assert b"s3cret" not in sealed.data
    assert encryption.unseal(cluster, "credential", sealed) == "s3cret-t0ken"


def test_a_missing_key_is_named_and_so_are_those_there(settings):
    settings.SETPOINT_CREDENTIAL_KEYS = [OLD]
    cluster = uuid4()
    sealed = encryption.seal(cluster, "credential", "x")
    settings.SETPOINT_CREDENTIAL_KEYS = [NEW]

    with pytest.raises(encryption.CannotOpen) as caught:
        encryption.unseal(cluster, "credential", sealed)

    assert encryption.fingerprint(OLD) in str(caught.value)
    assert encryption.fingerprint(NEW) in str(caught.value)


def test_a_ciphertext_moved_to_another_row_or_field_does_not_open(settings):
    settings.SETPOINT_CREDENTIAL_KEYS = [OLD]
    cluster = uuid4()
    sealed = encryption.seal(cluster, "credential", "x")

    with pytest.raises(encryption.CannotOpen, match="another cluster"):
        encryption.unseal(uuid4(), "credential", sealed)
    with pytest.raises(encryption.CannotOpen):
        encryption.unseal(cluster, "password", sealed)


def test_a_changed_ciphertext_does_not_open(settings):
    settings.SETPOINT_CREDENTIAL_KEYS = [OLD]
    cluster = uuid4()
    sealed = encryption.seal(cluster, "credential", "x")
    broken = encryption.Sealed(sealed.data[:-4] + b"AAA=", sealed.key)

    with pytest.raises(encryption.CannotOpen, match="changed"):
        encryption.unseal(cluster, "credential", broken)


def test_the_newest_key_seals_and_older_ones_still_open(settings):
    settings.SETPOINT_CREDENTIAL_KEYS = [OLD]
    cluster = uuid4()
    before = encryption.seal(cluster, "credential", "x")
    settings.SETPOINT_CREDENTIAL_KEYS = [NEW, OLD]

    after = encryption.seal(cluster, "credential", "x")

    assert encryption.unseal(cluster, "credential", before) == "x"
    assert (encryption.is_newest(before), encryption.is_newest(after)) == (False, True)


@pytest.mark.parametrize("bad", ["short", "x" * 44, "ключ"])
def test_something_that_is_no_key_is_said_to_be_none(settings, bad):
    settings.SETPOINT_CREDENTIAL_KEYS = [OLD, bad]

    with pytest.raises(encryption.KeyUnusable, match="entry 2"):
        encryption.seal(uuid4(), "credential", "x")


def test_an_embedded_installation_makes_its_key_once_for_its_eyes_only(settings, tmp_path):
    settings.SETPOINT_CREDENTIAL_KEYS, settings.EMBEDDED, settings.VAR = [], True, tmp_path
    cluster = uuid4()

    sealed = encryption.seal(cluster, "credential", "x")

    files = list(Path(tmp_path).iterdir())
    assert [stat.S_IMODE(f.stat().st_mode) for f in files] == [0o600]
    assert encryption.unseal(cluster, "credential", sealed) == "x"


def test_production_without_a_key_refuses_instead_of_making_one_up(settings, tmp_path):
    settings.SETPOINT_CREDENTIAL_KEYS, settings.EMBEDDED, settings.VAR = [], False, tmp_path

    with pytest.raises(encryption.KeyUnusable, match="SETPOINT_CREDENTIAL_KEYS"):
        encryption.seal(uuid4(), "credential", "x")
    assert not list(Path(tmp_path).iterdir())


@pytest.mark.django_db
def test_a_credential_that_does_not_open_is_a_refusal_naming_the_cluster(settings):
    settings.SETPOINT_CREDENTIAL_KEYS = [OLD]
    cluster = ClusterFactory()
    settings.SETPOINT_CREDENTIAL_KEYS = [NEW]

    with pytest.raises(registry.CredentialUnreadable, match=cluster.name):
        registry.connect(cluster)
