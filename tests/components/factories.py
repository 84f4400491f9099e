"""Factories of the rows that components are made from, and small charts as archives."""

from __future__ import annotations

import factory

from components.models import ClusterValues, Repository
from tests.clusters.factories import ClusterFactory


class RepositoryFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Repository

    name = factory.Sequence("repository-{}".format)
    url = factory.Sequence("https://charts-{}.example/stable".format)


class ClusterValuesFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = ClusterValues

    cluster = factory.SubFactory(ClusterFactory)
    component = "volcano"
