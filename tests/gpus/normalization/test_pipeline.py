"""Normalization of exporters' own text format. Every problem that operators reported has its case."""

from __future__ import annotations

import pytest

from gpus.metrics.samples import Code, DeviceKey, ExporterPod, Generation, Holder, HonorLabels, Metric, Xid, XidEvidence
from gpus.normalization.pipeline import normalize
from tests.gpus.scrapes import (
    EXPORTER,
    FREE,
    HELD,
    NOW,
    SPLIT,
    TARGET,
    counts,
    direct,
    fixture,
    line,
    prometheus,
    read,
    sample,
)

TRAINER = Holder("team-vision", "vit-l-worker-3", "trainer")
MIB = 1024 * 1024


def test_a_classic_exporter_in_our_units():
    reading = read(direct(fixture("classic")))

    held = sample(reading, HELD)
    assert (held.node, held.index, held.model) == ("gpu-node-07", "0", "NVIDIA H100 80GB HBM3")
    assert (held.driver, held.holders, held.suspect) == ("570.133.20", (TRAINER,), False)
    assert held.values == {
        Metric.SM_CLOCK: 1.98e9,
        Metric.MEMORY_CLOCK: 2.619e9,
        Metric.MEMORY_TEMPERATURE: 71,
        Metric.TEMPERATURE: 63,
        Metric.POWER: 612.481,
        Metric.ENERGY: 123_456_789,
        Metric.PCIE_REPLAYS: 3,
        Metric.BUSY: 0.98,
        Metric.MEMORY_COPY: 0.41,
        Metric.MEMORY_FREE: 12_000 * MIB,
        Metric.MEMORY_USED: 68_000 * MIB,
        Metric.MEMORY_RESERVED: 1_559 * MIB,
        Metric.ROWS_REMAPPED_UNCORRECTABLE: 0,
        Metric.ROWS_REMAPPED_CORRECTABLE: 1,
        Metric.ROW_REMAP_FAILED: 0,
        Metric.ENGINE: 0.981204,
        Metric.TENSOR: 0.412345,
        Metric.MEMORY_BANDWIDTH: 0.55321,
    }
    assert sample(reading, FREE).holders == ()
    assert (sample(reading, FREE).values[Metric.BUSY], sample(reading, FREE).xids) == (0, ())
    assert (reading.generations, reading.honor_labels) == ({Generation.CLASSIC}, HonorLabels.DIRECT)
    assert (reading.series, reading.profiling, reading.findings) == (40, True, ())


def test_the_new_generation_says_the_same():
    old, new = read(direct(fixture("classic"))), read(direct(fixture("base_units")))
    assert new.generations == {Generation.BASE_UNITS}
    assert new.samples == old.samples
    assert new.findings == ()


@pytest.mark.parametrize("generation", ["classic", "base_units"])
@pytest.mark.parametrize("honor_labels", [False, True])
def test_either_mode_of_honor_labels_bills_nobody_for_a_free_gpu(generation, honor_labels):
    series = prometheus(fixture(generation), honor_labels=honor_labels)
    assert any(point.labels["pod"] == TARGET["pod"] for point in series if point.labels["UUID"] == FREE)

    reading = read(series)

    assert reading.samples == read(direct(fixture("classic"))).samples
    assert reading.honor_labels is (HonorLabels.ON if honor_labels else HonorLabels.OFF)
    assert set(counts(reading)) <= {Code.EXPORTER_POD}


@pytest.mark.parametrize(
    ("exporters", "target"),
    [
        ([ExporterPod("watch", "smi-abcde")], {}),
        ([ExporterPod("watch", "smi-abcde", ip="10.0.3.7")], {"pod": "smi-abcde"}),
        ([ExporterPod("watch", "smi-zzzzz")], {}),  # its DaemonSet made another since
        ([], {"service": "smi"}),
        ([], {"service": "smi", "job": "watch/smi"}),
        ([], {"container": "dcgm-exporter"}),
    ],
)
def test_an_exporter_by_another_name_is_found_out(exporters, target):
    odd = {"instance": "10.0.3.7:9400", "job": "gpus", "namespace": "watch", "pod": "smi-abcde"} | target
    reading = read(prometheus(fixture("classic"), honor_labels=True, target=odd), exporters)
    assert sample(reading, FREE).holders == ()
    assert sample(reading, HELD).holders[0].pod == TRAINER.pod
    assert counts(reading)[Code.EXPORTER_POD] == 1


