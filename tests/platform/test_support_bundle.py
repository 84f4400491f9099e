"""`manage.py doctor --bundle`: it helps, and holds no secret from anywhere that the product can keep one."""

from __future__ import annotations

import base64
import json
import re
import stat
import tarfile
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, time
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote, unquote_plus

import pytest
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command
from django.db import DatabaseError, IntegrityError, OperationalError, connection, models, transaction

from accounts.providers import GroupRole, OidcProvider
from audit.services import record
from config.doctor import bundle, bundle_rows, bundle_settings, findings
from config.doctor.report import Report
from notices.models import Channel
from simfleet.clock import WallClock
from simfleet.core import SimCluster
from tests.clusters.factories import ClusterFactory, reached_with
from tests.contract.door import Entrance
from tools.site import variables

ROOT = Path(__file__).resolve().parents[2]
MARK = "pl4nt"
NAMES = [
    "manifest.json", "versions.json", "settings.json", "doctor.json", "migrations.json", "database.json", "counts.json",
    "events.json", "errors.json", "values.json",
]  # fmt: skip
NOTHING = Report(())


def secret(of: str) -> str:
    """Return a secret with characters that JSON, URLs and base64 each write in another way."""
    return f'{MARK}+{of}/ü"&%={uuid.uuid4().hex[:8]}'


def unpacked(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as archive:
        members = archive.getmembers()
        assert all(member.isfile() and member.name.startswith("setpoint-support/") for member in members)
        return {m.name.partition("/")[2]: archive.extractfile(m).read() for m in members}


def readings(text: bytes) -> Iterator[str]:
    """Yield everything that a text can be read as: itself, out of JSON, out of a URL, hex, and base64 at any offset."""
    plain = text.decode()
    yield plain
    yield unquote(plain)
    yield unquote_plus(plain)
    yield plain.encode().decode("unicode_escape", errors="replace")
    for run in set(re.findall(r"[A-Za-z0-9+/_=-]{6,}", unquote(plain))):
        word = run.replace("-", "+").replace("_", "/").replace("=", "")
        for start in range(4):
            whole = word[start:][: len(word[start:]) // 4 * 4]
            yield base64.b64decode(whole).decode("latin-1")
    for run in set(re.findall(r"(?:[0-9a-f]{2}){5,}", plain)):
        yield bytes.fromhex(run).decode("latin-1")


def leaks(members: dict[str, bytes]) -> list[str]:
    return [name for name, text in members.items() if any(MARK in reading for reading in readings(text))]


@pytest.mark.parametrize("offset", range(4))
def test_this_file_sees_a_secret_in_each_form(offset: int) -> None:
    """Otherwise what follows shows nothing."""
    value = secret("x")
    before = "a" * offset
    coded = base64.b64encode(f"{before}{value}".encode()).decode()
    for text in (
        value,
        json.dumps(value),
        f"u:{value}@h".replace("+", "%2B"),
        coded,
        f"zz{coded}",
        value.encode().hex(),
    ):
        assert leaks({"x": text.encode()}) == ["x"]
    assert leaks({"x": b"harmless plant"}) == []


# ── Settings ──────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def planted(settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "SECRET_KEY",
        "SETPOINT_TOKEN_PEPPER",
        "SETPOINT_METRICS_TOKEN",
        "EMAIL_HOST_PASSWORD",
        "EMAIL_HOST_USER",
    ):
        setattr(settings, name, secret(name))
    for name in ("SETPOINT_ADMIN_PASSWORD", "SETPOINT_DATABASE_URL", "SETPOINT_LOG_LEVEL", "SETPOINT_MAIL_SECURITY"):
        monkeypatch.setenv(name, secret(name))
    monkeypatch.setenv("HTTPS_PROXY", f"http://u:{MARK}-proxy-12345@proxy.example:3128")
    settings.CELERY_BROKER_URL = f"sentinel://:{MARK}-broker-12345@one:1/0;sentinel://:{MARK}-other-12345@two:1/0"
    settings.SETPOINT_AUDIT_HEADS_WEBHOOK = f"https://127.0.0.1:1/{MARK}/hook?token={MARK}"
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, f"{MARK}.example"]
    settings.SETPOINT_GPU_PRICES = {MARK: 1.0}
    settings.SETPOINT_WEB_THREADS = MARK
    settings.SETPOINT_OIDC = (
        OidcProvider(
            key="corp", name="corp", issuer="https://127.0.0.1:1", client_id=MARK, client_secret=secret("oidc"),
            mapping=(GroupRole("g", "viewer", "*"),), scopes=("openid",), groups_claim=MARK, trusts_email=False,
            auth_method="",
        ),
    )  # fmt: skip
    settings.SETPOINT_CREDENTIAL_KEYS = [Fernet.generate_key().decode()]


