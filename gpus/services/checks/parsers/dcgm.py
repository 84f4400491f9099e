"""Parser of `dcgmi diag --json`, of DCGM 3 and 4.

DCGM 3: {"DCGM GPU Diagnostic": {"test_categories": [...], "version": ..}}, each result of a GPU by `gpu_id` (older
releases: `gpu_ids`), `status` Pass, Fail, Warn or Skip in changing case, `warnings` a text or a list of texts.
DCGM 4: {"DCGM Diagnostic": {"test_categories": [...]}, "metadata": {"version": ..}}, results by `entity_group` and
`entity_id`, warnings objects with error_id, error_category and error_severity, and a `test_summary` a test. Source:
NvvsCommon.h, DcgmDiagResponseWrapper and the strings in dcgmi's Diag.cpp of github.com/NVIDIA/DCGM.
"""

from __future__ import annotations

from typing import Any

from gpus.services.checks.verdicts import MOST_NOTES, NotUnderstood, Verdict, json_object, note

ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
PASS, SKIP = {"pass", "passed"}, {"skip", "skipped"}
BAD = {"fail", "failed", "warn", "warning"}
NOT_RUN = {"not run", "notrun"}
MOST_RESULTS = 10_000


def parse(text: str) -> Verdict:
    """Passed: at least one test ran on hardware, and each that ran passed. Raises NotUnderstood."""
    return _judged(text, counts_software=False)


def parse_software(text: str) -> Verdict:
    """Judge the quick diagnostic, which looks at the software alone. Raises NotUnderstood."""
    return _judged(text, counts_software=True)


def _judged(text: str, *, counts_software: bool) -> Verdict:
    document = json_object(text)
    root = next((document[name] for name in ROOTS if name in document), None)
    if not isinstance(root, dict):
        raise NotUnderstood("The output is not a DCGM diagnostic.")
    if stopped := root.get("runtime_error") or document.get("runtime_error"):
        raise NotUnderstood(f"The diagnostic could not run: {note(stopped)}")
    passed = skipped = failed = 0
    notes: list[str] = []
    for category, name, result in _results(root):
        status = str(result.get("status", "")).strip().lower()
        if status in PASS:
            passed += counts_software or category != "deployment"
        elif status in SKIP:
            skipped += 1
        elif status in BAD:
            failed += 1
            notes.append(note(f"{name}{_where(result)}: {_reason(result)}"))
        elif status in NOT_RUN:
            raise NotUnderstood(f"{name} did not run to its end, so nothing is known of it.")
        else:
            raise NotUnderstood(f"{name} has a status that is not known: {note(result.get('status'))[:40]}")
    version = _version(document, root)
    if failed:
        return Verdict(False, f"{_results_of(failed)} failed, {passed} passed", {}, tuple(notes[:MOST_NOTES]), version)
    if not passed:
        raise NotUnderstood("No test ran on the GPUs: all of them were skipped, or only the software was looked at.")
    is_skipped = f", {skipped} skipped" if skipped else ""
    return Verdict(True, f"{_results_of(passed)} passed{is_skipped}", {}, (), version)


def _results_of(count: int) -> str:
    return f"{count} result{'' if count == 1 else 's'}"


def _results(root: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return each result with its category in lower case and its test. Raises NotUnderstood."""
    out = []
    for category in _list(root.get("test_categories"), "test_categories"):
        for test in _list(category.get("tests"), "tests"):
            name = note(test.get("name", ""))[:60]
            if not name:
                raise NotUnderstood("A test has no name.")
            results = _list(test.get("results"), f"The results of {name}")
            if summary := test.get("test_summary"):
                results = [*results, _object(summary, f"The summary of {name}") | {"is_summary": True}]
            statuses = {
                str(result.get("status", "")).strip().lower() for result in results if "is_summary" not in result
            }
            for result in results:
                if "is_summary" in result and str(result.get("status", "")).strip().lower() in PASS | SKIP | statuses:
                    continue  # its results say so; a summary that is worse than all of them counts by itself
                out.append((str(category.get("category", "")).lower(), name, result))
    if not out:
        raise NotUnderstood("The diagnostic has no results.")
    if len(out) > MOST_RESULTS:
        raise NotUnderstood("The diagnostic has more results than a node can have.")
    return out


def _where(result: dict[str, Any]) -> str:
    if "entity_id" in result:
        return f" on {note(result.get('entity_group', 'GPU'))[:20]} {note(result['entity_id'])[:40]}"
    which = result.get("gpu_id", result.get("gpu_ids"))
    return f" on GPU {note(which)[:40]}" if which is not None else ""


def _reason(result: dict[str, Any]) -> str:
    warnings = result.get("warnings", result.get("warning", ()))
    for warning in warnings if isinstance(warnings, list) else [warnings]:
        text = warning.get("warning", "") if isinstance(warning, dict) else warning
        if text:
            return str(text)
    return str(result.get("status"))


def _version(document: dict[str, Any], root: dict[str, Any]) -> str:
    metadata = document.get("metadata")
    version = metadata.get("version") if isinstance(metadata, dict) else root.get("version")
    return note(version)[:40] if isinstance(version, str) else ""


def _list(value: object, what: str) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise NotUnderstood(f"{what} is no list.")
    return [_object(entry, f"An entry of {what}") for entry in value]


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise NotUnderstood(f"{what} is no object.")
    return value
