"""The profiles of the product are sound, published once, and left alone by people."""

from __future__ import annotations

import io
import re

import pytest
from django.core.management import call_command

from audit.models import Record
from common.errors import WrongState
from profiles.catalog import known_settings
from profiles.catalog import platforms as platform_catalog
from profiles.document import schema
from profiles.models import Profile, Revision
from profiles.services import editing, library, platforms


def loaded() -> str:
    out = io.StringIO()
    call_command("load_library", stdout=out)
    return out.getvalue()


INTENTS = {
    "gpu-baseline": "live",
    "inference": "live",
    "model-load": "live",
    "storage": "new-pods",
    "training": "live",
    "training-rdma": "reboot",
    "training-rdma-aks": "containerd-restart",
    "training-rdma-eks": "containerd-restart",
    "training-rdma-gb200": "reboot",
    "training-rdma-gke": "containerd-restart",
    "training-rdma-h100": "reboot",
    "training-rdma-mi300x": "reboot",
    "training-rdma-oke": "reboot",
}
"""What the product promises, with the worst that a plan for it may do to a node."""
SOURCES = re.compile(r"NVIDIA|AMD|Oracle|TuneD|ESnet|AKS|OpenShift|Linux vm\.rst|kernel's default|As (net|gc)")


def flat(name: str) -> schema.Checked:
    """Laid over what it extends, as loading does."""
    document = schema.parse(library.source(name))
    parent = flat(document.extends.profile).content if document.extends else None
    return schema.flatten(document, parent, origin=name)


def test_the_library_has_these_intents_and_variants():
    assert {name: flat(name).content.worst_class for name in library.names()} == INTENTS


def test_what_a_library_profile_extends_comes_before_it():
    for name in library.names():
        if extends := schema.parse(library.source(name)).extends:
            assert library.names().index(extends.profile) < library.names().index(name)


def test_a_variant_extends_the_intent_that_it_is_named_after():
    assert library.intents() == ["gpu-baseline", "inference", "model-load", "storage", "training", "training-rdma"]
    for name in set(library.names()) - set(library.intents()):
        assert schema.parse(library.source(name)).extends.profile == name.rpartition("-")[0]


def test_every_library_setting_says_why_and_from_where():
    for name in library.names():
        for wish in schema.parse(library.source(name)).settings:
            assert len(wish.why) > 40, wish.key
            assert SOURCES.search(wish.why), wish.key


OWN = {
    "gpu-baseline": """
        vm.swappiness = 10; vm.max_map_count >= 262144; vm.min_free_kbytes >= 67584; fs.aio-max-nr >= 1048576
        fs.inotify.max_user_instances >= 8192; fs.inotify.max_user_watches >= 1048576; kernel.pid_max >= 4194304
        net.ipv4.neigh.default.gc_thresh1 >= 8192; net.ipv4.neigh.default.gc_thresh2 >= 32768
        net.ipv4.neigh.default.gc_thresh3 >= 65536
        transparent_hugepage.enabled = madvise; transparent_hugepage.defrag = madvise""",
    "training": """
        kernel.numa_balancing = 0; vm.dirty_ratio = 40; vm.dirty_background_ratio = 10
        cpu.scaling_governor = performance""",
    "training-rdma": """
        net.core.rmem_max >= 536870912; net.core.wmem_max >= 536870912
        net.ipv4.tcp_rmem = 4096 87380 268435456; net.ipv4.tcp_wmem = 4096 65536 268435456
        net.core.netdev_max_backlog >= 10000; net.ipv4.tcp_max_syn_backlog >= 8192; net.ipv4.tcp_mtu_probing = 1
        net.ipv4.conf.all.arp_ignore = 1; net.ipv4.conf.all.arp_announce = 2; module.ib_umad = loaded
        cmdline.iommu = pt; containerd.LimitMEMLOCK = infinity""",
    "training-rdma-h100": "cmdline.pci = realloc=off",
    "training-rdma-gb200": "cmdline.iommu.passthrough = 1; kernel.threads-max >= 16512444",
    "training-rdma-mi300x": "cmdline.pci = realloc=off; cmdline.iommu = pt",
    "training-rdma-aks": "net.core.rmem_max >= 134217728; net.core.wmem_max >= 134217728",
    "training-rdma-eks": """
        net.ipv4.tcp_keepalive_time = 240; net.ipv4.tcp_keepalive_intvl = 60; net.ipv4.tcp_keepalive_probes = 3""",
    "training-rdma-gke": "",
    "training-rdma-oke": """
        net.ipv4.neigh.default.gc_thresh1 >= 32768; net.ipv4.neigh.default.gc_thresh2 >= 65535
        net.ipv4.neigh.default.gc_thresh3 >= 131072; fs.file-max >= 2097152; fs.nr_open >= 1048576""",
    "storage": """
        net.core.rmem_max >= 268435456; net.core.wmem_max >= 268435456
        net.ipv4.tcp_rmem = 4096 87380 134217728; net.ipv4.tcp_wmem = 4096 65536 134217728
        net.ipv4.tcp_mtu_probing = 1; vm.dirty_ratio = 40; vm.dirty_background_ratio = 10
        block.nvme.read_ahead_kb >= 4096; vm.zone_reclaim_mode = 0""",
    "inference": """
        vm.swappiness = 1; net.ipv4.tcp_max_syn_backlog >= 8192; kernel.numa_balancing = 0
        cpu.scaling_governor = performance""",
    "model-load": "block.nvme.read_ahead_kb >= 4096; vm.zone_reclaim_mode = 0",
}
"""What reaches people's nodes: a change here is a change there, and wants its source."""


