"""Parser of nccl-tests' text: the table of all_reduce_perf, and the two lines that end it.

    #       size   count    type  redop  root   time   algbw   busbw  #wrong   time   algbw   busbw  #wrong
      8589934592  214748  float    sum    -1  31843  269.76  472.08       0  31881  269.44  471.51       0
    # Out of bounds values : 0 OK
    # Avg bus bandwidth    : 471.797

Source: common.cu and util.cu of github.com/NVIDIA/nccl-tests, and of ROCm/rccl-tests, whose table is the same.
"""

from __future__ import annotations

import re

from gpus.services.checks.verdicts import NotUnderstood, Verdict, number

_ROW = re.compile(
    r"^\s*(\d{1,15})\s+\d{1,15}\s+[a-z0-9_]+\s+[a-z]+\s+-?\d+\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(\d+|N/A)"
    r"\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(\d+|N/A)\s*$"
)
_WRONG = re.compile(r"^# Out of bounds values\s*:\s*(\d+)\s+(OK|FAILED)\s*$")
_AVERAGE = re.compile(r"^# Avg bus bandwidth\s*:\s*([\d.]+)\s*$")
LONGEST_LINE = 2000


def parse(text: str) -> Verdict:
    """Passed: the test ran to its end and no value was wrong. Raises NotUnderstood."""
    rows: list[tuple[int, float]] = []
    wrong, average, is_checked = -1, -1.0, False
    for line in text.splitlines():
        if len(line) > LONGEST_LINE:
            continue
        if row := _ROW.match(line):
            rows.append((int(row[1]), max(_number(row[4]), _number(row[8]))))
            is_checked = is_checked or "N/A" not in (row[5], row[9])
        elif end := _WRONG.match(line):
            if wrong >= 0:
                raise NotUnderstood("The output holds more than one test.")
            wrong = int(end[1])
            if (wrong == 0) != (end[2] == "OK"):
                raise NotUnderstood("The count of wrong values contradicts its own verdict.")
        elif end := _AVERAGE.match(line):
            average = _number(end[1])
    if wrong < 0 or average < 0 or not rows:
        raise NotUnderstood("The test did not run to its end: its last lines are missing.")
    largest = max(rows)[1]
    measures = {"bus_bandwidth": largest, "average_bus_bandwidth": average}
    if wrong:
        return Verdict(False, f"{wrong} wrong values", measures, (f"Out of bounds values: {wrong}",))
    if not is_checked:
        raise NotUnderstood("The test did not compare its values (-c 0), so it cannot pass.")
    return Verdict(True, f"{largest:.1f} GB/s at the largest size", measures)


def _number(text: str) -> float:
    try:
        return number(float(text), "A bandwidth")
    except ValueError as error:
        raise NotUnderstood("A bandwidth is no number.") from error
