"""The agent's environment: its identity, its namespaces, its files, its lock, its options."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pathlib
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.__main__ import BadOption, hold_lock, main, parse, server_of
from agent.client import Client
from agent.host import Command, LinuxHost, replace_file
from agent.identity import NotHere, check_namespaces, from_token
from agent.journal import FileStore, Journal, JournalEntry


def token(claims):
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"header.{body}.signature"


ROOT = pathlib.Path(__file__).parents[2]
BOUND = token({"kubernetes.io": {"node": {"name": "node-1", "uid": "uid-1"}, "pod": {"name": "p"}}})


def test_the_token_says_which_node_this_is():
    assert (from_token(BOUND).node, from_token(BOUND).uid) == ("node-1", "uid-1")


@pytest.mark.parametrize(
    "bad", ["", "a.b", "a.!!!.c", token({}), token([]), token({"kubernetes.io": {"node": {"name": "n", "uid": ""}}})]
)
def test_a_token_that_names_no_node_is_refused(bad):
    with pytest.raises(NotHere):
        from_token(bad)


@pytest.fixture
def proc(tmp_path):
    for pid in ("self", "1"):
        (tmp_path / pid / "ns").mkdir(parents=True)
        for name in ("net", "pid", "ipc"):
            (tmp_path / pid / "ns" / name).symlink_to(f"{name}:[1]")
    return tmp_path


def test_the_node_s_own_namespaces_are_accepted(proc):
    check_namespaces(str(proc), 1)


@pytest.mark.parametrize(("name", "need"), [("net", "hostNetwork"), ("pid", "hostPID"), ("ipc", "hostIPC")])
def test_another_namespace_is_refused_and_says_what_the_pod_needs(proc, name, need):
    (proc / "self" / "ns" / name).unlink()
    (proc / "self" / "ns" / name).symlink_to(f"{name}:[2]")

    with pytest.raises(NotHere, match=need):
        check_namespaces(str(proc), 1)


def test_namespaces_that_cannot_be_read_are_refused_too(proc):
    (proc / "1" / "ns" / "ipc").unlink()

    with pytest.raises(NotHere, match="cannot read"):
        check_namespaces(str(proc), 1)


def test_the_agent_ends_with_its_reason_where_it_cannot_work(proc, tmp_path, capsys):
    (tmp_path / "token").write_text(BOUND)
    arguments = [
        "--server=https://x", f"--proc={proc}", f"--token-file={tmp_path}/token", "--ca-file=", "--node", "node-2",
        f"--journal={tmp_path}/j",
    ]  # fmt: skip
    assert main(arguments) == 3
    assert "node-2" in capsys.readouterr().err


def test_options(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert parse(["--node", "a", "--init-pid=7"])["init-pid"] == "7"
    for wrong in (["--nod", "a"], ["--node"]):
        with pytest.raises(BadOption):
            parse(wrong)
    with pytest.raises(BadOption):
        server_of(parse([]))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    assert server_of(parse([])) == "https://[fd00::1]:6443"


def test_two_agents_never_work_on_one_node_at_once(tmp_path):
    lock = hold_lock(str(tmp_path))
    code = "import sys; from agent.__main__ import hold_lock; hold_lock(sys.argv[1]); print('mine', flush=True)"
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert "waiting for another agent" in other.stderr.readline()
    assert other.poll() is None
    os.close(lock)
    assert other.communicate(timeout=10)[0] == "mine\n"


def test_a_rotated_token_is_read_again(tmp_path):
    file = tmp_path / "token"
    file.write_text("one\n")
    client = Client("http://127.0.0.1:1", token_file=str(file), ca_file=None)
    assert client.token() == "one"
    file.write_text("two\n")
    os.utime(file, (1, 1))
    assert client.token() == "two"


def test_a_status_goes_only_to_the_object_it_answers(monkeypatch):
    """An object recreated under the name has not asked for this status: the first operation tests that."""
    sent = []
    client = Client("http://127.0.0.1:1", token_file="", ca_file=None)
    monkeypatch.setattr(client, "_json", lambda *call: sent.append(call))

    client.write_status("node-1", "object-1", {"step": "step-1"})

    [(method, path, patch, content_type)] = sent
    assert (method, path.rpartition("/")[2], content_type) == ("PATCH", "status", "application/json-patch+json")
    assert patch[0] == {"op": "test", "path": "/metadata/uid", "value": "object-1"}
    assert patch[1:] == [{"op": "add", "path": "/status", "value": {"step": "step-1"}}]


# ── the real host, in folders of its own ──────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def host(tmp_path):
    (tmp_path / "proc/sys/vm").mkdir(parents=True)
    (tmp_path / "proc/sys/vm/swappiness").write_text("60\n")
    return LinuxHost(root=f"{tmp_path}/root", proc=f"{tmp_path}/proc", sys=f"{tmp_path}/sys", init_pid=None)


def test_paths_are_the_node_s_whatever_they_are_mounted_on(host, tmp_path):
    assert host.read_text("/proc/sys/vm/swappiness") == "60\n"
    assert host.read_text("/proc/sys/vm/nothing") is None
    assert host.glob("/proc/sys/*/swappiness") == ["/proc/sys/vm/swappiness"]
    host.persist("/etc/sysctl.d/x.conf", "a\n")
    assert (tmp_path / "root/etc/sysctl.d/x.conf").read_text() == "a\n"
    assert host.glob("/etc/sysctl.d/*.conf") == ["/etc/sysctl.d/x.conf"]
    host.persist("/etc/sysctl.d/x.conf", None)
    host.persist("/etc/sysctl.d/x.conf", None)
    assert list((tmp_path / "root/etc/sysctl.d").iterdir()) == []


def test_a_missing_key_is_never_created(host, tmp_path):
    with pytest.raises(FileNotFoundError):
        host.write_text("/proc/sys/vm/nothing", "1")
    assert not (tmp_path / "proc/sys/vm/nothing").exists()


def test_commands_come_from_the_fixed_list_and_report_how_they_ended(host, tmp_path):
    folder = tmp_path / "root/usr/sbin"
    folder.mkdir(parents=True)
    program = folder / "modprobe"
    program.write_text('#!/bin/sh\necho "got $*"\nexit 3\n')
    program.chmod(0o755)

    assert host.has("modprobe")
    assert not host.has("grubby")
    ran = host.run(Command.MODPROBE, "ib_umad; reboot")
    assert (ran.code, ran.output) == (3, "got -- ib_umad; reboot")
    assert host.run(Command.GRUBBY_ADD, "x=y").code == 127


@pytest.mark.parametrize("target", ["/bin/kmod", "../../bin/kmod", "/usr/bin/../../bin/kmod", "/etc/alternatives/it"])
def test_links_of_the_node_lead_to_its_own_files(host, tmp_path, target):
    """Debian's /usr/sbin/modprobe is a link to /bin/kmod, and the agent's container has no kmod."""
    for folder in ("usr/sbin", "usr/bin", "bin", "etc/alternatives"):
        (tmp_path / "root" / folder).mkdir(parents=True)
    (tmp_path / "root/bin/kmod").write_text("#!/bin/sh\n")
    (tmp_path / "root/bin/kmod").chmod(0o755)
    (tmp_path / "root/etc/alternatives/it").symlink_to("/bin/kmod")
    (tmp_path / "root/usr/sbin/modprobe").symlink_to(target)

    assert host.has("modprobe")
    assert host.read_text("/usr/sbin/modprobe") == "#!/bin/sh\n"


def test_a_link_of_the_node_never_leads_out_of_it(host, tmp_path):
    (tmp_path / "root/etc").mkdir(parents=True)
    (tmp_path / "secret").write_text("the container's\n")
    (tmp_path / "root/etc/out").symlink_to(tmp_path / "secret")
    (tmp_path / "root/etc/up").symlink_to("../../../secret")
    (tmp_path / "root/etc/round").symlink_to("round")

    assert host.read_text("/etc/out") is None
    assert host.read_text("/etc/up") is None
    with pytest.raises(OSError, match="symbolic links"):
        host.read_text("/etc/round")


def test_a_write_that_is_cut_short_leaves_the_old_journal(tmp_path, monkeypatch):
    store = FileStore(str(tmp_path / "journal"))
    store.save("old")

    def cut(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "replace", cut)
    with pytest.raises(OSError, match="Input/output"):
        store.save("new")

    assert store.load() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["journal"]


def test_a_half_written_new_journal_beside_the_old_one_is_ignored(tmp_path):
    journal = Journal(FileStore(str(tmp_path / "journal")))
    journal.content.boot_loader_stale = True
    journal.save()
    (tmp_path / "journal.new").write_text("half a jour")

    assert Journal(FileStore(str(tmp_path / "journal"))).content.boot_loader_stale
    replace_file(str(tmp_path / "journal"), None)
    assert Journal(FileStore(str(tmp_path / "journal"))).corrupt is None


def test_a_journal_that_cannot_be_read_is_not_an_empty_one(tmp_path):
    (tmp_path / "journal").mkdir()

    assert "cannot be read" in (Journal(FileStore(str(tmp_path / "journal"))).corrupt or "")


# ── its own paths, prepared by another user ───────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("prepare", ["link", "hard link", "pipe"])
def test_a_file_prepared_beside_its_own_is_not_written_through(tmp_path, prepare):
    victim, own = tmp_path / "victim", tmp_path / "own"
    victim.write_text("precious")
    beside = tmp_path / "own.new"
    match prepare:
        case "link":
            beside.symlink_to(victim)
        case "hard link":
            beside.hardlink_to(victim)
        case "pipe":
            os.mkfifo(beside)

    replace_file(str(own), "new")

    assert (victim.read_text(), own.read_text()) == ("precious", "new")
    assert not beside.exists()


def test_a_file_of_its_own_that_is_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "own").symlink_to(tmp_path / "victim")

    replace_file(str(tmp_path / "own"), "new")

    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / "own").is_symlink()


def test_a_folder_that_leads_out_of_the_node_is_not_written_to(tmp_path):
    """An absolute link of the node's would end in the agent's own container, and be told as persisted."""
    (tmp_path / "root/etc").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "root/etc/sysctl.d").symlink_to(tmp_path / "elsewhere")
    host = LinuxHost(root=str(tmp_path / "root"), init_pid=None)

    with pytest.raises(OSError, match="not the node's"):
        host.persist("/etc/sysctl.d/99-zz-setpoint.conf", "x")

    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_pipe_among_the_nodes_files_is_not_waited_for(tmp_path):
    (tmp_path / "etc/sysctl.d").mkdir(parents=True)
    os.mkfifo(tmp_path / "etc/sysctl.d/x.conf")
    os.mkfifo(tmp_path / "journal")

    assert LinuxHost(root=str(tmp_path), init_pid=None).read_text("/etc/sysctl.d/x.conf") == ""
    assert Journal(FileStore(str(tmp_path / "journal"))).corrupt


def sealed(body: str) -> str:
    return f"{hashlib.sha256(body.encode()).hexdigest()}\n{body}\n"


@pytest.mark.parametrize(
    "body", ["", "x", "[]", "null", "[" * 100_000, '{"format": 1}', '{"format": 1, "attempt": [], "entries": []}',
             '{"format": 1, "attempt": {"outcomes": 1}, "entries": {"a": 1}}']
)  # fmt: skip
def test_a_journal_with_a_right_digest_and_wrong_content_is_not_believed(tmp_path, body):
    (tmp_path / "journal").write_text(sealed(body))

    assert Journal(FileStore(str(tmp_path / "journal"))).corrupt


@settings(max_examples=200)
@given(cut=st.integers(0, 400), more=st.binary(max_size=8))
def test_a_journal_that_was_cut_or_overwritten_is_not_believed(cut, more):
    saved: list[str] = []

    class Store:
        def load(self):
            return saved[-1] if saved else None

        def save(self, text):
            saved.append(text)

    journal = Journal(Store())
    journal.content.entries["vm.swappiness"] = JournalEntry("60", written="10", done=True)
    journal.save()
    whole = saved[-1].encode()
    saved.append((whole[: cut % len(whole)] + more).decode(errors="replace"))

    again = Journal(Store())

    assert again.corrupt or again.content == journal.content