@pytest.mark.parametrize("name", OWN)
def test_the_values_are_those_that_were_checked_against_their_sources(name):
    wanted = {line.strip() for line in re.split(r"[;\n]", OWN[name]) if line.strip()}

    assert {f"{w.key} {w.operator} {w.value}" for w in schema.parse(library.source(name)).settings} == wanted


def test_every_warning_of_the_library_is_a_platform_that_the_value_names_as_unsafe():
    for name in library.names():
        checked = flat(name)
        assert checked.document.description, name
        for note in checked.warnings:
            assert note.code == "platform", (name, note)
            platform = note.message.split()[0]
            assert f"Unsafe on {platform}" in checked.content.setting(note.path.removeprefix("settings.")).why
            assert platform in checked.document.description


def test_a_platform_is_named_as_unsafe_exactly_where_its_limit_refuses_the_value():
    for name in library.names():
        checked = flat(name)
        named = {
            (platform, setting.key)
            for setting in checked.content.settings
            for platform in platform_catalog.KNOWN
            if f"Unsafe on {platform}" in setting.why
        }
        verdicts = platforms.platform_reports(checked.content)
        assert named == {(v.platform.key, wanted.key) for v in verdicts for wanted, _ in v.outside}, name
        for verdict in verdicts:
            assert verdict.is_unsafe == (f"UNSAFE on {verdict.platform.key}" in library.source(name)), name


_LIMITS = re.compile(r"(AKS|GKE) accepts,? (\d+) to (\d+)")


def test_the_limits_that_a_reason_quotes_are_the_catalogs():
    quoted = 0
    for name in library.names():
        for wish in schema.parse(library.source(name)).settings:
            known = {(limit.platform, limit.minimum, limit.maximum) for limit in known_settings.get(wish.key).platforms}
            for platform, low, high in _LIMITS.findall(wish.why):
                assert (platform, int(low), int(high)) in known, wish.key
                quoted += 1
    assert quoted > 5


def reports(name: str) -> dict[str, platforms.PlatformReport]:
    return {report.platform.key: report for report in platforms.platform_reports(flat(name).content)}


def test_platforms_are_judged_by_their_own_limits():
    of = reports("training-rdma")

    assert [wanted.key for wanted, _ in of["AKS"].outside] == ["net.core.rmem_max", "net.core.wmem_max"]
    assert {key for key, report in of.items() if report.is_unsafe} == {"AKS"}, "no other publishes limits below these"


def test_a_platform_has_a_place_for_what_it_documents_and_for_nothing_else():
    without = {key: {wanted.key for wanted in report.without} for key, report in reports("training-rdma").items()}
    every = {wanted.key for wanted in flat("training-rdma").content.settings}

    assert without["EKS-AL2023"] == without["OKE"] == set(), "a script of one's own runs on each node"
    assert without["EKS-Auto"] == every, "neither image, kubelet nor kernel is the customer's"
    on_host = {"cpu.scaling_governor", "containerd.LimitMEMLOCK"}
    on_thp = {"transparent_hugepage.enabled", "transparent_hugepage.defrag"}
    assert without["EKS-Bottlerocket"] == on_host | on_thp, "the rest are settings of its own"
    assert {"cmdline.iommu", "module.ib_umad"} | on_host <= without["GKE"]
    assert not on_thp & without["GKE"]
    assert "net.ipv4.tcp_rmem" in without["AKS"] - without["GKE"], "GKE lists it, AKS does not"


def test_bottlerockets_kubelet_takes_the_fields_that_it_names():
    content = schema.flatten(
        schema.parse("settings: {kubelet.podPidsLimit: 4096, kubelet.maxPods: 60, hugepages-1Gi: 2, hugepages-2Mi: 9}"),
        None,
        origin="mine",
    ).content
    without = {r.platform.key: [w.key for w in r.without] for r in platforms.platform_reports(content)}

    assert without["EKS-Bottlerocket"] == ["hugepages-1Gi"]
    assert without["AKS"] == ["hugepages-1Gi", "hugepages-2Mi", "kubelet.maxPods"]
    assert without["GKE"] == ["kubelet.maxPods"]


