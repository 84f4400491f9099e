"""The real helm program, and programs that behave as helm does on its worst days."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from clusters.net.credentials import Credentials
from components.helm import client, process
from components.helm.client import Helm, HelmJob, HelmRefused, HelmTimeout, HelmUnavailable, Stopped
from tests.components.helm.scripts import script
from tests.components.packing import tiny

pytestmark = pytest.mark.usefixtures("private_temporary")


def job(**over) -> HelmJob:
    return HelmJob(**{"release": "one", "namespace": "space", "deadline": time.monotonic() + 30} | over)


def ends(pid: int) -> bool:
    """Return whether the process ends within 5 s: one that was sent SIGKILL may take a moment to die."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


# ── The real program ──────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_program_beside_python_is_found_and_tells_its_version():
    assert client.program().version.startswith("v3.17.")


def test_a_chart_is_rendered_with_the_values_and_the_clusters_version():
    rendered = client.program().template(job(), tiny(), {"color": "blue"}, kube_version="v1.33.1").decode()
    assert 'color: "blue"' in rendered
    assert "kube: v1.33.1" in rendered
    assert "name: one-settings" in rendered


def test_api_versions_and_upgrades_are_told_to_the_chart():
    chart = tiny(a='a: {{ .Capabilities.APIVersions.Has "x/v1/Y" }}\nb: {{ .Release.IsUpgrade }}\n')
    many = [f"group-{number}.example/v1/Kind" for number in range(400)]
    rendered = client.program().template(
        job(), chart, {}, kube_version="v1.33.1", api_versions=[*many, "x/v1/Y"], is_upgrade=True
    )
    assert b"a: true\nb: true" in rendered
    plain = client.program().template(job(), chart, {}, kube_version="v1.33.1", api_versions=many)
    assert b"a: false\nb: false" in plain


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ('{{ required "give a color" .Values.nothing }}', "give a color (tiny/templates/a.yaml:1:3)"),
        ('{{ fail "not like this" }}', "not like this (tiny/templates/a.yaml:1:3)"),
        ("{{ .Values.a.b.c }}", "nil pointer evaluating interface {}.b (tiny/templates/a.yaml:1:10)"),
        ("{{ if }}", "missing value for if"),
        ("a: [", "YAML parse error on tiny/templates/a.yaml"),
    ],
)
def test_what_a_chart_says_against_values_comes_first(template, sentence):
    with pytest.raises(HelmRefused) as raised:
        client.program().template(job(), tiny(a=template), {}, kube_version="v1.33.1")
    assert str(raised.value).startswith(sentence)
    assert raised.value.is_final


def test_a_secret_is_in_no_error_even_when_the_chart_prints_it():
    chart = tiny(a='{{ fail (printf "%s %s" .Values.password (b64enc .Values.password)) }}')
    with pytest.raises(HelmRefused) as raised:
        client.program().template(
            job(secrets=("correct horse",)), chart, {"password": "correct horse"}, kube_version="v1.33.1"
        )
    assert str(raised.value).startswith("•••• ••••")
    assert "horse" not in str(raised.value)


def test_a_chart_that_is_no_chart_is_refused():
    with pytest.raises(HelmRefused):
        client.program().template(job(), b"not a chart", {}, kube_version="v1.33.1")


def test_nothing_of_our_environment_reaches_a_chart(monkeypatch):
    monkeypatch.setenv("HELM_NAMESPACE", "elsewhere")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    rendered = client.program().template(job(), tiny(a="a: {{ .Release.Namespace }}"), {}, kube_version="v1.33.1")
    assert b"a: space" in rendered


def test_an_api_server_that_is_not_there_is_unavailable(settings):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    nobody = Credentials(server="https://127.0.0.1:1", token="t0ken")
    with pytest.raises(HelmUnavailable) as raised:
        client.program().install(job(credentials=nobody), tiny(), {})
    assert not raised.value.is_final


def test_a_forbidden_address_is_refused_before_helm_runs(settings):
    settings.SETPOINT_ALLOW_NETWORKS = []
    with pytest.raises(HelmRefused, match="loopback"):
        client.program().install(job(credentials=Credentials(server="https://127.0.0.1:1", token="t")), tiny(), {})


@pytest.mark.parametrize(
    "over", [{"release": "One"}, {"release": "-a"}, {"release": "a" * 54}, {"release": "--debug"}, {"namespace": "a b"}]
)
def test_names_that_are_not_names_never_reach_a_command_line(over):
    with pytest.raises(HelmRefused, match="is not the name of"):
        job(**over)


