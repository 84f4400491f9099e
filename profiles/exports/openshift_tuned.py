"""OpenShift's Tuned object: a TuneD profile, and which nodes should have it."""

from __future__ import annotations

from contract.keys import KeyKind
from profiles.content.content import Content
from profiles.exports import tuned
from profiles.exports.parts import ExportDraft, dump, of_kind

NAMESPACE = "openshift-cluster-node-tuning-operator"
PRIORITY = 20
"""Lower wins. The operator's own profiles are at 30 and above."""


def write(content: Content, draft: ExportDraft) -> str:
    profile = tuned.write(content, draft).replace("[main]\n", "[main]\ninclude=openshift-node\n", 1)
    recommend = {"match": [{"label": f"example.com/{draft.name}"}], "priority": PRIORITY, "profile": draft.name}
    if of_kind(
        content, KeyKind.CMDLINE, KeyKind.CPU_ISOLATION
    ):  # the boot loader plugin works through a machine config pool only
        del recommend["match"]
        recommend = {"machineConfigLabels": {"machineconfiguration.openshift.io/role": draft.name}, **recommend}
    return dump(
        {
            "apiVersion": "tuned.openshift.io/v1",
            "kind": "Tuned",
            "metadata": {"name": draft.name, "namespace": NAMESPACE},
            "spec": {"profile": [{"name": draft.name, "data": profile}], "recommend": [recommend]},
        }
    )
