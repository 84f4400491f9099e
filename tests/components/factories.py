"""Factories of the rows that components are made from, and small charts as archives."""

from __future__ import annotations

import factory

from components.models import ClusterValues, Repository, SiteEntry
from tests.clusters.factories import ClusterFactory
from tests.components.packing import entry


class RepositoryFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Repository

    name = factory.Sequence("repository-{}".format)
    url = factory.Sequence("https://charts-{}.example/stable".format)


class SiteEntryFactory(factory.django.DjangoModelFactory):
    """The entry `tool`, untested, written by no person of the test."""

    class Meta:
        model = SiteEntry

    name = "tool"
    text = factory.LazyAttribute(lambda row: entry(row.name, "1.0.0", workload=f"Deployment/{row.name}"))
    sha256 = factory.LazyAttribute(lambda row: SiteEntry.sha256_of(row.text))


class ClusterValuesFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = ClusterValues

    cluster = factory.SubFactory(ClusterFactory)
    component = "volcano"