@pytest.mark.parametrize("cloud", ["aks", "eks", "gke", "oke"])
def test_a_profile_of_a_cloud_wants_nothing_that_its_nodes_refuse(cloud):
    """Virtual machines get no argument for a bare machine's IOMMU, and a kernel without modules none to load."""
    content = flat(f"training-rdma-{cloud}").content
    mine = [report for key, report in reports(f"training-rdma-{cloud}").items() if key.lower().startswith(cloud)]

    assert mine
    assert not any(report.is_unsafe for report in mine)
    assert (content.setting("cmdline.iommu") is None) == (cloud != "oke")
    assert (content.setting("module.ib_umad") is None) == (cloud in ("eks", "gke"))


def test_grace_has_the_argument_of_arm_and_not_that_of_x86():
    content = flat("training-rdma-gb200").content

    assert content.setting("cmdline.iommu") is None
    assert content.setting("cmdline.iommu.passthrough").value == "1"


def test_every_platform_that_a_limit_names_is_known_and_has_a_place_for_it():
    for info in known_settings.all():
        for limit in info.platforms:
            assert platform_catalog.KNOWN[limit.platform].has_place_for(info.key), (info.key, limit.platform)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"sources": ["nowhere"]}, "unknown sources"),
        ({"kinds": {"kubelet": ["vm.swappiness"]}}, "no keys of this kind"),
        ({"kinds": {"sysctl": "all"}}, "neither any, listed nor a list"),
        ({"limits": {}}, "has the fields"),
    ],
)
def test_a_platform_that_is_described_wrongly_does_not_load(change, complaint):
    entry = {"title": "A", "how": "By hand.", "kinds": {"sysctl": "any"}, "sources": ["aks"]}

    assert platform_catalog.read({"A": entry})["A"].has_place_for("vm.swappiness")
    with pytest.raises(platform_catalog.BadPlatforms, match=complaint):
        platform_catalog.read({"A": entry | change})


def test_no_key_of_the_kubelet_or_of_a_pods_own_is_in_the_library():
    """Findings 4 and 6 of the tuning facts; and 1: raise-only keys are asked for with >=."""
    for name in library.names():
        for setting in flat(name).content.settings:
            info = known_settings.get(setting.key)
            assert info.owner != "kubelet", setting.key
            assert setting.key not in ("net.core.somaxconn", "net.core.rmem_default", "net.core.wmem_default")
            assert not info.raise_only or setting.operator == ">=", setting.key


def test_the_gpu_baseline_needs_no_drain():
    content = schema.flatten(schema.parse(library.source("gpu-baseline")), None, origin="x").content

    assert content.worst_class == "live"
    assert content.setting("vm.swappiness").value == "10"
    assert content.setting("vm.max_map_count").operator == ">="


def test_each_library_profile_is_published(db):
    loaded()

    published = Revision.objects.select_related("profile").order_by("profile__name")
    assert [str(revision) for revision in published] == [f"{name} r1" for name in INTENTS]
    for revision in published:
        assert revision.digest == schema.digest(flat(revision.profile.name).content)


def test_loading_twice_publishes_once(db):
    assert "published gpu-baseline r1" in loaded()
    assert "is published already" in loaded()

    revision = Revision.objects.get(profile__name="gpu-baseline")
    assert (revision.number, revision.published_by, revision.authors.count()) == (1, None, 0)
    assert {r.actor for r in Record.objects.all()} == {editing.LIBRARY}


def test_a_new_version_of_the_library_is_a_new_revision(db, monkeypatch):
    loaded()
    shipped = library.source
    monkeypatch.setattr(
        library, "source", lambda name: "settings: {vm.swappiness: 5}\n" if name == "gpu-baseline" else shipped(name)
    )

    assert "published gpu-baseline r2" in loaded()
    assert Revision.objects.get(profile__name="gpu-baseline", number=2).flat.setting("vm.swappiness").value == "5"
    training = Revision.objects.get(profile__name="training", number=2)
    assert training.flat.setting("vm.swappiness").origin == "gpu-baseline r2", "what extends it follows"


def test_people_extend_a_library_profile_and_do_not_edit_it(olga):
    loaded()
    profile = Profile.objects.get(name="gpu-baseline")

    with pytest.raises(WrongState, match="extends gpu-baseline"):
        editing.save_draft(profile, source="labels: {a: b}\n", by=olga, version=profile.version)
    with pytest.raises(WrongState):
        editing.publish(profile, by=olga, version=profile.version)
    mine = editing.create(name="mine", source="extends: gpu-baseline\nsettings: {vm.swappiness: 1}\n", by=olga)
    revision = editing.publish(mine, by=olga, version=mine.version)
    assert revision.flat.setting("fs.aio-max-nr").origin == "gpu-baseline r1"


def test_a_profile_of_ones_own_by_that_name_is_left_alone(olga):
    editing.create(name="gpu-baseline", source="labels: {a: b}\n", by=olga)

    output = loaded()
    assert "a profile of your own" in output
    assert "gpu-baseline was never published" in output, "the others cannot stand on it"
    assert Profile.objects.get(name="gpu-baseline").draft == "labels: {a: b}\n"
    assert not Revision.objects.exists()
