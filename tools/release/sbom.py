"""A bill of materials of an image, in CycloneDX 1.6 as JSON. The same image gives the same bytes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from tools.release.errors import ReleaseRefused
from tools.release.packages import Inventory, Package

ALGORITHMS = {"sha256": HashAlgorithm.SHA_256, "sha512": HashAlgorithm.SHA_512}
ARCHIVES = {"pypi": "https://pypi.org/project/{0.name}/{0.version}/", "npm": "https://registry.npmjs.org/{0.name}"}


def document(name: str, version: str, image: Inventory) -> str:
    """Return the document. Raises ReleaseRefused where it does not meet CycloneDX's own schema."""
    root = Component(
        name=name,
        version=version,
        type=ComponentType.CONTAINER,
        bom_ref=f"{name}@{image.digest}",
        purl=PackageURL("oci", None, name, image.digest, {"tag": version}),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=image.digest.partition(":")[2])],
        licenses=[LicenseFactory().make_with_id("Apache-2.0")],
    )
    components = [_component(package) for package in image.packages]
    created = str(image.config["created"])
    bom = Bom(
        components=components,
        serial_number=uuid.uuid5(uuid.NAMESPACE_OID, f"{name}@{image.digest}"),
        metadata=BomMetaData(component=root, timestamp=datetime.fromisoformat(created[:19] + "+00:00")),
    )
    bom.register_dependency(root, components)
    text: str = JsonV1Dot6(bom).output_as_string(indent=1) + "\n"
    if errors := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ReleaseRefused(f"The bill of materials of {name} is not valid CycloneDX 1.6: {errors}")
    return text


def _component(package: Package) -> Component:
    purl = PackageURL.from_string(purl_of(package))
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{purl}{'#' if package.place else ''}{package.place}",
        purl=purl,
        licenses=[LicenseFactory().make_from_string(package.license)] if package.license else (),
        external_references=list(_archives(package)),
        properties=list(_properties(package)),
    )


def purl_of(package: Package) -> str:
    """Return the package's URL, by which scanners look up vulnerabilities."""
    namespace, name, qualifiers = None, package.name, {}
    if package.kind == "deb":
        vendor = package.distribution.partition("-")[0]
        namespace = vendor
        qualifiers = {"arch": package.architecture, "distro": package.distribution}
    elif package.kind == "npm" and name.startswith("@"):
        namespace, _, name = name.partition("/")
    return str(PackageURL(package.kind, namespace, name, package.version, qualifiers))


def _archives(package: Package) -> Iterator[ExternalReference]:
    """Yield where the package came from, with the hashes of the archives that the lock file accepts."""
    if not package.hashes:
        return
    yield ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(ARCHIVES[package.kind].format(package)),
        comment="One of these archives was installed: the lock file accepts no other.",
        hashes=[
            HashType(alg=ALGORITHMS[algorithm], content=value)
            for algorithm, _, value in (text.partition(":") for text in package.hashes)
        ],
    )


def _properties(package: Package) -> Iterator[Property]:
    if package.place:
        yield Property(name="setpoint:folder", value=f"/{package.place}")
    if package.source:
        yield Property(name="setpoint:debian-source", value=package.source)
