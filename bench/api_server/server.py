"""API server with as many pods as asked, some of which come and go all the time: `python -m bench.api_server.server`.

Pods are written out as they are asked for, so a gigabyte of them costs this process nothing to keep. Lists are in pages
of one moment, in the order of namespace and name; watches have bookmarks, and end with 410 where their version is
forgotten. Selectors of phase and node, metadata alone, and gzip are answered as well.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import re
import ssl
import tempfile
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from bench.api_server.objects import FINISHED, HELD_BY_ONE_IN, PENDING, RUNNING, SCHEDULED, Pod, base_pods, rendered
from contract import names
from tests.controlplane.pki import Authority

UID = "0f6d2a52-9a3e-4b7b-8e55-aa0cf1f0b0aa"
"""Of kube-system: the cluster's."""
FORGOTTEN_SECONDS = 300.0
"""After which etcd compacts: a list that is still being read ends with 410."""
KEPT_EVENTS = 100_000
LIFE_SECONDS = (0.0, 0.5, 3.0, 28.0, 30.0)
"""Of a pod that comes and goes: created, scheduled, running, finished, deleted."""
STATES = (PENDING, SCHEDULED, RUNNING, FINISHED)
_WANTED = re.compile(r"(status\.phase|spec\.nodeName)(!?==?)(.*)")


class Change(NamedTuple):
    version: int
    type: str
    pod: Pod


class Pods:
    """All pods, the log of their changes, and moments whose pages are being read."""

    def __init__(self, pods: int, nodes: int) -> None:
        self.nodes = nodes
        self.base = base_pods(pods, nodes)
        self.living: dict[tuple[str, str], Pod] = {}
        """Those that come and go."""
        self.version = pods + 1000
        self.log: deque[Change] = deque(maxlen=KEPT_EVENTS)
        self.changed = threading.Condition()
        self._moments: dict[int, tuple[float, list[Pod]]] = {}

    def put(self, type_: str, pod: Pod) -> Pod:
        with self.changed:
            self.version += 1
            pod = pod._replace(version=self.version)
            if type_ == "DELETED":
                self.living.pop(pod.key, None)
            else:
                self.living[pod.key] = pod
            self.log.append(Change(self.version, type_, pod))
            self.changed.notify_all()
        return pod

    def moment(self) -> int:
        """Keep the pods of this moment, for the pages of a list. Returns its version."""
        with self.changed:
            version, living = self.version, list(self.living.values())
        self._moments = {
            at: kept for at, kept in self._moments.items() if time.monotonic() - kept[0] < FORGOTTEN_SECONDS
        }
        self._moments[version] = (time.monotonic(), sorted([*self.base, *living]))
        return version

    def at(self, version: int) -> list[Pod] | None:
        """Return all pods of a kept moment; None where it is forgotten."""
        kept = self._moments.get(version)
        return kept[1] if kept and time.monotonic() - kept[0] < FORGOTTEN_SECONDS else None

    def after(self, version: int, seconds: float) -> list[Change] | None:
        """Return the changes after a version, waiting for some; None where they are forgotten."""
        with self.changed:
            if self.version <= version:
                self.changed.wait(seconds)
            if self.log and self.log[0].version > version + 1:
                return None
            newest = []
            for change in reversed(self.log):
                if change.version <= version:
                    break
                newest.append(change)
        return newest[::-1]


def churn(pods: Pods, a_second: float, tell: Callable[[Change, float], None]) -> None:
    """Create pods at this rate, for ever, and let each of them live and end."""
    numbers, began = count(), time.monotonic()
    due: list[deque[tuple[float, Pod]]] = [deque() for _ in LIFE_SECONDS]
    born = 0
    while True:
        at = time.monotonic()
        while a_second and born < (at - began) * a_second:
            number = next(numbers)
            is_held = number % HELD_BY_ONE_IN == 0
            name = f"burst-{number // 100:06d}-{number % 100:02d}"
            uid = f"{0xC0000000 + number:08x}-c0de-4000-8000-{number:012x}"
            due[0].append((at, Pod(f"batch-{number % 50:03d}", name, uid, "", PENDING, is_held, 0)))
            born += 1
        for stage, waiting in enumerate(due):
            while waiting and waiting[0][0] <= at:
                since, pod = waiting.popleft()
                type_ = "ADDED" if not stage else "DELETED" if stage == len(STATES) else "MODIFIED"
                node = f"node-{int(pod.uid[-12:], 16) % pods.nodes:05d}" if stage else ""
                state = STATES[min(stage, len(STATES) - 1)]
                pod = pods.put(type_, pod._replace(state=state, node=node))
                tell(Change(pod.version, type_, pod), time.time())
                if stage < len(STATES):
                    wait = LIFE_SECONDS[stage + 1] - LIFE_SECONDS[stage]
                    due[stage + 1].append((since + wait, pod))
        time.sleep(0.005)