# ── The environment of one run ────────────────────────────────────────────────────────────────────────────────────────
LOOK = """
home = os.environ["HOME"]
mode = lambda path: oct(os.stat(path).st_mode)[-3:]
found = {"environment": dict(os.environ), "modes": {name: mode(f"{home}/{name}") for name in os.listdir(home)}}
found["home mode"] = mode(home)
found["kubeconfig"] = open(os.environ["KUBECONFIG"]).read() if os.path.exists(os.environ["KUBECONFIG"]) else ""
found["arguments"] = arguments
print(json.dumps(found))
"""


@pytest.fixture
def listener():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_home_is_private_the_kubeconfig_too_and_both_are_gone_afterwards(
    tmp_path, settings, monkeypatch, private_temporary, listener
):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("SETPOINT_SECRET_KEY", "do not tell")
    credentials = Credentials(server=f"https://localhost:{listener}/behind", ca="PEM", token="t0ken")
    done = script(tmp_path, LOOK).template(job(credentials=credentials), tiny(), {}, kube_version="v1.33.1")
    report = json.loads(done)

    assert report["home mode"] == "700"
    assert {report["modes"][name] for name in ("kubeconfig", "values.json", "chart.tgz")} == {"600"}
    environment = report["environment"]
    assert environment["HOME"].startswith(str(private_temporary))
    assert not {"HTTPS_PROXY", "SETPOINT_SECRET_KEY"} & set(environment)
    inside = ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "HELM_PLUGINS", "KUBECONFIG", "TMPDIR")
    assert all(environment[name].startswith(environment["HOME"]) for name in inside)
    assert list(private_temporary.iterdir()) == []


def test_helm_collects_garbage_late_but_within_a_bound(tmp_path):
    """Given to each run by Setpoint itself; the bound protects the worker's memory."""
    report = json.loads(script(tmp_path, LOOK).template(job(), tiny(), {}, kube_version="v1.33.1"))
    assert int(report["environment"]["GOGC"]) > 100
    assert report["environment"]["GOMEMLIMIT"] == "512MiB"


def test_the_kubeconfig_names_the_address_that_was_judged_and_tls_the_host(tmp_path, settings, listener):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8", "::1/128"]
    credentials = Credentials(server=f"https://localhost:{listener}/behind/", ca="PEM", token="t0ken")
    done = script(tmp_path, LOOK).template(job(credentials=credentials), tiny(), {}, kube_version="v1.33.1")
    config = json.loads(json.loads(done)["kubeconfig"])
    assert config["clusters"][0]["cluster"] == {
        "server": f"https://127.0.0.1:{listener}/behind",
        "tls-server-name": "localhost",
        "certificate-authority-data": "UEVN",
    }
    assert config["users"][0]["user"] == {"token": "t0ken"}


def test_without_credentials_there_is_no_kubeconfig(tmp_path):
    done = json.loads(script(tmp_path, LOOK).template(job(), tiny(), {}, kube_version="v1.33.1"))
    assert done["kubeconfig"] == ""
    assert "--dry-run=server" not in done["arguments"]


def test_what_a_killed_worker_left_is_removed_by_the_next_run(private_temporary):
    left = private_temporary / "setpoint-helm-abc"
    left.mkdir()
    (left / ".lock").touch()
    (left / "kubeconfig").write_text("secret")
    with process.home() as mine:
        assert not left.exists()
        with process.home():
            assert mine.exists()  # its lock is held
    assert list(private_temporary.iterdir()) == []


# ── The end of one run ────────────────────────────────────────────────────────────────────────────────────────────────
STUBBORN = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child:
    open("{pids}", "w").write(f"{{os.getpid()}} {{child}}")