def test_prometheus_itself_names_the_exporter():
    odd = {"instance": "h:9400", "job": "gpus", "namespace": "watch", "pod": "smi-abcde"}
    up = prometheus("up 1\n", honor_labels=False, target=odd)
    reading = read([*prometheus(fixture("classic"), honor_labels=True, target=odd), *up])
    assert sample(reading, FREE).holders == ()


@pytest.mark.parametrize("named", [{"job": "vit"}, {"service": "vit"}, {"service": "vit-l"}, {"job": "vit-l-worker"}])
def test_a_workload_named_like_the_scrape_job_keeps_its_gpu(named):
    reading = read(prometheus(fixture("classic"), honor_labels=True, target=TARGET | named))
    assert sample(reading, HELD).holders == (TRAINER,)


def test_a_workload_beside_the_exporter_keeps_its_gpu():
    text = line("DCGM_FI_DEV_GPU_UTIL", 9, pod="burn-in-1", namespace="gpu-operator", container="burn")
    reading = read(prometheus(text, honor_labels=True), [ExporterPod("gpu-operator", TARGET["pod"])])
    assert reading.samples[0].holders == (Holder("gpu-operator", "burn-in-1", "burn"),)


def test_an_upgrade_leaves_one_sample_of_each_device():
    new_target = TARGET | {"instance": "10.0.3.9:9400", "pod": "nvidia-dcgm-exporter-new42"}
    series = prometheus(fixture("classic"), honor_labels=False)
    series += prometheus(fixture("base_units"), honor_labels=False, target=new_target)

    reading = read(series)

    assert reading.samples == read(direct(fixture("classic"))).samples
    assert reading.generations == {Generation.CLASSIC, Generation.BASE_UNITS}
    assert counts(reading) == {Code.DUPLICATES: 36, Code.BOTH_GENERATIONS: 2, Code.EXPORTER_POD: 1}


def test_what_an_old_exporter_said_minutes_ago_does_not_count():
    stale = 1_000 * (int(NOW.timestamp()) - 200)
    old = line("DCGM_FI_DEV_GPU_UTIL", f"90 {stale}", pod="gone", namespace="a")
    old += line("DCGM_FI_DEV_GPU_TEMP", f"80 {stale}", pod="gone", namespace="a")
    new = line("DCGM_FI_DEV_GPU_UTIL_RATIO", 0.25, pod="here", namespace="a")
    reading = read([*direct(old, "x/dcgm-exporter-1"), *direct(new, "x/dcgm-exporter-2")])
    assert reading.samples[0].values == {Metric.BUSY: 0.25}
    assert [holder.pod for holder in reading.samples[0].holders] == ["here"]
    assert counts(reading)[Code.DUPLICATES] == 2


def test_mig_instances_are_devices_and_their_board_is_none():
    reading = read(direct(fixture("mig")))

    assert [gpu_sample.device.instance for gpu_sample in reading.samples] == ["1", "2"]
    held, free = reading.samples
    assert (held.profile, held.holders) == ("3g.40gb", (Holder("team-chat", "llm-0", "vllm"),))
    assert held.values == {
        Metric.MEMORY_FREE: 8_000 * MIB,
        Metric.MEMORY_USED: 32_320 * MIB,
        Metric.ENGINE: 0.871,
        Metric.TENSOR: 0.21487,
        Metric.MEMORY_BANDWIDTH: 0.3,
    }
    assert (free.holders, Metric.BUSY in free.values) == ((), False)
    (board,) = reading.boards
    assert board.values[Metric.ENERGY] == 5e6
    assert (board.values[Metric.POWER], board.values[Metric.MEMORY_USED]) == (318.25, 40_640 * MIB)
    assert board.xids == (Xid(94, 1, XidEvidence.LAST),)
    assert sum(device.values[Metric.POWER] for device in reading.hardware()) == 318.25
    assert counts(reading) == {Code.XID_LAST: 1}


def test_a_board_is_known_by_its_instances_where_the_exporter_prints_nothing_else():
    text = "".join(
        text_line + "\n"
        for text_line in fixture("mig").splitlines()
        if text_line.startswith("#") or "GPU_I_ID" in text_line
    )
    (board,) = read(direct(text)).boards
    assert board.device == DeviceKey(SPLIT)
    assert board.values == {Metric.POWER: 318.25, Metric.ENERGY: 5e6, Metric.TEMPERATURE: 55}