def selects(selector: str) -> Callable[[Pod], bool]:
    """Return what a field selector of phase and node asks. Raises ValueError for any other."""
    terms: list[tuple[str, bool, str]] = []
    for part in filter(None, selector.split(",")):
        if not (term := _WANTED.fullmatch(part)):
            raise ValueError(f"field label not supported: {part}")
        terms.append(("phase" if term[1] == "status.phase" else "node", not term[2].startswith("!"), term[3]))
    return lambda pod: all((getattr(pod, name) == value) is is_equal for name, is_equal, value in terms)


@cache
def _node(number: int) -> bytes:
    name = f"node-{number:05d}"
    capacity = {"cpu": "192", "memory": "2048Gi", "pods": "110", "nvidia.com/gpu": "8"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": "2026-11-01T00:00:00Z"}
    return json.dumps(
        {
            "metadata": {
                "name": name, "uid": f"{number:08x}-0de0-4000-8000-000000000000", "resourceVersion": "900",
                "labels": {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
            },
            "spec": {},
            "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]},
        }
    ).encode()  # fmt: skip


def _silence(version: int, seconds: float) -> list[Change]:
    time.sleep(seconds)
    return []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    pods: Pods

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        path = parts.path.split("/")
        with suppress(ConnectionError, ssl.SSLError):
            if parts.path == "/api/v1/pods":
                self._pods(query)
            elif parts.path == "/api/v1/nodes" or path[-1] in (names.PLURAL, "leases"):
                self._others(parts.path, query)
            elif parts.path.endswith("/namespaces/kube-system"):
                self._answer(200, {"kind": "Namespace", "metadata": {"name": "kube-system", "uid": UID}})
            elif parts.path == "/version":
                self._answer(200, {"gitVersion": "v1.35.4"})
            elif len(path) == 7 and path[5] == "pods":
                self._pod(path[4], unquote(path[6]))
            else:
                self._refuse(404, f"nothing is served at {parts.path}")

    def _pod(self, namespace: str, name: str) -> None:
        base, key = self.pods.base, (namespace, name)
        pod = self.pods.living.get(key)
        if pod is None:
            at = bisect_left(base, key)
            pod = base[at] if at < len(base) and base[at].key == key else None
        if pod is None:
            self._refuse(404, f'pods "{name}" not found')
        else:
            self._send([b'{"kind":"Pod","apiVersion":"v1",', rendered(pod)[1:]])

    def _others(self, path: str, query: Mapping[str, str]) -> None:
        if query.get("watch"):
            self._stream(query, _silence, lambda change: b"", "Node")
            return
        numbers = range(self.pods.nodes) if path == "/api/v1/nodes" else range(0)
        limit = int(query.get("limit") or 0) or len(numbers) or 1
        start = int(query.get("continue") or 0)
        page = numbers[start : start + limit]
        more = str(start + limit) if start + limit < len(numbers) else ""
        self._list("NodeList", map(_node, page), {"resourceVersion": "1000", **({"continue": more} if more else {})})

    def _pods(self, query: Mapping[str, str]) -> None:
        is_brief = "as=PartialObjectMetadata" in (self.headers.get("Accept") or "")
        try:
            is_selected = selects(query.get("fieldSelector", ""))
        except ValueError as error:
            self._refuse(400, str(error))
            return
        if query.get("watch"):
            self._watch(query, is_selected, is_brief)
            return
        if token := query.get("continue"):
            try:
                read = json.loads(base64.urlsafe_b64decode(token))
                version, start = int(read["rv"]), int(read["start"])
            except (ValueError, KeyError):
                self._refuse(400, "continue key is not valid")
                return
        else:
            version, start = self.pods.moment(), 0
        everything = self.pods.at(version)
        if everything is None:
            self._refuse(410, "The provided continue parameter is too old")
            return
        limit = int(query.get("limit") or 0) or len(everything)
        page: list[Pod] = []
        while start < len(everything) and len(page) < limit:
            if is_selected(everything[start]):
                page.append(everything[start])
            start += 1
        meta: dict[str, Any] = {"resourceVersion": str(version)}
        if start < len(everything):
            meta["continue"] = base64.urlsafe_b64encode(json.dumps({"rv": version, "start": start}).encode()).decode()
            if not query.get("fieldSelector"):
                meta["remainingItemCount"] = len(everything) - start
        kind = "PartialObjectMetadataList" if is_brief else "PodList"
        self._list(kind, (rendered(pod, is_brief=is_brief) for pod in page), meta)

    def _watch(self, query: Mapping[str, str], is_selected: Callable[[Pod], bool], is_brief: bool) -> None:
        def line(change: Change) -> bytes:
            type_, pod = change.type, change.pod
            if not is_selected(pod):
                return b""
            kind = b"" if is_brief else b'"kind":"Pod","apiVersion":"v1",'
            raw = rendered(pod, is_brief=is_brief)[1:]
            return b'{"type":"%s","object":{%s%s}\n' % (type_.encode(), kind, raw)

        self._stream(query, self.pods.after, line, "Pod")

    def _stream(
        self,
        query: Mapping[str, str],
        after: Callable[[int, float], Sequence[Change] | None],
        line: Callable[[Change], bytes],
        kind: str,
    ) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        version, end = int(query.get("resourceVersion") or 0), time.monotonic() + float(query["timeoutSeconds"])
        bookmark_at = end - 2
        while (left := end - time.monotonic()) > 0:
            changes = after(version, min(left, 0.5))
            if changes is None:
                self._chunk(json.dumps({"type": "ERROR", "object": _status(410, "too old resource version")}) + "\n")
                break
            for change in changes:
                version = change.version
                self._chunk(line(change))
            if time.monotonic() >= bookmark_at:
                marked = {"kind": kind, "metadata": {"resourceVersion": str(version)}}
                self._chunk(json.dumps({"type": "BOOKMARK", "object": marked}) + "\n")
                bookmark_at = end + 1  # once
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _chunk(self, data: bytes | str) -> None:
        raw = data.encode() if isinstance(data, str) else data
        if raw:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))

    def _list(self, kind: str, items: Iterator[bytes], meta: Mapping[str, Any]) -> None:
        head = json.dumps({"kind": kind, "apiVersion": "v1", "metadata": meta})[:-1]
        self._send([f'{head},"items":['.encode(), b",".join(items), b"]}\n"])

    def _answer(self, status: int, body: Mapping[str, Any]) -> None:
        self._send([json.dumps(body).encode()], status)

    def _refuse(self, code: int, message: str) -> None:
        self._answer(code, _status(code, message))

    def _send(self, pieces: Sequence[bytes], status: int = 200) -> None:
        body = b"".join(pieces)
        is_packed = "gzip" in (self.headers.get("Accept-Encoding") or "") and len(body) > 128 * 1024
        if is_packed:
            body = gzip.compress(body, 1)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if is_packed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


