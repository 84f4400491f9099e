"""`make charts` against a repository and a registry on loopback: digests that differ, what is there already."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from components.catalog import catalog
from tests.components.chart_server import AUTHORITY, ChartServer
from tests.components.packing import entry, tiny

ROOT = Path(__file__).resolve().parents[3]
_spec = importlib.util.spec_from_file_location("setpoint_charts", ROOT / "tools" / "charts.py")
assert _spec
assert _spec.loader
charts = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(charts)


@pytest.fixture
def server():
    made = ChartServer()
    yield made
    made.close()


@pytest.fixture(params=["http", "oci"])
def known(request, server, tmp_path):
    """The catalog with `tiny`, whose chart the server has."""
    text = entry("tiny", "1.2.3", workload="Deployment/any")
    if request.param == "http":
        server.index(tiny())
        text = text.replace("https://charts.example.org", server.url("/charts"))
    else:
        server.artifact(tiny())
        text = text.replace(
            'kind: http, url: "https://charts.example.org"', f'kind: oci, url: "{server.oci("/charts")}"'
        )
    (tmp_path / "tiny.yaml").write_text(text)
    with catalog.extended(tmp_path):
        yield request.param


def fetch(folder: Path) -> int:
    return charts.fetch(folder, {"tiny": ["1.2.3"]}, networks=["127.0.0.0/8"], ca=AUTHORITY.pem)


@pytest.mark.usefixtures("known")
def test_a_chart_is_fetched_once_with_its_values_and_its_digest(server, tmp_path):
    folder = tmp_path / "to"
    assert fetch(folder) == 1
    request_count = len(server.asked)
    assert fetch(folder) == 0

    assert len(server.asked) == request_count
    assert (folder / "archives" / "tiny-1.2.3.tgz").read_bytes() == tiny()
    assert (folder / "tiny" / "values.yaml").exists()
    assert "tiny-1.2.3.tgz" in (folder / "archives" / "SHA256SUMS").read_text()


@pytest.mark.usefixtures("known")
def test_an_archive_that_is_not_the_pinned_one_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setitem(charts.PINNED, "tiny-1.2.3.tgz", "0" * 64)
    with pytest.raises(SystemExit, match="pins 000"):
        fetch(tmp_path / "to")
    assert not (tmp_path / "to" / "archives" / "tiny-1.2.3.tgz").exists()


@pytest.mark.usefixtures("known")
def test_an_archive_that_changed_since_the_run_before_is_refused(tmp_path):
    folder = tmp_path / "to"
    fetch(folder)
    sums = folder / "archives" / "SHA256SUMS"
    sums.write_text("1" * 64 + "  tiny-1.2.3.tgz\n")
    with pytest.raises(SystemExit, match="SHA256SUMS has 111"):
        fetch(folder)


@pytest.mark.usefixtures("known")
def test_a_write_that_is_cut_short_leaves_no_archive_that_the_next_run_would_keep(tmp_path, monkeypatch):
    write = Path.write_bytes

    def cut(path: Path, content: bytes) -> int:
        write(path, content[: len(content) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", cut)
        with pytest.raises(OSError, match="space"):
            fetch(tmp_path / "to")

    assert fetch(tmp_path / "to") == 1
    assert (tmp_path / "to" / "archives" / "tiny-1.2.3.tgz").read_bytes() == tiny()


def test_a_repository_that_sends_another_archive_than_its_index_states_is_refused(known, server, tmp_path):
    if known == "http":
        server.say("/charts/tiny-1.2.3.tgz", b"other bytes")
    else:
        server.say(f"/v2/charts/tiny/blobs/{server.artifact(tiny())}", b"other bytes")
    with pytest.raises(SystemExit, match="run it again"):
        fetch(tmp_path / "to")


def test_every_component_of_the_catalog_has_its_newest_version_among_them():
    assert {name: versions[-1] for name, versions in charts.VERSIONS.items()} == {
        component.name: component.newest for component in catalog.all()
    }
