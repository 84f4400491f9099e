"""OpenShift's Tuned object: TuneD's text in `spec.profile[].data`."""

from __future__ import annotations

from profiles.imports import tuned
from profiles.imports.draft import ImportedDraft
from profiles.imports.manifest import Manifest

KINDS = (("tuned.openshift.io", "Tuned"),)


def read(text: str) -> ImportedDraft:
    """Return the draft of the object's first profile. Raises Invalid."""
    manifest = Manifest(text, KINDS)
    manifest.name_rest(("spec",), {"profile"}, "which nodes have it is the target of a pool in Setpoint")
    for number, item in enumerate(manifest.items("spec", "profile")):
        path = ("spec", "profile", number)
        if not isinstance(item, dict) or not isinstance(item.get("data"), str):
            manifest.refuse(path, "must be a mapping with name and data, which is text")
        elif number:
            manifest.builder.refuse(
                manifest.line(*path),
                f"spec.profile[{number}].name: {item.get('name')}",
                "a draft is of one profile, the first; import the others by themselves",
            )
        else:
            manifest.name_rest(path, {"name", "data"}, "is no field of a profile that Setpoint knows")
            tuned.take(item["data"], manifest.builder, manifest.line_of(*path, "data"))
    return manifest.builder.finish()
