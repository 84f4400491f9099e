from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from clusters.connection.encryption import CannotOpen
from components.models import Archive, Repository
from tests.components.factories import ClusterValuesFactory, RepositoryFactory

pytestmark = pytest.mark.django_db


def test_a_password_is_stored_sealed_and_opens_again():
    repository = RepositoryFactory(username="robot")
    repository.set_secret("hunter2-öäü")
    repository.save()

    stored = Repository.objects.get(pk=repository.pk)

    assert b"hunter2" not in bytes(stored.password)
    assert stored.open_secret() == "hunter2-öäü"


def test_a_password_copied_into_another_repository_does_not_open_there():
    theirs = RepositoryFactory()
    theirs.set_secret("hunter2")
    mine = RepositoryFactory(password=theirs.password, password_key=theirs.password_key)

    with pytest.raises(CannotOpen):
        mine.open_secret()


def test_a_repository_without_a_password_opens_to_nothing():
    repository = RepositoryFactory()
    repository.set_secret("")
    assert (repository.password, repository.password_key, repository.open_secret()) == (b"", "", "")


def test_a_repository_is_mirrored_once_and_any_number_mirror_nothing():
    RepositoryFactory()
    RepositoryFactory()
    RepositoryFactory(stands_for="https://helm.cilium.io")
    with pytest.raises(IntegrityError), transaction.atomic():
        RepositoryFactory(stands_for="https://helm.cilium.io")


def test_a_cluster_has_one_set_of_values_for_a_component():
    first = ClusterValuesFactory()
    ClusterValuesFactory(component="cilium", cluster=first.cluster)
    with pytest.raises(IntegrityError), transaction.atomic():
        ClusterValuesFactory(component="volcano", cluster=first.cluster)


def test_a_stored_archive_cannot_be_changed():
    archive = Archive.objects.create(
        sha256="0" * 64, name="a", version="1.0.0", size=1, content=b"x", origin="uploaded"
    )
    archive.origin = "elsewhere"
    with pytest.raises(TypeError, match="immutable"):
        archive.save()
