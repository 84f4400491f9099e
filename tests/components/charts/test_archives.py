"""Archives that another party packed: what is accepted, and every way in which one is refused, naming its part."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import Invalid, Missing
from components.charts import archives
from components.charts.archives import BadArchive
from components.models import Archive
from tests.components.packing import CHART, bomb, packed, tiny


def member(name: str, data: bytes = b"x", **attributes) -> bytes:
    """Chart tiny, and one member more."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        entry = tarfile.TarInfo("tiny/Chart.yaml")
        entry.size = len(CHART)
        tar.addfile(entry, io.BytesIO(CHART.encode()))
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        for key, value in attributes.items():
            setattr(entry, key, value)
        tar.addfile(entry, io.BytesIO(data))
    return gzip.compress(out.getvalue(), mtime=0)


def test_a_chart_is_read():
    crd = "kind: CustomResourceDefinition\n"
    content = packed(
        {
            "Chart.yaml": CHART + "kubeVersion: '>=1.30-0'\n",
            "values.yaml": "base: &a {x: 1}\nother: {<<: *a, z: yes}\n",
            "values.schema.json": '{"type": "object"}',
            "crds/one.yaml": crd,
            "charts/sub/crds/deep/two.yml": crd,
            "charts/sub/templates/crds/no.yaml": crd,
            "crds/README.md": "text",
        }
    )
    chart = archives.judge(content, name="tiny", version="1.2.3", sha256=hashlib.sha256(content).hexdigest())
    assert (chart.name, chart.version, chart.app_version, chart.kubernetes) == ("tiny", "1.2.3", "7", ">=1.30-0")
    assert chart.values == {"base": {"x": 1}, "other": {"x": 1, "z": True}}
    assert chart.schema == {"type": "object"}
    assert chart.crds == {"crds/one.yaml": crd, "charts/sub/crds/deep/two.yml": crd}


def test_a_version_is_the_same_with_and_without_its_v():
    assert archives.judge(tiny(), version="v1.2.3").version == "1.2.3"


@pytest.mark.parametrize(
    ("content", "field", "words"),
    [
        (b"", "archive", "not a gzip file"),
        (b"not an archive", "archive", "not a gzip file"),
        (tiny()[:-30], "archive", "ends in the middle"),
        (tiny()[:60], "archive", "ends in the middle"),
        (tiny()[:40] + b"x" * 40 + tiny()[80:], "archive", "is damaged"),
        (gzip.compress(b"hello", mtime=0), "archive", "not a tar archive"),
        (gzip.compress(bytes(20480), mtime=0), "archive", "is empty"),
        (bytes(archives.MAX_PACKED + 1), "archive", "at most 10,485,760"),
        (bomb(6), "tiny/templates/big.yaml", "at most 5,242,880"),
        (packed({f"{n}.txt": b"" for n in range(5001)}), "archive", "more than 5,000 files"),
        (member("tiny/link", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "tiny/link", "is a link"),
        (member("tiny/link", type=tarfile.LNKTYPE, linkname="tiny/Chart.yaml"), "tiny/link", "is a link"),
        (member("tiny/null", type=tarfile.CHRTYPE), "tiny/null", "neither a file nor a folder"),
        (member("tiny/pipe", type=tarfile.FIFOTYPE), "tiny/pipe", "neither a file nor a folder"),
        (member("tiny/../../etc/cron.d/x"), "tiny/../../etc/cron.d/x", "leaves its folder"),
        (member("/etc/passwd"), "/etc/passwd", "absolute"),
        (member("C:/windows"), "C:/windows", "absolute"),
        (member("tiny\\..\\x"), "tiny\\..\\x", "leaves its folder"),
        (member("tiny/./Chart.yaml"), "tiny/./Chart.yaml", "is written with"),
        (member("tiny//Chart.yaml"), "tiny//Chart.yaml", "is written with"),
        (member("tiny/a\nb"), "tiny/a?b", "no path"),
        (member("tiny/Chart.yaml"), "tiny/Chart.yaml", "twice"),
        (member("other/file"), "archive", "more than one folder"),
        (packed({"Chart.yaml": CHART}, folder=""), "archive", "more than one folder"),
        (packed({"values.yaml": "a: 1"}), "Chart.yaml", "is missing"),
        (packed({"Chart.yaml": "a: [1"}), "Chart.yaml", "line 2"),
        (packed({"Chart.yaml": "- a"}), "Chart.yaml", "not a mapping"),
        (packed({"Chart.yaml": b"\xff\xfe\x00"}), "Chart.yaml", ""),
        (packed({"Chart.yaml": "apiVersion: v2\nversion: 1.0.0"}), "Chart.yaml: name", "is missing"),
        (packed({"Chart.yaml": "apiVersion: v2\nname: a/b\nversion: 1.0.0"}), "Chart.yaml: name", "not the name"),
        (packed({"Chart.yaml": "apiVersion: v2\nname: a\nversion: latest"}), "Chart.yaml: version", "semantic"),
        (packed({"Chart.yaml": "apiVersion: v2\nname: a\nversion: 1.5"}), "Chart.yaml: version", "semantic"),
        (packed({"Chart.yaml": "name: a\nversion: 1.0.0"}), "Chart.yaml: apiVersion", "v1 or v2"),
        (packed({"Chart.yaml": CHART + "type: library"}), "Chart.yaml: type", "library"),
        (packed({"Chart.yaml": CHART, "values.yaml": "a: 1\n b: 2"}), "values.yaml", "line 2"),
        (packed({"Chart.yaml": CHART, "values.yaml": "[1, 2]"}), "values.yaml", "not a mapping"),
        (packed({"Chart.yaml": CHART, "values.yaml": "[" * 5000}), "values.yaml", "deeper than 100"),
        (packed({"Chart.yaml": CHART, "values.schema.json": "{"}), "values.schema.json", "not JSON"),
        (packed({"Chart.yaml": CHART, "values.schema.json": "[" * 100_000}), "values.schema.json", "not JSON"),
        (packed({"Chart.yaml": CHART, "values.schema.json": "[]"}), "values.schema.json", "not a JSON object"),
        (packed({"Chart.yaml": CHART, "charts/sub.tgz": b"junk"}), "archive", "not a gzip file"),
    ],
    ids=lambda value: "content" if isinstance(value, bytes) else None,
)
def test_a_bad_archive_is_refused_and_its_part_named(content, field, words):
    with pytest.raises(Invalid) as raised:
        archives.judge(content)
    assert list(raised.value.fields) == [field]
    assert words in str(raised.value)


def test_a_bomb_of_many_files_is_refused_without_unpacking_it():
    content = packed({"Chart.yaml": CHART, **{f"templates/{n}.yaml": bytes(4 << 20) for n in range(20)}})
    assert len(content) < 200_000
    with pytest.raises(BadArchive, match="unpacks to more than 67,108,864 bytes"):
        archives.judge(content)


def test_a_bomb_in_a_subchart_counts_too():
    sub = packed({"Chart.yaml": CHART, **{f"templates/{n}.yaml": bytes(4 << 20) for n in range(9)}})
    content = packed({"Chart.yaml": CHART, "charts/a.tgz": sub, "charts/b.tgz": sub})
    with pytest.raises(BadArchive, match="unpacks to more than"):
        archives.judge(content)


def test_archives_in_archives_have_an_end():
    content = tiny()
    for _ in range(archives.MAX_NESTED):
        content = packed({"Chart.yaml": CHART, "charts/sub.tgz": content})
        archives.judge(content)
    with pytest.raises(BadArchive, match="nested deeper than 3"):
        archives.judge(packed({"Chart.yaml": CHART, "charts/sub.tgz": content}))


def test_anchors_that_explode_are_refused_in_no_time():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    with pytest.raises(BadArchive, match=r"values\.yaml: line 7: has more than 1,000,000 values"):
        archives.judge(packed({"Chart.yaml": CHART, "values.yaml": "\n".join(lines)}))


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"name": "other"}, "Chart.yaml: name"),
        ({"version": "1.2.4"}, "Chart.yaml: version"),
        ({"sha256": "0" * 64}, "archive"),
    ],
)
def test_an_archive_that_is_another_than_wanted_is_refused(wanted, field):
    with pytest.raises(BadArchive) as raised:
        archives.judge(tiny(), **wanted)
    assert list(raised.value.fields) == [field]


