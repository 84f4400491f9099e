from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from components.catalog import docs, site


class Command(BaseCommand):
    help = "Compare docs/components with the catalog, or write it: a page for each component's presets and hazards."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--write", action="store_true", help="write what differs, and delete what is gone")

    def handle(self, *args: Any, **options: Any) -> None:
        folder = Path(settings.BASE_DIR) / "docs" / "components"
        with site.switched_off():  # the documents are of what comes with Setpoint
            expected = docs.everything()
        present = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
        stale = sorted(name for name in expected.keys() | present.keys() if expected.get(name) != present.get(name))
        if not options["write"]:
            if stale:
                raise CommandError(f"not current: {', '.join(stale)}; run `manage.py component_docs --write`")
            self.stdout.write("docs/components is what the catalog says")
            return
        folder.mkdir(exist_ok=True)
        for name in stale:
            if name in expected:
                (folder / name).write_text(expected[name], encoding="utf-8")
            else:
                (folder / name).unlink()
            self.stdout.write(f"{name}: {'written' if name in expected else 'deleted'}")
