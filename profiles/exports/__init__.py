"""A revision as files of other tools: one module a format, each naming what it could not express.

What each holds: docs/profiles.md. What a file cannot hold is in its first lines as comments too,
so that it is not lost with the answer it came in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contract.nodetuning import Operator
from profiles.content.content import Content
from profiles.exports import (
    ansible,
    flat,
    kustomize,
    machineconfig,
    nodewright,
    openshift_tuned,
    sysctl_d,
    talos,
    terraform,
    tuned,
)
from profiles.exports.parts import ExportDraft, MissingPart

__all__ = ["FORMATS", "Export", "Format", "MissingPart", "export"]


def _with_comments(head: Sequence[str], body: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in head) + "\n" + body


@dataclass(frozen=True, slots=True)
class Format:
    key: str
    title: str
    extension: str
    media_type: str
    caveat: str
    """What to know before applying the file."""
    write: Callable[[Content, ExportDraft], str]
    join: Callable[[Sequence[str], str], str] = _with_comments
    """How the first lines, which are for people, and the rest become one file."""


@dataclass(frozen=True, slots=True)
class Export:
    format: Format
    filename: str
    text: str
    missing: tuple[MissingPart, ...]
    is_fixed: bool
    remarks: tuple[str, ...]
    """The format's caveat, and what holds for this file alone."""

    @property
    def reasons(self) -> list[tuple[str, list[MissingPart]]]:
        """Return what is missing, grouped by reason."""
        out: dict[str, list[MissingPart]] = {}
        for missing in self.missing:
            out.setdefault(missing.why, []).append(missing)
        return list(out.items())


WHOLE = frozenset({"profile"})
"""Formats that carry everything."""
OF_CLUSTER = WHOLE | {"terraform", "objects", "kustomize"}
"""Formats that carry what is wanted of the cluster, or name it themselves."""
YAML, PLAIN, JSON = "application/yaml", "text/plain", "application/json"

FORMATS: dict[str, Format] = {
    format.key: format
    for format in (
        Format(
            "profile",
            "Profile (YAML)",
            "yaml",
            YAML,
            "For another installation: nothing is inherited any more, so that it means the same there.",
            flat.write,
        ),
        Format(
            "sysctl.d",
            "sysctl.d",
            "conf",
            PLAIN,
            "Put it into /etc/sysctl.d, then sysctl --system: files are read by name, and the last wins.",
            sysctl_d.write,
        ),
        Format(
            "tuned",
            "TuneD profile",
            "tuned.conf",
            PLAIN,
            "Put it into /etc/tuned/profiles/<name>/tuned.conf. Files in /etc/sysctl.d win over it while "
            "reapply_sysctl is 1; kernel arguments need a boot loader that TuneD knows.",
            tuned.write,
        ),
        Format(
            "openshift-tuned",
            "OpenShift Tuned",
            "yaml",
            YAML,
            "Label the nodes, or change `recommend`. Kernel arguments need a machine config pool that matches.",
            openshift_tuned.write,
        ),
        Format(
            "machineconfig",
            "OpenShift MachineConfig",
            "yaml",
            YAML,
            "Applying it reboots every node of the pool, one after another.",
            machineconfig.write,
        ),
        Format(
            "ansible",
            "Ansible playbook",
            "yaml",
            YAML,
            "Needs the collections ansible.posix and community.general, which are not part of ansible-core.",
            ansible.write,
        ),
        Format(
            "talos",
            "Talos machine config patch",
            "yaml",
            YAML,
            "For talosctl patch machineconfig. Kernel arguments belong to the image: give them to the Image Factory.",
            talos.write,
        ),
        Format(
            "nodewright",
            "NodeWright (Skyhook)",
            "yaml",
            YAML,
            "Set nodeSelectors first. Older operators know it as Skyhook, skyhook.nvidia.com/v1alpha1, with this spec.",
            nodewright.write,
        ),
        Format(
            "terraform",
            "Terraform (JSON)",
            "tf.json",
            JSON,
            "Configure the providers kubernetes and helm beside it. What is there already, Terraform takes over only "
            "after terraform import.",
            terraform.write,
            terraform.with_comments,
        ),
        Format(
            "objects",
            "Kubernetes objects",
            "yaml",
            YAML,
            "For kubectl apply, or beside the format kustomize. Nothing of Setpoint's is on them: it does not own what "
            "another tool applies.",
            kustomize.objects,
        ),
        Format(
            "kustomize",
            "Kustomize",
            "yaml",
            YAML,
            "Save it as kustomization.yaml in a folder of its own.",
            kustomize.write,
        ),
    )
}


def export(content: Content, to: str, *, name: str, revision: str, digest: str, is_fixed: bool = False) -> Export:
    """`content` as a file of the format `to`, a key of FORMATS. `name` is the profile's: a DNS label.

    `is_fixed` writes what is asked for with >= or <= as a plain value where the format has no way to say more; a node
    that is better off already is then made worse, which is why it is not the default.
    """
    format = FORMATS[to]
    draft = ExportDraft(name=name, is_fixed=is_fixed)
    body = format.write(content, draft)
    if to not in OF_CLUSTER:
        draft.miss_cluster(content, f"{format.title} is about nodes; this belongs to the cluster")
    if is_fixed and any(setting.operator != Operator.EQUALS for setting in content.settings):
        draft.remark(
            "Where the format has no >= or <=, the value is written as it is: a node that was better off loses."
        )
    remarks = (format.caveat, *draft.remarks)
    head = [f"{revision}, {digest}", f"{format.title}, written by Setpoint.", *remarks]
    if draft.missing:
        head += ["", "Not in this file:", *(f"  {missing}" for missing in draft.missing)]
    text = format.join(head, body)
    filename = format.extension if format.extension == "tuned.conf" else f"{name}-{to}.{format.extension}"
    own = {
        "sysctl.d": f"90-{name}.conf",
        "profile": f"{name}.yaml",
        "terraform": f"{name}.tf.json",
        "kustomize": "kustomization.yaml",
    }
    filename = own.get(to, filename)
    return Export(format, filename, text, tuple(draft.missing), is_fixed, remarks)
