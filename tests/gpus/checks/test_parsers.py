"""Parsers: what each program says is read, and nothing else is ever a pass."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpus.services.checks.parsers import PARSERS, dcgm, fio, nccl
from gpus.services.checks.verdicts import NotUnderstood
from tests.gpus.checks import outputs

GOOD = {
    "dcgm": outputs.dcgm_4(("Deployment", "software", "Pass"), ("Hardware", "memory", "Pass")),
    "dcgm-software": outputs.dcgm_4(("Deployment", "software", "Pass")),
    "nccl": outputs.NCCL,
    "fio": outputs.fio(),
    "network": outputs.network(),
}

KEYS = [
    "jobs",
    "DCGM Diagnostic",
    "test_categories",
    "tests",
    "results",
    "error",
    "read",
    "fio version",
    "probes",
    "failures",
]
LEAF = st.none() | st.booleans() | st.floats() | st.text()
RUBBISH = st.text() | st.recursive(
    LEAF, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYS), inner)
).map(json.dumps)


def test_every_parser_reads_what_its_program_prints():
    assert GOOD.keys() == PARSERS.keys()
    assert all(PARSERS[name](text).is_passed for name, text in GOOD.items())


@pytest.mark.parametrize("name", list(PARSERS))
@given(share=st.floats(0, 0.97))
def test_output_that_is_cut_off_is_no_result(name, share):
    text = GOOD[name].rstrip()
    end = text.rindex("# Avg") if name == "nccl" else len(text)
    with pytest.raises(NotUnderstood):
        PARSERS[name](text[: int(end * share)])


@pytest.mark.parametrize("name", list(PARSERS))
@given(text=RUBBISH)
def test_rubbish_is_no_result(name, text):
    with pytest.raises(NotUnderstood):
        PARSERS[name](text)


@pytest.mark.parametrize("name", list(PARSERS))
def test_output_of_another_program_is_no_result(name):
    for other, text in GOOD.items():
        if other.split("-")[0] != name.split("-")[0]:
            with pytest.raises(NotUnderstood):
                PARSERS[name](text)


@pytest.mark.parametrize("name", ["dcgm", "dcgm-software", "fio", "network"])
def test_two_results_in_one_output_are_no_result(name):
    with pytest.raises(NotUnderstood):
        PARSERS[name](GOOD[name] + "\n" + GOOD[name][GOOD[name].index("{") :])


def test_deep_nesting_is_no_result():
    with pytest.raises(NotUnderstood):
        dcgm.parse('{"DCGM Diagnostic": ' + "[" * 100_000)


# ── dcgmi diag ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_dcgm_3_passes_and_names_the_gpu_that_fails():
    good = dcgm.parse(outputs.DCGM_3.replace("STATUS", "PASS"))
    assert (good.is_passed, good.version) == (True, "3.3.5")
    bad = dcgm.parse(outputs.DCGM_3.replace("STATUS", "FAIL"))
    assert (bad.is_passed, bad.notes) == (False, ("GPU Memory on GPU 1: A DBE was found on GPU 1.",))


def test_dcgm_4_names_the_entity_and_the_reason():
    bad = dcgm.parse(outputs.dcgm_4(("Hardware", "memory", "Fail")))
    assert not bad.is_passed
    assert bad.notes[0] == "memory on GPU 1: Detected 3 volatile double-bit ECC errors on GPU 1."
    assert bad.version == "4.2.3"


def test_a_warning_is_no_pass():
    assert not dcgm.parse(outputs.DCGM_3.replace("STATUS", "WARN")).is_passed


@pytest.mark.parametrize("status", ["Not Run", "PASS ?", "", None, True, ["Pass"]])
def test_a_status_that_is_not_known_is_no_result(status):
    with pytest.raises(NotUnderstood):
        dcgm.parse(outputs.dcgm_4(("Hardware", "memory", status)))


def test_a_diagnostic_that_skipped_the_hardware_is_no_result():
    text = outputs.dcgm_4(("Deployment", "software", "Pass"), ("Hardware", "memory", "Skip"))
    with pytest.raises(NotUnderstood, match="No test ran on the GPUs"):
        dcgm.parse(text)


def test_a_summary_that_fails_fails_even_where_no_result_says_so():
    document = json.loads(outputs.dcgm_4(("Hardware", "memory", "Pass")))
    document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]["test_summary"]["status"] = "Fail"
    assert not dcgm.parse(json.dumps(document)).is_passed


def test_a_key_that_is_there_twice_is_no_result():
    with pytest.raises(NotUnderstood):
        dcgm.parse(
            outputs.dcgm_4(("Hardware", "memory", "Fail")).replace(
                '"status": "Fail"', '"status": "Fail", "status": "Pass"'
            )
        )


def test_notes_are_bounded_and_printable():
    text = json.loads(outputs.dcgm_4(("Hardware", "memory", "Fail"), gpus=64))
    results = text["DCGM Diagnostic"]["test_categories"][0]["tests"][0]["results"]
    for result in results:
        result |= {"status": "Fail", "warnings": [{"warning": "\x1b[31m" + "x" * 5000}]}
    notes = dcgm.parse(json.dumps(text)).notes
    assert len(notes) == 20
    assert all(len(line) <= 300 and line.isprintable() for line in notes)


# ── nccl-tests ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_largest_size_counts():
    assert nccl.parse(outputs.NCCL).measures == {"bus_bandwidth": 472.08, "average_bus_bandwidth": 467.98}


def test_wrong_values_fail():
    assert not nccl.parse(outputs.NCCL.replace("values : 0 OK", "values : 12 FAILED")).is_passed


def test_a_verdict_that_contradicts_itself_is_no_result():
    with pytest.raises(NotUnderstood):
        nccl.parse(outputs.NCCL.replace("values : 0 OK", "values : 12 OK"))


def test_values_that_were_not_compared_do_not_pass():
    with pytest.raises(NotUnderstood):
        nccl.parse(outputs.NCCL.replace("      0\n", "    N/A\n").replace("      0  ", "    N/A  "))


# ── fio ───────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_fio_is_read_with_its_units():
    verdict = fio.parse(outputs.fio())
    assert verdict.measures["read_bandwidth"] == pytest.approx(1.2)
    assert verdict.measures["read_latency_p99"] == pytest.approx(4.2)
    assert verdict.version == "fio-3.36"


def test_a_job_with_an_error_fails():
    assert not fio.parse(outputs.fio(error=28)).is_passed


@pytest.mark.parametrize("value", [-1, "1200", None, True, 1e400])
def test_a_figure_that_cannot_be_is_no_result(value):
    text = outputs.fio(bw_bytes=value).replace("Infinity", "1e400")
    with pytest.raises(NotUnderstood):
        fio.parse(text)
