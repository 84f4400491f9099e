"""Provenance of an image, as a predicate of SLSA 1.0, which `cosign attest` signs with the image's digest."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tools.release.errors import ReleaseRefused

NEEDS = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_SHA", "GITHUB_REF", "GITHUB_WORKFLOW_REF", "GITHUB_RUN_ID",
         "GITHUB_RUN_ATTEMPT")  # fmt: skip
TYPE = "https://actions.github.io/buildtypes/workflow/v1"


def predicate(env: Mapping[str, str], base: str) -> str:
    """Return the predicate of a build on GitHub. Raises ReleaseRefused elsewhere, where no platform vouches."""
    if missing := [name for name in NEEDS if not env.get(name)]:
        raise ReleaseRefused(f"Provenance is written by the release workflow alone; missing: {', '.join(missing)}.")
    repository = f"{env['GITHUB_SERVER_URL']}/{env['GITHUB_REPOSITORY']}"
    workflow, _, ref = env["GITHUB_WORKFLOW_REF"].partition("@")
    image, _, digest = base.partition("@sha256:")
    value = {
        "buildDefinition": {
            "buildType": TYPE,
            "externalParameters": {
                "workflow": {"ref": ref, "repository": repository, "path": workflow.split("/", 2)[-1]}
            },
            "resolvedDependencies": [
                {"uri": f"git+{repository}@{env['GITHUB_REF']}", "digest": {"gitCommit": env["GITHUB_SHA"]}},
                {"uri": f"docker://{image}", "digest": {"sha256": digest}},
            ],
        },
        "runDetails": {
            "builder": {"id": f"{env['GITHUB_SERVER_URL']}/{env['GITHUB_WORKFLOW_REF']}"},
            "metadata": {
                "invocationId": f"{repository}/actions/runs/{env['GITHUB_RUN_ID']}/attempts/{env['GITHUB_RUN_ATTEMPT']}"
            },
        },
    }
    return json.dumps(value, indent=1, sort_keys=True) + "\n"
