from __future__ import annotations

import fcntl
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from common import stopping
from config import embedded, private
from config.demo import fleet, hands, people, stock
from config.demo.environment import MARK
from config.demo.history import BARE, DemoHistory
from config.demo.journey import Journey
from simfleet.live import Ticker

HOST = "127.0.0.1"
BEGAN = timedelta(days=13)
"""Before the present: when the demo's history begins."""
DATABASE = ("setpoint.sqlite3", "setpoint.sqlite3-wal", "setpoint.sqlite3-shm")


class Command(BaseCommand):
    help = "Setpoint with simulated clusters, a history and people to log in as. On 127.0.0.1, new at every start."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=int, default=8000, help="0 takes a free one.")
        parser.add_argument(
            "--nodes",
            type=int,
            default=fleet.LEAST_NODES,
            help=f"Of the first cluster, {fleet.LEAST_NODES} to {fleet.MOST_NODES}; default %(default)s.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if os.environ.get(MARK) != str(settings.VAR):
            raise CommandError("The demo throws its database away: it runs only as `python manage.py demo`.")
        try:
            sites = fleet.sites(options["nodes"])
        except ValueError as error:
            raise CommandError(f"{error} Try: make demo NODES=500") from None
        settings.SETPOINT_GPU_SECONDS = fleet.reading_seconds(options["nodes"])
        stop, is_made = stopping.at_signals(), threading.Event()
        threading.Thread(target=_leave, args=(stop, is_made), name="leaving", daemon=True).start()
        with _alone(settings.VAR), _listening(options["port"]) as listener:
            self._run(listener, sites, settings.VAR.parent / "demo.env", stop, is_made)

    def _run(
        self,
        listener: socket.socket,
        sites: Sequence[fleet.Site],
        file: Path,
        stop: threading.Event,
        is_made: threading.Event,
    ) -> None:
        began = time.monotonic()
        by_hand = file.with_name(hands.FILE)
        for old in (file, by_hand):  # what they say is over
            old.unlink(missing_ok=True)
        private.settle()
        for name in (*DATABASE, "audit-heads.log"):  # the heads of a record that is gone
            (settings.VAR / name).unlink(missing_ok=True)
        call_command("migrate", interactive=False, verbosity=0)
        journey = Journey()
        with ExitStack() as world:
            with journey.from_long_ago(BEGAN):
                served = world.enter_context(fleet.serving(sites, journey))
                everybody = people.arrive()
                stock.fill(by=everybody["admin"].part.email)
                users = {name: person.user for name, person in everybody.items()}
                DemoHistory(served, users, journey, say=self._say).make()
            connections.close_all()
            with Ticker([entry.sim for entry in served.values()]):
                is_made.set()
                running = embedded.start(listener=listener)
                embedded.lead_links_to(running.url)
                try:
                    left = fleet.left_to_connect(served, settings.VAR)
                    ways = {name: entry.by_hand for name, entry in served.items() if entry.site.is_connected}
                    people.write_private(by_hand, hands.kubeconfig(ways, BARE))
                    values = people.environment(everybody, running.url) | left
                    self._welcome(running.url, file, everybody, time.monotonic() - began)
                    people.write(file, values)  # last: a program that waits for it finds everything ready
                    stop.wait()
                finally:
                    is_quiet = running.stop()
                    file.unlink(missing_ok=True)
                    by_hand.unlink(missing_ok=True)
                    if not is_quiet:
                        embedded.leave()

    def _say(self, text: str) -> None:
        self.stdout.write(f"  {text}")
        self.stdout.flush()

    def _welcome(self, url: str, file: Path, everybody: dict[str, people.DemoPerson], seconds: float) -> None:
        lines = [
            f"\nSetpoint's demo is at {url} (ready after {seconds:.0f} s; Ctrl-C ends it)\n",
            *(f"  {person.part.email:<22} {person.password:<18} {person.part.does}" for person in everybody.values()),
            f"\nURL, tokens and passwords for programs: {file}",
            f"The simulated clusters, for kubectl: {file.with_name(hands.FILE)}",
        ]
        self.stdout.write("\n".join(lines))
        self.stdout.flush()


def _leave(stop: threading.Event, is_made: threading.Event) -> None:
    """End the process at once while the demo is being made: its database is thrown away at the next start anyway.

    An exception in the main thread instead would end it only where nothing on its way suppresses it.
    """
    stop.wait()
    if not is_made.is_set():
        embedded.leave()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two demos in one folder would throw each other's database away. Raises CommandError."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(
                f"A demo runs in {folder} already. SETPOINT_VAR=/another/folder allows a second."
            ) from None
        yield


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    """Listen at the port, before anything is thrown away and while the demo is made; 0 takes a free one.

    An early visitor waits for the page. Raises CommandError.
    """
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
            listener.listen()
        except (OSError, OverflowError) as error:
            raise CommandError(f"Port {port} cannot be used ({error}). PORT=8001 make demo takes another.") from error
        yield listener
