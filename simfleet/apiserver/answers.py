"""The simulated API server's answers in the fleet port's terms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clusters import fleet
from simfleet.apiserver.faults import Impostor, Outage
from simfleet.apiserver.resources import RESOURCES
from simfleet.apiserver.store import ApiError, Raw, Stored


@contextmanager
def translated() -> Iterator[None]:
    """Turn ApiError and Outage into FleetErrors, as `clusters.kube.apiserver` does with statuses and sockets."""
    try:
        yield
    except Impostor as error:
        raise fleet.WrongCertificate(str(error)) from error
    except Outage as error:
        raise fleet.FleetUnavailable(str(error)) from error
    except ApiError as error:
        raise refusal(error) from error


def refusal(error: ApiError) -> fleet.FleetError:
    if error.code == 429:
        return fleet.Throttled(error.message, float(error.retry_after or 1))
    if error.code == 401:
        return fleet.CredentialsRefused(error.message)
    if error.code >= 500:
        return fleet.FleetUnavailable(error.message)
    refusals: dict[int, type[fleet.FleetRefused]] = {
        403: fleet.Forbidden,
        404: fleet.NotFound,
        409: fleet.Conflict,
        410: fleet.Gone,
    }
    return refusals.get(error.code, fleet.FleetRefused)(error.message)


def named(plural: str, stored: Stored) -> Raw:
    """An object as a single GET shows it: with kind and apiVersion."""
    return {"kind": RESOURCES[plural].kind, "apiVersion": RESOURCES[plural].api_version} | stored.copy()


def listed(plural: str, stored: Stored) -> Raw:
    """Built-in objects carry no kind inside a list, custom ones do."""
    return trimmed(named(plural, stored) if RESOURCES[plural].custom else stored.copy())


def trimmed(raw: Raw) -> Raw:
    """Remove field ownership and images, which the port's lists and watches omit."""
    raw["metadata"].pop("managedFields", None)
    if isinstance(status := raw.get("status"), dict):
        status.pop("images", None)
    return raw
