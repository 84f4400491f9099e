"""Claims of tokens as GitHub, GitLab and Kubernetes document them, for one run each; no token or signature of theirs.

https://docs.github.com/en/actions/reference/security/oidc,
https://docs.gitlab.com/ci/secrets/id_token_authentication/,
https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/
"""

from __future__ import annotations

from typing import Any

GITHUB: dict[str, Any] = {
    "sub": "repo:octo-org/octo-repo:environment:prod",
    "environment": "prod",
    "ref": "refs/heads/main",
    "sha": "example-sha",
    "repository": "octo-org/octo-repo",
    "repository_owner": "octo-org",
    "actor_id": "12",
    "repository_visibility": "private",
    "repository_id": "74",
    "repository_owner_id": "65",
    "run_id": "example-run-id",
    "run_number": "10",
    "run_attempt": "2",
    "runner_environment": "github-hosted",
    "actor": "octocat",
    "workflow": "example-workflow",
    "head_ref": "",
    "base_ref": "",
    "event_name": "workflow_dispatch",
    "ref_type": "branch",
    "job_workflow_ref": "octo-org/octo-automation/.github/workflows/oidc.yml@refs/heads/main",
}
GITHUB_FORK: dict[str, Any] = GITHUB | {
    "sub": "repo:octo-org/octo-repo:pull_request",
    "ref": "refs/pull/7/merge",
    "head_ref": "main",
    "base_ref": "main",
    "event_name": "pull_request",
    "actor": "mallory",
    "actor_id": "666",
}
"""A run for a pull request from a fork: repository and owner are those of the base."""
GITLAB: dict[str, Any] = {
    "namespace_id": "72",
    "namespace_path": "my-group",
    "project_id": "20",
    "project_path": "my-group/my-project",
    "user_id": "1",
    "user_login": "sample-user",
    "user_email": "sample-user@example.com",
    "user_identities": [{"provider": "github", "extern_uid": "2435223452345"}],
    "pipeline_id": "574",
    "pipeline_source": "push",
    "job_id": "302",
    "ref": "feature-branch-1",
    "ref_type": "branch",
    "ref_path": "refs/heads/feature-branch-1",
    "ref_protected": "false",
    "runner_id": 1,
    "runner_environment": "self-hosted",
    "sha": "714a629c0b401fdce83e847fc9589983fc6f46bc",
    "ci_config_ref_uri": "gitlab.example.com/my-group/my-project//.gitlab-ci.yml@refs/heads/main",
    "project_visibility": "public",
    "sub": "project_path:my-group/my-project:ref_type:branch:ref:feature-branch-1",
}
GITLAB_MERGE_REQUEST: dict[str, Any] = GITLAB | {
    "pipeline_source": "merge_request_event",
    "ref_path": "refs/merge-requests/1/head",
}
KUBERNETES: dict[str, Any] = {
    "kubernetes.io": {
        "namespace": "ml-platform",
        "node": {"name": "node-1", "uid": "646e7c5e-32d6-4d42-9dbd-e504e6cbe6b1"},
        "pod": {"name": "trainer-0", "uid": "5e0bd49b-f040-43b0-99b7-22765a53f7f3"},
        "serviceaccount": {"name": "trainer", "uid": "14ee3fa4-a7e2-420f-9f9a-dbc4507c3798"},
    },
    "sub": "system:serviceaccount:ml-platform:trainer",
}
