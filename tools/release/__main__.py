"""Commands of the release workflow, and of people before it: `python -m tools.release COMMAND`.

`check TAG` and `notes VERSION` need nothing but the checkout; `images` needs root and buildah, and `sbom` reads what it
made.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tools.release import deployables, images, notes, provenance, versions
from tools.release.errors import ReleaseRefused
from tools.release.layout import Layout

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> None:
    given = _parser().parse_args(arguments)
    try:
        given.command(given)
    except ReleaseRefused as error:
        sys.exit(f"tools.release: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    check = commands.add_parser("check", help="whether a tag is this checkout's version, everywhere, with notes")
    check.add_argument("tag")
    check.set_defaults(command=_check)

    of_version = commands.add_parser("notes", help="a version's release notes, from CHANGELOG.md")
    of_version.add_argument("version")
    of_version.set_defaults(command=_notes)

    build = commands.add_parser("images", help="build the images of the commit, and their bills of materials")
    build.add_argument("--to", type=Path, required=True, help="an empty folder")
    build.add_argument("--source", default="", help="the repository's address, for the label")
    build.set_defaults(command=_images)

    sbom = commands.add_parser("sbom", help="the bill of materials of one image, as CycloneDX 1.6")
    sbom.add_argument("layout", type=Path, help="the folder of an OCI layout, such as var/release/setpoint-server")
    sbom.set_defaults(command=lambda given: print(bill(given.layout), end=""))

    digest = commands.add_parser("digest", help="the digest of an image, by which a registry names it")
    digest.add_argument("layout", type=Path)
    digest.set_defaults(command=lambda given: print(Layout.opened(given.layout).digest))

    applied = commands.add_parser("deployables", help="the chart and the manifests, with the images by digest")
    applied.add_argument("folder", type=Path, help="what `images` wrote to, and what this writes to")
    applied.add_argument("--registry", required=True, help="registry and path that the images are pushed to")
    applied.set_defaults(command=_deployables)

    of_build = commands.add_parser("provenance", help="the SLSA predicate of this run of the release workflow")
    of_build.set_defaults(command=lambda _: print(provenance.predicate(os.environ, images.base(ROOT)), end=""))
    return parser


def _check(given: argparse.Namespace) -> None:
    print(versions.of_tag(ROOT, given.tag))


def _notes(given: argparse.Namespace) -> None:
    print(notes.of_version((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), given.version), end="")


def _images(given: argparse.Namespace) -> None:
    """Prints name, digest: what a registry will name each image by."""
    given.to.mkdir(parents=True, exist_ok=True)
    for layout in images.build(ROOT, given.to, versions.stated(ROOT), source=given.source):
        target = given.to / f"{layout.folder.name}.cdx.json"
        target.write_text(bill(layout.folder), encoding="utf-8")
        print(layout.folder.name, layout.digest)


def _deployables(given: argparse.Namespace) -> None:
    for path in deployables.write(ROOT, given.folder, given.registry):
        print(path)


def bill(folder: Path) -> str:
    """Return the bill of materials of a layout, whose folder has the image's name."""
    from tools.release import packages, sbom  # the other commands run without what these need

    layout = Layout.opened(folder)
    return sbom.document(folder.name, versions.stated(ROOT), packages.inventory(layout, ROOT))


if __name__ == "__main__":
    main()
