"""Fields of the kubelet's configuration and limits of services in a profile: judged by the rules of their programs."""

from __future__ import annotations

import pytest

from profiles.catalog import known_settings
from profiles.document import schema, setting_check
from profiles.document.document import InvalidProfile

HIGH, LOW = "kubelet.imageGCHighThresholdPercent", "kubelet.imageGCLowThresholdPercent"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kubelet.podPidsLimit", -1),
        ("kubelet.podPidsLimit", 4096),
        ("kubelet.maxPods", 250),
        (HIGH, 100),
        (LOW, 0),
        ("containerd.LimitMEMLOCK", "infinity"),
        ("kubelet.LimitMEMLOCK", 16777216),
        ("containerd.LimitNOFILE", 65536),
        ("containerd.LimitNOFILE", 2147483584),
        ("kubelet.cpuManagerPolicy", "static"),
        ("kubelet.reservedSystemCPUs", "0-1,64-65"),
        ("kubelet.memoryManagerPolicy", "None"),
        ("kubelet.reservedMemory", "0:memory=1Gi,1:memory=512Mi"),
    ],
)
def test_what_the_kubelet_and_systemd_take_may_be_asked_for(key, value):
    assert setting_check.ask(key, value).value == str(value)


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("kubelet.podPidsLimit", 0, "at least 64"),
        ("kubelet.podPidsLimit", 63, "at least 64"),
        ("kubelet.podPidsLimit", -2, "-1 to"),
        ("kubelet.podPidsLimit", "4Ki", "without 'Ki'"),
        ("kubelet.podPidsLimit", ">= 4096", "no order"),
        ("kubelet.maxPods", 0, "1 to"),
        (HIGH, 101, "0 to 100"),
        (HIGH, "85%", "whole number"),
        ("containerd.LimitMEMLOCK", "unlimited", "infinity"),
        ("containerd.LimitMEMLOCK", "8M", "infinity"),
        ("containerd.LimitMEMLOCK", "0", "infinity"),
        ("containerd.LimitMEMLOCK", "8388608:infinity", "infinity"),
        ("containerd.LimitMEMLOCK", ">= 8388608", "no order"),
        ("containerd.LimitNOFILE", "infinity", "whole number"),
        ("containerd.LimitNOFILE", 65535, "65536 to 2147483584"),
        ("containerd.LimitNOFILE", 2147483585, "65536 to 2147483584"),
        ("kubelet.cpuManagerPolicy", "Static", "none or static"),
        ("kubelet.reservedSystemCPUs", "0,1", "written 0-1"),
        ("kubelet.reservedSystemCPUs", "3-1", "such as 0-1,64-65"),
        ("kubelet.reservedSystemCPUs", "none", "such as 0-1,64-65"),
        ("kubelet.reservedSystemCPUs", "0-9999", "such as 0-1,64-65"),
        ("kubelet.reservedMemory", "1Gi", "such as 0:memory=1Gi"),
        ("kubelet.reservedMemory", "0:memory=1Gi,0:memory=1Gi", "for each NUMA node"),
        ("kubelet.reservedMemory", "1:memory=1Gi,0:memory=1024Mi", "written 0:memory=1Gi,1:memory=1Gi"),
        ("kubelet.topologyManagerPolicy", "best", "best-effort"),
        ("kubelet.cpuManagerPolicyOptions.full-pcpus-only", "yes", "true or false"),
    ],
)
def test_what_they_would_not_take_is_refused_with_what_would_be_right(key, value, part):
    with pytest.raises(setting_check.SettingRefused) as refused:
        setting_check.ask(key, value)
    assert part in str(refused.value)


@pytest.mark.parametrize(
    "key",
    [
        "kubelet.evictionHard",
        "kubelet.cpuManagerPolicyOptions.align-by-socket",
        "kubelet.LimitNOFILE",
        "containerd.LimitCORE",
    ],
)
def test_other_fields_and_limits_cannot_be_set(key):
    with pytest.raises(setting_check.SettingRefused):
        setting_check.key(key)


def checked(settings):
    return schema.flatten(schema.parse(f"settings: {settings}"), None, origin="x r1")


def test_thresholds_that_no_kubelet_starts_with_are_a_problem_and_a_single_one_a_warning():
    with pytest.raises(InvalidProfile) as refused:
        checked(f"{{{HIGH}: 70, {LOW}: 70}}")
    assert [problem.code for problem in refused.value.problems] == ["order"]
    alone = checked(f"{{{HIGH}: 70}}")
    assert [(warning.code, "set both" in warning.message) for warning in alone.warnings] == [("order", True)]
    assert checked(f"{{{HIGH}: 70, {LOW}: 60}}").warnings == checked(f"{{{LOW}: 60}}").warnings == ()


OPTION = "kubelet.cpuManagerPolicyOptions."
BOTH = f"{OPTION}prefer-align-cpus-by-uncorecache: true, {OPTION}distribute-cpus-across-numa: true"


@pytest.mark.parametrize(
    ("settings", "problems", "warnings"),
    [
        ("{kubelet.cpuManagerPolicy: static, kubelet.reservedSystemCPUs: 0-1}", 0, 0),
        ("{kubelet.cpuManagerPolicy: static}", 0, 1),
        (f"{{{OPTION}full-pcpus-only: true}}", 0, 1),
        (f"{{{OPTION}full-pcpus-only: false, kubelet.cpuManagerPolicy: none}}", 1, 0),
        (f"{{{BOTH}, kubelet.cpuManagerPolicy: static}}", 1, 0),
        ("{kubelet.memoryManagerPolicy: Static}", 0, 1),
        ("{kubelet.reservedMemory: '0:memory=1Gi'}", 0, 1),
        ("{kubelet.memoryManagerPolicy: Static, kubelet.reservedMemory: '0:memory=1Gi'}", 0, 0),
        ("{kubelet.topologyManagerPolicy: restricted, kubelet.topologyManagerScope: pod}", 0, 0),
    ],
)
def test_resource_managers_that_no_kubelet_starts_with_are_a_problem_and_what_nodes_may_have_a_warning(
    settings, problems, warnings
):
    if problems:
        with pytest.raises(InvalidProfile) as refused:
            checked(settings)
        assert len(refused.value.problems) == problems
    else:
        assert len(checked(settings).warnings) == warnings


def test_a_pod_without_a_limit_of_processes_weakens_the_node():
    cautions = dict(setting_check.ask("kubelet.podPidsLimit", -1).cautions)
    assert "weakens-security" in cautions
    assert "weakens-security" not in dict(setting_check.ask("kubelet.podPidsLimit", 4096).cautions)


def test_the_catalog_says_which_pods_a_memory_limit_reaches():
    assert "created after containerd has restarted" in known_settings.get("containerd.LimitMEMLOCK").risk