@pytest.mark.parametrize("name", ["time_sliced", "vgpu"])
def test_pods_that_share_a_gpu_have_one_reading_together(name):
    reading = read(direct(fixture(name)))
    (shared,) = reading.samples
    assert {holder.pod for holder in shared.holders} == {"model-0", "model-1", "model-2"}
    assert shared.holders == tuple(sorted(shared.holders))
    assert (shared.values[Metric.POWER], shared.values[Metric.BUSY]) == (402.5, 0.71)
    assert shared.values[Metric.MEMORY_USED] == 60_000 * MIB
    assert counts(reading) == {Code.SHARED: 1}


@pytest.mark.parametrize("busy", [(0, 90), (90, 0)])
def test_of_values_for_each_process_the_greatest_counts_and_no_sum(busy):
    text = "".join(line("DCGM_FI_DEV_GPU_UTIL", percent, pod=f"p{percent}", namespace="a") for percent in busy)
    assert read(direct(text)).samples[0].values == {Metric.BUSY: 0.9}


def test_a_line_said_twice_is_a_duplicate():
    reading = read(direct(line("DCGM_FI_DEV_GPU_TEMP", 50) * 3))
    assert counts(reading)[Code.DUPLICATES] == 2


def test_one_exporter_scraped_by_two_jobs_of_different_modes_keeps_its_holders():
    reading = read([point for mode in (True, False) for point in prometheus(fixture("classic"), honor_labels=mode)])
    assert reading.samples == read(direct(fixture("classic"))).samples
    assert reading.honor_labels is HonorLabels.MIXED
    assert counts(reading) == {Code.DUPLICATES: 36, Code.EXPORTER_POD: 1}


def test_blanks_are_absent_and_never_zero():
    reading = read(direct(fixture("blanks")))
    assert reading.samples[0].values == {Metric.SM_CLOCK: 585e6, Metric.BUSY: 0.37, Metric.MEMORY_USED: 0}
    assert counts(reading) == {Code.BLANK: 3, Code.NOT_THERE: 1, Code.PROFILING_ABSENT: 1}


def test_xids_and_clock_events_with_their_evidence():
    reading = read(direct(fixture("events")))
    held, free = sample(reading, HELD), sample(reading, FREE)
    assert held.xids == (Xid(31, 4, XidEvidence.WINDOW),)
    assert held.clock_events == {"hw_thermal": 12, "power_cap": 3}
    assert (free.xids, free.clock_events) == ((Xid(79, 1, XidEvidence.LAST),), {})
    assert counts(reading)[Code.XID_LAST] == 1
    assert sample(read(direct(fixture("classic"))), HELD).clock_events is None


def test_a_total_is_better_evidence_than_a_window():
    text = line("DCGM_EXP_XID_ERRORS_COUNT", 2, xid="48") + line("DCGM_EXP_XID_ERRORS_TOTAL", 9, xid="48")
    assert read(direct(text)).samples[0].xids == (Xid(48, 9, XidEvidence.TOTAL),)


@pytest.mark.parametrize("garbage", ["", "dbe", "-1", "99999", "²"])
def test_an_xid_that_is_none_is_refused(garbage):
    reading = read(direct(line("DCGM_EXP_XID_ERRORS_TOTAL", 9, xid=garbage)))
    assert reading.samples[0].xids == ()
    assert counts(reading)[Code.ABSURD] == 1


