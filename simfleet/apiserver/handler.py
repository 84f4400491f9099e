"""One connection to a simulated API server: requests, answers, watches."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from simfleet.apiserver import discovery, tokens, wire
from simfleet.apiserver.callers import Caller
from simfleet.apiserver.faults import Outage
from simfleet.apiserver.paths import RequestTarget, parse, proxied
from simfleet.apiserver.resources import Resource
from simfleet.apiserver.store import ApiError, Change, Stored

if TYPE_CHECKING:
    from simfleet.http import Server

MAX_BODY = 3 * 1024 * 1024
"""The API server's own limit of a request body."""
WATCH_SECONDS = 1800.0
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "simfleet"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: the audit log tells."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the Date header by the cluster's clock, which a test or the demo may have moved: agents judge by it a
        grant's end."""
        return super().date_time_string(self.server.door.cluster.clock.now().timestamp())

    def end_headers(self) -> None:
        """Forbid caching, as real API servers do: helm and kubectl keep answers on disk; one dated in the future counts
        as fresh."""
        self.send_header("Cache-Control", "no-cache, private")
        super().end_headers()

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def do_PATCH(self) -> None:
        self._serve("PATCH")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    # ── one request ───────────────────────────────────────────────────────────────────────────────────────────────
    def _serve(self, method: str) -> None:
        door = self.server.door
        url = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        if door.cluster.faults.latency:
            time.sleep(door.cluster.faults.latency)
        try:
            sent = self._sent()
            if door.cluster.faults.outage:
                raise Outage("simulated outage")
            caller = self._caller()
            if self._describe(url.path):
                return
            target = parse(url.path, door.cluster.store.resources)
            if (way := proxied(url.path)) and method == "GET":
                code, body = door.cluster.proxies.get(caller, way, query)
                self._bytes(code, body, content_type="text/plain; version=0.0.4; charset=utf-8")
            elif target is None:
                self._plain(404, b"404 page not found\n")
            else:
                self._answer(method, caller, target, query, sent)
        except ApiError as error:
            self._status(error)
        except Outage:
            self.close_connection = True  # without an answer, as a broken connection gives none

    def _describe(self, path: str) -> bool:
        """Answer discovery and health paths, for every authenticated caller; return whether the path is one of them."""
        cluster = self.server.door.cluster
        if path in ("/healthz", "/livez", "/readyz"):
            self._plain(200, b"ok")
            return True
        if path == "/version":
            parts = cluster.version.removeprefix("v").split(".")
            version = {"major": parts[0], "minor": parts[1], "gitVersion": cluster.version, "platform": "linux/amd64"}
            self._json(200, version)
            return True
        with cluster.lock:
            document_and_kind = discovery.answer(path, self.headers.get("Accept") or "", cluster.store.resources)
        if document_and_kind is None:
            return False
        document, kind = document_and_kind
        body = discovery.EMPTY_V2 if kind == discovery.OPENAPI_V2 else json.dumps(document).encode()
        self._bytes(200, body, content_type=kind or "application/json")
        return True

    def _sent(self) -> bytes:
        """The request's body. Raises ApiError 400, 413."""
        length = wire.whole(self.headers, "Content-Length")
        if length > MAX_BODY:
            self.close_connection = True  # the rest of it would be taken for the next request
            raise ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_BODY}")
        return self.rfile.read(length)

    def _caller(self) -> Caller:
        """Raises ApiError 401."""
        kind, _, token = (self.headers.get("Authorization") or "").partition(" ")
        caller = self.server.door.caller(token) if kind == "Bearer" else None
        if caller is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return caller

    def _answer(self, method: str, caller: Caller, at: RequestTarget, query: Mapping[str, str], sent: bytes) -> None:
        if at.plural in ("selfsubjectaccessreviews", "subjectaccessreviews"):
            self._review(caller, wire.body(sent), at.plural)
        elif method == "GET" and (at.plural, at.subresource) == ("pods", "log") and at.name:
            printed = self.server.door.cluster.api.log(caller, at.name, at.namespace)
            limit = wire.whole(query, "limitBytes") or len(printed)
            self._bytes(200, printed[:limit], content_type="text/plain; charset=utf-8")
        elif method == "GET" and at.name:
            stored = self.server.door.cluster.api.get(caller, at.plural, at.name, at.namespace)
            self._stored(200, self._resource(at), stored)
        elif method == "GET" and query.get("watch") in ("1", "true"):
            self._watch(caller, at, query)
        elif method == "GET":
            self._list(caller, at, query)
        else:
            self._write(method, caller, at, query, sent)

    def _write(self, method: str, caller: Caller, at: RequestTarget, query: Mapping[str, str], sent: bytes) -> None:
        api, resource = self.server.door.cluster.api, self._resource(at)
        dry_run = wire.is_dry(query)
        manager = query.get("fieldManager") or (self.headers.get("User-Agent") or "unknown").partition("/")[0]
        match (method, bool(at.name), at.subresource):
            case ("POST", True, "eviction") if at.plural == "pods":
                api.evict(caller, at.name, at.namespace, wire.body(sent))
                success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
                self._json(201, success)
            case ("POST", True, "token") if at.plural == "serviceaccounts":
                self._json(201, tokens.issued(self.server.door, caller, at.namespace, at.name, wire.body(sent)))
            case ("POST", False, ""):
                created = api.create(caller, at.plural, wire.body(sent), at.namespace, manager=manager, dry_run=dry_run)
                self._stored(201, resource, created)
            case ("PUT", True, "" | "status"):
                body = wire.placed(wire.body(sent), at)
                replaced = api.replace(
                    caller, at.plural, body, subresource=at.subresource, manager=manager, dry_run=dry_run
                )
                self._stored(200, resource, replaced)
            case ("PATCH", True, "" | "status"):
                with self.server.door.cluster.lock:
                    was_there = self.server.door.cluster.store.find(at.plural, at.name, at.namespace)
                    patched = self._patch(caller, at, query, sent, manager)
                self._stored(200 if was_there else 201, resource, patched)
            case ("DELETE", True, ""):
                # The options come from the body; only without one are they looked for in the query.
                options = wire.body(sent) if sent else wire.options(query)
                conditions = options.get("preconditions") or {}
                gone = api.delete(
                    caller,
                    at.plural,
                    at.name,
                    at.namespace,
                    uid=conditions.get("uid", ""),
                    version=conditions.get("resourceVersion", ""),
                    grace=options.get("gracePeriodSeconds"),
                    policy=options.get("propagationPolicy", ""),
                    dry_run=options.get("dryRun") == ["All"],
                )
                self._stored(200, resource, gone)
            case _:
                raise ApiError(
                    405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
                )

    def _patch(self, caller: Caller, at: RequestTarget, query: Mapping[str, str], sent: bytes, manager: str) -> Stored:
        api, kind = self.server.door.cluster.api, (self.headers.get("Content-Type") or "").partition(";")[0]
        body = wire.body(sent)
        if kind == "application/apply-patch+yaml":
            if "fieldManager" not in query:
                raise ApiError(422, "Invalid", "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value")
            force, dry_run = query.get("force") == "true", wire.is_dry(query)
            return api.apply(
                caller, at.plural, at.name, body, at.namespace, manager=manager, force=force, dry_run=dry_run
            )
        if kind not in (MERGE, STRATEGIC):
            raise ApiError(415, "UnsupportedMediaType", "the body of the request was in an unknown format", causes=())
        return api.patch(
            caller,
            at.plural,
            at.name,
            body,
            at.namespace,
            subresource=at.subresource,
            manager=manager,
            is_strategic=kind == STRATEGIC,
            dry_run=wire.is_dry(query),
        )

    def _resource(self, at: RequestTarget) -> Resource:
        return self.server.door.cluster.store.resources[at.plural].at(at.version)

    def _review(self, caller: Caller, body: Mapping[str, Any], plural: str) -> None:
        """All but the parts of the cluster are held to the same rights here, so it is no matter whom one asks about."""
        attributes = (body.get("spec") or {}).get("resourceAttributes") or {}
        resource = "/".join(
            part for part in (attributes.get("resource", ""), attributes.get("subresource", "")) if part
        )
        allowed = self.server.door.cluster.api.review(caller, attributes.get("verb", ""), resource, plural)
        status = {"allowed": allowed} | ({} if allowed else {"reason": "simulated RBAC"})
        self._json(201, dict(body) | {"status": status})

    def _list(self, caller: Caller, at: RequestTarget, query: Mapping[str, str]) -> None:
        resource = self._resource(at)
        page = self.server.door.cluster.api.list(
            caller,
            at.plural,
            at.namespace or None,
            fields=query.get("fieldSelector", ""),
            labels=query.get("labelSelector", ""),
            limit=wire.whole(query, "limit"),
            token=query.get("continue", ""),
        )
        metadata: dict[str, Any] = {"resourceVersion": str(page.rv)}
        if page.next:
            metadata |= {"continue": page.next, "remainingItemCount": page.remaining}
        head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
        items = (wire.named(resource, s) if resource.custom else s.encoded() for s in page.items)
        if wire.is_metadata_wanted(self.headers.get("Accept") or ""):
            head |= {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
            items = (wire.metadata_only(s) for s in page.items)
        self._bytes(200, json.dumps(head)[:-1].encode() + b',"items":[' + b",".join(items) + b"]}")

    # ── watching ──────────────────────────────────────────────────────────────────────────────────────────────────
    def _watch(self, caller: Caller, at: RequestTarget, query: Mapping[str, str]) -> None:
        """Events as chunks, one JSON object a line, until the time asked for is over."""
        resource, cluster = self._resource(at), self.server.door.cluster
        is_partial = wire.is_metadata_wanted(self.headers.get("Accept") or "")

        def encoded(stored: Stored) -> bytes:
            return wire.metadata_only(stored) if is_partial else wire.named(resource, stored)

        fields, labels = query.get("fieldSelector", ""), query.get("labelSelector", "")
        since = wire.whole(query, "resourceVersion")
        first: list[Stored] = []
        is_list = wire.is_list_wanted(query)
        if not since or is_list:
            page = cluster.api.list(caller, at.plural, at.namespace or None, fields=fields, labels=labels)
            first, since = page.items, page.rv
        events = cluster.api.watch(
            caller,
            at.plural,
            since,
            at.namespace or None,
            timeout=wire.whole(query, "timeoutSeconds") or WATCH_SECONDS,
            bookmarks=query.get("allowWatchBookmarks") == "true",
            fields=fields,
            labels=labels,
        )
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for stored in first:
                self._chunk(wire.event("ADDED", encoded(stored)))
            if is_list:
                self._chunk(wire.event("BOOKMARK", wire.bookmark(resource, since, is_initial=True)))
            self.wfile.flush()
            for event in events:
                if isinstance(event, Change):
                    self._chunk(wire.event(event.type, encoded(event.now)))
                else:
                    self._chunk(wire.event("BOOKMARK", wire.bookmark(resource, event)))
                self.wfile.flush()
        except ApiError as error:
            self._chunk(wire.event("ERROR", json.dumps(error.status()).encode()))
        if cluster.faults.outage:
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, line: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))

    # ── answering ─────────────────────────────────────────────────────────────────────────────────────────────────
    def _stored(self, code: int, resource: Resource, stored: Stored) -> None:
        self._bytes(code, wire.named(resource, stored))

    def _status(self, error: ApiError) -> None:
        self._bytes(error.code, json.dumps(error.status()).encode(), retry_after=error.retry_after)

    def _json(self, code: int, body: Mapping[str, Any]) -> None:
        self._bytes(code, json.dumps(body).encode())

    def _plain(self, code: int, body: bytes) -> None:
        self._bytes(code, body, content_type="text/plain; charset=utf-8")

    def _bytes(
        self, code: int, body: bytes, *, content_type: str = "application/json", retry_after: int | None = None
    ) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if retry_after:
            self.send_header("Retry-After", str(retry_after))
        self.end_headers()
        self.wfile.write(body)