def test_settings_that_are_shown_are_numbers_words_and_whether_they_are_set(planted: None, tmp_path: Path) -> None:
    file = tmp_path / "b.tar.gz"
    assert bundle.write(file, {"settings.json": bundle_settings.shown, "versions.json": bundle_rows.versions}) == {}
    members = unpacked(file)
    shown = json.loads(members["settings.json"])
    assert leaks(members) == []
    assert shown["set"]["SETPOINT_ADMIN_PASSWORD"] is True
    assert shown["counts"]["SETPOINT_OIDC_PROVIDERS"] == 1
    assert shown["broker"] == "sentinel"
    assert shown["numbers"]["SETPOINT_LEASE_SECONDS"] == 30
    assert "SETPOINT_WEB_THREADS" not in shown["numbers"], "it is a text here, so it could be anything"
    assert shown["words"] == {}


def test_each_variable_that_is_read_is_shown_in_one_way() -> None:
    lists = [*bundle_settings.NUMBERS, *bundle_settings.WORDS, *bundle_settings.COUNTED, *bundle_settings.PRESENT]
    assert sorted(lists) == sorted(variables.readers(ROOT))


@pytest.mark.parametrize(
    "name",
    [
        "SETPOINT_TOKEN_PEPPER",
        "SETPOINT_OIDC_CORP_CLIENT_SECRET",
        "HTTPS_PROXY",
        "SETPOINT_BROKER_URL",
        "SETPOINT_CREDENTIAL_KEYS",
        "SETPOINT_MAIL_PASSWORD",
    ],
)
def test_a_part_that_would_show_a_secret_is_left_out_in_any_form(planted: None, name: str, tmp_path: Path) -> None:
    (value, *_) = [value for known, value in bundle_settings.secrets() if known == name]
    forms = {
        "plain": value, "inside": f"url=https://u:{value}@h", "deep": {"a": [{value: 1}]},
        **{f"base64-{n}": base64.b64encode(b"x" * n + value.encode() + b"y" * m).decode()
           for n in range(3) for m in range(3)},
    }  # fmt: skip
    left_out = bundle.write(tmp_path / "b.tar.gz", {name_: lambda of=of: of for name_, of in forms.items()})
    members = unpacked(tmp_path / "b.tar.gz")
    assert set(left_out) == set(forms)
    assert all(name in why for why in left_out.values())
    assert not any(value.encode() in text for text in members.values())


# ── Rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
class Planter:
    """Rows of every model, with a mark in each column that can hold text."""

    def __init__(self) -> None:
        self.numbers = iter(range(10**6))
        self.planted: dict[str, int] = {}

    def plant_all(self, of: list[type[models.Model]]) -> None:
        for model in of:
            for plants_choices in (True, False):
                try:
                    with transaction.atomic():
                        row = model(**{f.attname: self.value(f, plants_choices) for f in self.columns(model)})
                        model._base_manager.bulk_create([row])
                except (IntegrityError, DatabaseError):
                    continue
                self.planted[model._meta.label] = sum(self.is_text(f) for f in self.columns(model))
                break

    @staticmethod
    def columns(model: type[models.Model]) -> list[Any]:
        return [f for f in model._meta.concrete_fields if not isinstance(f, models.AutoField | models.BigAutoField)]

    @staticmethod
    def is_text(field: Any) -> bool:
        return isinstance(field, models.CharField | models.TextField | models.JSONField | models.BinaryField)

    def value(self, field: Any, plants_choices: bool) -> Any:
        mark = f"{MARK}{next(self.numbers):05d}"
        if field.choices and not plants_choices:
            return field.choices[0][0]
        if isinstance(field, models.JSONField):
            return {mark: [mark, {"token": f"https://u:{mark}@h/"}]}
        if isinstance(field, models.BinaryField):
            return mark.encode()
        if isinstance(field, models.CharField):
            return mark[: field.max_length or None]
        if isinstance(field, models.TextField):
            return f"{mark} FleetUnavailable"
        if isinstance(field, models.ForeignKey):
            return None if field.null else self.value(field.target_field, True)
        if isinstance(field, models.UUIDField):
            return uuid.uuid4()
        if isinstance(field, models.BooleanField):
            return False
        if isinstance(field, models.DateTimeField):
            return datetime(2026, 11, 1, tzinfo=UTC)
        if isinstance(field, models.TimeField):
            return time(22)
        return datetime(2026, 11, 1, tzinfo=UTC).date() if isinstance(field, models.DateField) else 1


@pytest.mark.django_db
def test_no_text_of_any_row_is_in_the_bundle(tmp_path: Path) -> None:
    file, planter = tmp_path / "b.tar.gz", Planter()
    parts = bundle.parts_of(NOTHING)
    with transaction.atomic(), connection.constraint_checks_disabled():
        planter.plant_all(bundle_rows._models())
        assert bundle.write(file, parts) == {}
        transaction.set_rollback(True)  # with keys of rows that are not there
    members = unpacked(file)
    counts = json.loads(members["counts.json"])
    assert len(planter.planted) > 0.9 * len(bundle_rows._models()), set(counts) - set(planter.planted)
    assert sum(planter.planted.values()) > 250
    assert all(counts[label]["rows"] for label in planter.planted)
    assert json.loads(members["events.json"])["audit"]
    assert json.loads(members["values.json"])["cluster_values"] == [
        {"component": "other", "depth": 3, "leaves": {"str": 2}}
    ]
    assert leaks(members) == []


# ── The whole ─────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.django_db(transaction=True)
def test_the_command_writes_a_bundle_without_any_secret(planted: None, settings: Any, tmp_path: Path) -> None:
    """Doctor's own findings are in it, over clusters and receivers that do not answer as they should."""
    entrance = Entrance(SimCluster(name="alpha", clock=WallClock()))
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    reached_with(ClusterFactory(name="alpha"), entrance.credentials(f"{MARK}-kubeconfig-token"))
    channel = Channel(name="chat", url=f"https://127.0.0.1:1/T0/{MARK}/hook?token={MARK}", ca="")
    channel.set_secret(secret("channel"))
    channel.save()
    record(
        by=None, action="cluster.connect", target="cluster:x", message=secret("audit"), after={"note": secret("after")}
    )
    file, err = tmp_path / "b.tar.gz", StringIO()
    try:
        with pytest.raises(CommandError):  # problems
            call_command("doctor", bundle=file, stdout=StringIO(), stderr=err)
    finally:
        entrance.close()
    members = unpacked(file)
    report = json.loads(members["doctor.json"])
    assert report["problems"]
    assert {"clusters", "egress", "keys"} <= {finding["area"] for finding in report["findings"]}
    assert leaks(members) == []
    assert MARK not in err.getvalue()
    assert list(members) == NAMES
    assert json.loads(members["manifest.json"])["left_out"] == {}
    assert json.loads(members["database.json"])["product"].startswith(("PostgreSQL 1", "SQLite 3"))
    assert json.loads(members["events.json"])["audit"][0]["action"] == "cluster.connect"
    assert json.loads(members["counts.json"])["clusters.Cluster"]["rows"] == 1
    assert json.loads(members["migrations.json"])["pending"] == []
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [file.name], "nothing half-written is left"