@given(st.binary(max_size=300), st.integers(0, 400))
def test_damage_anywhere_is_a_refusal_or_harmless(noise, at):
    whole = tiny()
    at = min(at, len(whole))
    try:
        archives.judge(whole[:at] + noise + whole[at + len(noise) :])
    except BadArchive:
        pass


# ── Storing ───────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.django_db
def test_an_archive_is_kept_once_by_its_digest_and_comes_back_as_it_was():
    first = archives.store(tiny(), origin="uploaded", by="alice")
    again = archives.store(tiny(), origin="https://charts.example/tiny-1.2.3.tgz")
    assert first.pk == again.pk == hashlib.sha256(tiny()).hexdigest()
    assert (again.origin, again.stored_by, again.name, again.version, again.app_version) == (
        "uploaded",
        "alice",
        "tiny",
        "1.2.3",
        "7",
    )
    assert archives.content(first.pk) == tiny()


@pytest.mark.django_db
def test_nothing_of_a_bad_archive_is_stored():
    with pytest.raises(BadArchive):
        archives.store(tiny(), origin="uploaded", version="9.9.9")
    assert not Archive.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("sha256", ["0" * 64, "../../etc/passwd", "", "A" * 64])
def test_an_archive_that_is_not_there_is_missing(sha256):
    with pytest.raises(Missing):
        archives.content(sha256)


@pytest.mark.django_db
def test_an_archive_that_was_changed_in_the_database_is_not_used():
    stored = archives.store(tiny(), origin="uploaded")
    Archive.objects.filter(pk=stored.pk).update(content=packed({"Chart.yaml": CHART}))
    with pytest.raises(BadArchive, match="was changed in the database"):
        archives.content(stored.pk)


def test_a_schema_is_read_as_json_not_as_yaml():
    content = packed({"Chart.yaml": CHART, "values.schema.json": json.dumps({"type": "object", "on": "yes"})})
    assert archives.judge(content).schema == {"type": "object", "on": "yes"}


DEPENDS = f"{CHART}dependencies:\n- {{name: sub, version: 1.x, repository: https://example.org, condition: sub.on}}\n"


@pytest.mark.parametrize(
    "inside",
    [
        {"charts/sub/Chart.yaml": CHART.replace("tiny", "sub")},
        {"charts/another-name/Chart.yaml": CHART.replace("tiny", "sub")},
        {"charts/sub-1.2.3.tgz": packed({"Chart.yaml": CHART.replace("tiny", "sub")}, "sub")},
    ],
)
def test_an_archive_with_its_dependencies_is_accepted(inside):
    assert archives.judge(packed({"Chart.yaml": DEPENDS} | inside)).subcharts == ("sub",)


def test_an_archive_without_a_dependency_of_its_is_refused_with_what_to_do():
    with pytest.raises(BadArchive, match="sub not in the archive's folder charts/") as refused:
        archives.judge(packed({"Chart.yaml": DEPENDS, "charts/other/Chart.yaml": CHART}))
    assert list(refused.value.fields) == ["Chart.yaml: dependencies"]