def _status(code: int, message: str) -> dict[str, Any]:
    reason = {400: "BadRequest", 404: "NotFound", 410: "Expired"}[code]
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that was killed


def served(pods: Pods) -> tuple[Server, str, str]:
    """Return a server of these pods, its address and its CA."""
    authority = Authority()
    server = Server(("127.0.0.1", 0), type("PodHandler", (Handler,), {"pods": pods}))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "server.pem")
        path.write_text("".join(authority.server(["127.0.0.1"])))
        context.load_cert_chain(path)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return server, f"https://127.0.0.1:{server.server_port}", authority.pem


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--churn", type=float, default=0.0, help="pods a second")
    parser.add_argument("--log", type=Path, required=True, help="file of changes of pods that hold GPUs")
    given = parser.parse_args()
    pods = Pods(given.pods, given.nodes)
    server, url, ca = served(pods)
    print(json.dumps({"url": url, "ca": ca}), flush=True)
    with given.log.open("w", buffering=1) as log:

        def tell(change: Change, at: float) -> None:
            if change.pod.is_held:
                log.write(f"{change.pod.uid} {change.version} {change.type} {change.pod.state} {at}\n")

        threading.Thread(target=churn, args=(pods, given.churn, tell), daemon=True).start()
        server.serve_forever()


if __name__ == "__main__":
    main()