@pytest.mark.parametrize("name", ["b.zip", "there.tar.gz", "no/folder/b.tar.gz"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_checked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there.tar.gz").write_text("mine")
    monkeypatch.setattr("config.doctor.report.make", lambda: pytest.fail("it began to check"))
    with pytest.raises(CommandError, match=r"--bundle .*\.tar\.gz"):
        call_command("doctor", bundle=tmp_path / name)
    assert (tmp_path / "there.tar.gz").read_text() == "mine"


def test_standard_output_has_the_bundle_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr("config.doctor.report.make", lambda: Report((findings.ok("database", "It answers."),)))
    monkeypatch.setattr(bundle, "parts_of", lambda report: {"doctor.json": report.to_json})
    with pytest.raises(CommandError, match="--json"):
        call_command("doctor", "--json", bundle=Path("-"))
    call_command("doctor", bundle=Path("-"))
    written = capfdbinary.readouterr()
    (tmp_path / "b.tar.gz").write_bytes(written.out)
    assert json.loads(unpacked(tmp_path / "b.tar.gz")["doctor.json"])["findings"][0]["text"] == "It answers."
    assert b"It answers." in written.err


def test_parts_that_fail_or_are_too_large_leave_the_rest(tmp_path: Path) -> None:
    def fails() -> None:
        raise DatabaseError(f"password={MARK}")

    parts = {"a.json": fails, "b.json": lambda: "x" * bundle.LARGEST, "c.json": lambda: {"n": 1}}
    left_out = bundle.write(tmp_path / "b.tar.gz", parts)
    members = unpacked(tmp_path / "b.tar.gz")
    assert set(left_out) == {"a.json", "b.json"}
    assert "DatabaseError" in left_out["a.json"]
    assert json.loads(members["c.json"]) == {"n": 1}
    assert sum(map(len, members.values())) < 10_000
    assert leaks(members) == []


@pytest.mark.django_db
def test_a_table_that_cannot_be_counted_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    count = bundle_rows._counts

    def without_channels(model: type[models.Model]) -> dict[str, Any]:
        if model is Channel:
            raise DatabaseError("no such table")
        return count(model)

    monkeypatch.setattr(bundle_rows, "_counts", without_channels)
    counted = bundle_rows.counts()
    assert counted["notices.Channel"] == {"failed": "DatabaseError"}
    assert [label for label, of in counted.items() if "rows" not in of] == ["notices.Channel"]


@pytest.mark.django_db
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_database_that_is_away_is_waited_for_once(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[type[models.Model]] = []

    def away(*_: object) -> dict[str, Any]:
        tried.append(models.Model)
        raise OperationalError("away")

    monkeypatch.setattr(bundle_rows, "_counts", away)
    monkeypatch.setattr(connection, "is_usable", lambda: False)
    if when == "before":
        monkeypatch.setattr(connection, "ensure_connection", away)
    with pytest.raises(OperationalError):
        bundle_rows.counts()
    assert len(tried) == 1


def test_a_disk_that_fills_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(bundle.BundleRefused, match="No space left"):
        bundle.write(tmp_path / "b.tar.gz", {})
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_comes_meanwhile_is_kept(tmp_path: Path) -> None:
    def another() -> None:
        (tmp_path / "b.tar.gz").write_text("theirs")

    with pytest.raises(bundle.BundleRefused):
        bundle.write(tmp_path / "b.tar.gz", {"a.json": another})
    assert (tmp_path / "b.tar.gz").read_text() == "theirs"
    assert len(list(tmp_path.iterdir())) == 1


def test_the_same_parts_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        bundle.write(tmp_path / f"{name}.tar.gz", {"x.json": lambda: {"n": 1}})
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


def test_of_many_findings_the_problems_are_kept() -> None:
    some = [findings.ok("clusters", str(n)) for n in range(bundle.MOST_FINDINGS)]
    kept = bundle.parts_of(Report((*some, findings.problem("clusters", "it is away", "start it"))))["doctor.json"]()
    assert kept["findings"][0]["state"] == "problem"
    assert (len(kept["findings"]), kept["findings_left_out"]) == (bundle.MOST_FINDINGS, 1)