def test_profiling_that_is_silently_zero_is_withheld():
    text = line("DCGM_FI_DEV_GPU_UTIL", 97) + line("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0)
    text += line("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0) + line("DCGM_FI_DEV_GPU_UTIL", 3, uuid=FREE)
    text += line("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0, uuid=FREE)
    reading = read(direct(text))
    suspect, idle = sample(reading, HELD), sample(reading, FREE)
    assert (suspect.suspect, suspect.values) == (True, {Metric.BUSY: 0.97})
    assert (idle.suspect, idle.values) == (False, {Metric.BUSY: 0.03, Metric.ENGINE: 0})
    assert counts(reading)[Code.SUSPECT] == 1
    assert Code.PROFILING_ABSENT not in counts(reading)


def test_an_engine_at_work_on_an_idle_gpu_is_suspect_too():
    text = line("DCGM_FI_DEV_GPU_UTIL", 0) + line("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.9)
    (gpu_sample,) = read(direct(text)).samples
    assert (gpu_sample.suspect, gpu_sample.values) == (True, {Metric.BUSY: 0, Metric.ENGINE: 0.9})


@pytest.mark.parametrize("hostname", ["localhost", "nvidia-dcgm-exporter-x7k2p", ""])
def test_the_node_is_its_exporters_pods_where_the_label_is_no_node(hostname):
    text = line("DCGM_FI_DEV_GPU_TEMP", 50, Hostname=hostname)
    pod = ExporterPod("gpu-operator", "nvidia-dcgm-exporter-x7k2p", node="gpu-node-07", ip="10.0.3.7")
    without, direct_, scraped = (
        read(direct(text)),
        read(direct(text), [pod]),
        read(prometheus(text, honor_labels=True), [pod]),
    )
    assert [reading.samples[0].node for reading in (without, direct_, scraped)] == ["", "gpu-node-07", "gpu-node-07"]
    assert counts(without)[Code.NODE_UNKNOWN] == 1
    assert (Code.NODE_MISNAMED in counts(without)) is bool(hostname)


def test_nvlink_counters_have_labels_of_their_own_and_add_up():
    labels = f'gpu_uuid="{HELD}",model_name="NVIDIA H100 80GB HBM3",hostname="n1"'
    text = line("DCGM_FI_DEV_GPU_TEMP", 50)
    for kind, value in (("CRC_FLIT", 1), ("REPLAY", 20)):
        for link in "01":
            text += f'DCGM_FI_DEV_NVLINK_{kind}_ERROR_TOTAL{{nvlink="{link}",{labels}}} {value}\n'
    (gpu_sample,) = read(direct(text)).samples
    assert (gpu_sample.values[Metric.NVLINK_CRC_ERRORS], gpu_sample.values[Metric.NVLINK_REPLAYS]) == (2, 40)


def test_nvlink_traffic_is_a_rate_in_bytes_by_each_generations_name():
    old, new = (f"DCGM_FI_DEV_NVLINK_{name}_TOTAL" for name in ("BANDWIDTH", "THROUGHPUT"))
    for name in (old, new):
        (gpu_sample,) = read(direct(line(name, 201_777))).samples
        assert gpu_sample.values == {Metric.NVLINK_TRAFFIC: 201.777e9}
    both = line("DCGM_FI_PROF_NVLINK_TX_BYTES", 90e9) + line("DCGM_FI_PROF_NVLINK_RX_BYTES", 60e9) + line(old, 150_000)
    (gpu_sample,) = read(direct(both)).samples
    assert gpu_sample.values == {Metric.NVLINK_PAYLOAD: 150e9, Metric.NVLINK_TRAFFIC: 150e9}
    sent, received = line("DCGM_FI_PROF_NVLINK_TX_BYTES", 90e9), line("DCGM_FI_PROF_NVLINK_RX_BYTES", 2**63 - 14)
    for one_way in (sent, sent + received):
        assert read(direct(one_way + line(old, 150_000))).samples[0].values == {Metric.NVLINK_TRAFFIC: 150e9}
    for blank in (2147483632, 9223372036854775794):
        reading = read(direct(line("DCGM_FI_DEV_GPU_TEMP", 50) + line(old, blank)))
        assert Metric.NVLINK_TRAFFIC not in reading.samples[0].values


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("DCGM_FI_DEV_POWER_USAGE", "1e9", Code.ABSURD),
        ("DCGM_FI_DEV_POWER_USAGE", "-1", Code.ABSURD),
        ("DCGM_FI_DEV_POWER_USAGE", "NaN", Code.NOT_FINITE),
        ("DCGM_FI_DEV_POWER_USAGE", "+Inf", Code.NOT_FINITE),
        ("DCGM_FI_DEV_GPU_TEMP", "900", Code.ABSURD),
        ("DCGM_FI_DEV_SM_CLOCK_HERTZ", "1980", Code.ABSURD),
        ("DCGM_FI_DEV_GPU_UTIL", "700", Code.ABSURD),
        ("DCGM_FI_PROF_SM_ACTIVE", "55", Code.ABSURD),
        ("DCGM_FI_DEV_FB_USED", "1e12", Code.ABSURD),
    ],
)
def test_what_no_hardware_has_is_dropped_and_counted(name, value, code):
    reading = read(direct(line("DCGM_FI_DEV_MEM_CLOCK", 2619) + line(name, value)))
    assert reading.samples[0].values == {Metric.MEMORY_CLOCK: 2.619e9}
    assert counts(reading)[code] == 1


def test_a_little_above_one_is_one():
    assert read(direct(line("DCGM_FI_PROF_SM_ACTIVE", 1.003))).samples[0].values == {Metric.SM: 1}


def test_clocks_that_disagree_are_found_and_old_news_is_dropped():
    seconds = int(NOW.timestamp())
    text = line("DCGM_FI_DEV_GPU_TEMP", f"60 {(seconds + 3600) * 1000}")
    text += line("DCGM_FI_DEV_POWER_USAGE", f"300 {(seconds - 3600) * 1000}")
    reading = read(direct(text))
    assert reading.samples[0].values == {Metric.TEMPERATURE: 60}
    assert (counts(reading)[Code.FROM_THE_FUTURE], counts(reading)[Code.STALE]) == (1, 1)


def test_labels_that_disagree_are_settled_whatever_their_order():
    series = direct(line("DCGM_FI_DEV_GPU_TEMP", 50, Hostname="n1") + line("DCGM_FI_DEV_SM_CLOCK", 345, Hostname="n2"))
    assert read(series) == read(reversed(series))
    assert read(series).samples[0].node == "n1"


def test_a_gpu_on_two_nodes_is_said_once():
    series = direct(line("DCGM_FI_DEV_GPU_TEMP", 50, Hostname="n1"), "x/e-1")
    series += direct(line("DCGM_FI_DEV_GPU_TEMP", 50, Hostname="n2"), "x/e-2")
    reading = read(series)
    assert len(reading.samples) == 1
    assert counts(reading)[Code.TWO_NODES] == 1


def test_labels_too_long_and_devices_without_uuid_do_not_stop_the_rest():
    text = line("DCGM_FI_DEV_GPU_TEMP", 50, pod="p" * 10_000, namespace="a", comment="c" * 10_000)
    text += line("DCGM_FI_DEV_GPU_TEMP", 51, uuid="")
    text += line("DCGM_FI_DEV_GPU_SPEED_PARSECS", 12)
    scraped = read(
        [point.__class__(point.name, {**point.labels, "pod": "p" * 9999}, point.value) for point in direct(text)]
    )
    reading = read(direct(text))
    for parsed in (reading, scraped):
        assert [(sample_.values, sample_.holders) for sample_ in parsed.samples] == [({Metric.TEMPERATURE: 50}, ())]
        assert (counts(parsed)[Code.NO_DEVICE], counts(parsed)[Code.UNKNOWN_NAMES]) == (1, 1)
    assert counts(scraped)[Code.LABELS_TOO_LONG] >= 1


def test_series_beyond_the_limit_are_left_and_said():
    reading = normalize(iter(direct(fixture("classic"))), when=NOW, limit=10)
    assert (reading.series, counts(reading)[Code.SERIES_OVER_LIMIT]) == (10, 1)


def test_the_version_is_read_from_the_pods_image():
    def versions(image):
        return set(read([], [ExporterPod("a", "b", image=image)]).exporter_versions)

    assert versions("nvcr.io/nvidia/k8s/dcgm-exporter:4.5.2-4.8.1-ubuntu22.04") == {"4.8.1"}
    assert versions("registry:5000/dcgm-exporter:4.9.0@sha256:abc") == {"4.9.0"}
    assert versions("registry:5000/dcgm-exporter") == versions("") == set()


def test_a_cluster_without_gpus_is_an_empty_reading():
    reading = read([])
    assert (reading.samples, reading.findings, reading.honor_labels) == ((), (), HonorLabels.UNKNOWN)


def test_gpus_that_all_lack_pods_are_pointed_out():
    text = "".join(line("DCGM_FI_DEV_GPU_TEMP", 50, uuid=f"GPU-{number}") for number in range(3))
    assert counts(read(direct(text, EXPORTER)))[Code.NO_HOLDERS] == 3