time.sleep(60)
"""


def stubborn(tmp_path) -> tuple[Helm, Path]:
    pids = tmp_path / "pids"
    return script(tmp_path, STUBBORN.format(pids=pids)), pids


def written(path: Path) -> list[int]:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if path.exists() and len(numbers := path.read_text().split()) == 2:
            return [int(number) for number in numbers]
        time.sleep(0.02)
    raise AssertionError("the program did not start")


def test_at_the_deadline_the_whole_process_group_ends(tmp_path, monkeypatch, private_temporary):
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.1)
    program, pids = stubborn(tmp_path)
    began = time.monotonic()
    with pytest.raises(HelmTimeout) as raised:
        program.template(job(deadline=time.monotonic() + 1.5), tiny(), {}, kube_version="v1.33.1")
    assert time.monotonic() - began < 10
    assert not raised.value.is_final
    assert all(ends(pid) for pid in written(pids))
    assert list(private_temporary.iterdir()) == []


def test_asked_to_stop_the_whole_process_group_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.1)
    program, pids = stubborn(tmp_path)
    with pytest.raises(Stopped):
        program.template(
            job(stop=lambda: pids.exists() and pids.stat().st_size > 0), tiny(), {}, kube_version="v1.33.1"
        )
    assert all(ends(pid) for pid in written(pids))


def test_helm_is_asked_before_it_is_killed_so_that_it_can_mark_the_release(tmp_path):
    lines = []
    program = script(
        tmp_path,
        "def end(*_):\n    open('../asked', 'w').write('x')\n    sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, end)\nprint('ready', file=sys.stderr, flush=True)\ntime.sleep(60)",
    )
    with pytest.raises(Stopped):
        program.template(job(stop=lambda: bool(lines), tell=lines.append), tiny(), {}, kube_version="v1.33.1")
    assert lines == ["ready"]
    assert (Path(tempfile.gettempdir()) / "asked").exists()


def test_a_stopped_job_starts_nothing(tmp_path):
    marker = tmp_path / "started"
    with pytest.raises(Stopped):
        script(tmp_path, f"open({str(marker)!r}, 'w')").template(
            job(stop=lambda: True), tiny(), {}, kube_version="v1.33.1"
        )
    assert not marker.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs hardware: prctl is Linux's")
def test_helm_ends_with_a_worker_that_is_killed(tmp_path):
    program, pids = stubborn(tmp_path)
    run = (
        "import sys, time; from pathlib import Path; from components.helm import process as p\n"
        "p.run(sys.argv[1], [], Path(sys.argv[2]), p.Limits(time.monotonic() + 60))"
    )
    worker = subprocess.Popen([sys.executable, "-c", run, program.program, str(tmp_path)], cwd=Path.cwd())
    leader = written(pids)[0]
    worker.kill()
    worker.wait()
    assert ends(leader)
    os.kill(written(pids)[1], signal.SIGKILL)  # the child that a stand-in made; helm makes none


def test_output_without_end_is_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "MAX_OUTPUT", 1_000_000)
    program = script(tmp_path, "while True:\n    sys.stdout.write('x' * 65536)")
    with pytest.raises(HelmRefused, match="longer than 1,000,000 bytes"):
        program.template(job(), tiny(), {}, kube_version="v1.33.1")


def test_words_without_end_are_kept_from_both_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "MAX_WORDS", 10_000)
    program = script(
        tmp_path,
        "sys.stderr.write('Error: first\\n' + 'x' * 1_000_000 + '\\nError: INSTALLATION FAILED: last\\n'); sys.exit(1)",
    )
    with pytest.raises(HelmRefused) as raised:
        program.template(job(), tiny(), {}, kube_version="v1.33.1")
    assert str(raised.value) == "last"


def test_both_pipes_are_read_at_once(tmp_path):
    body = "for _ in range(40):\n    sys.stderr.write('e' * 65536); sys.stdout.write('o' * 65536)"
    done = script(tmp_path, body).template(job(), tiny(), {}, kube_version="v1.33.1")
    assert len(done) == 40 * 65536


def test_what_helm_says_meanwhile_is_told_without_secrets_and_marks(tmp_path):
    lines: list[str] = []
    body = (
        "sys.stderr.write('client.go:142: 2026-11-21 12:00:00.1 +0000 UTC m=+0.05 [debug] creating 3 resource(s)\\n"
        "upgrade.go:9: [debug] the password is hunter2222\\n\\n')"
    )
    script(tmp_path, body).template(job(tell=lines.append, secrets=("hunter2222",)), tiny(), {}, kube_version="v1.33.1")
    assert lines == ["creating 3 resource(s)", "the password is ••••"]


def test_a_run_in_another_thread_ends_with_its_own_job(tmp_path):
    errors: list[BaseException] = []

    def go() -> None:
        try:
            script(tmp_path, "time.sleep(60)").template(
                job(deadline=time.monotonic() + 0.5), tiny(), {}, kube_version="v1.33.1"
            )
        except HelmTimeout as error:
            errors.append(error)

    thread = threading.Thread(target=go)
    thread.start()
    thread.join(20)
    assert len(errors) == 1
