"""Build the documentation site into a folder: `make docs`, or `python -m tools.site --to FOLDER`.

Reads the working tree and nothing else: no network, no variable SETPOINT_*, no database but one that is thrown away.
Warnings are errors, so a link or an anchor that leads nowhere ends it. The same tree gives the same bytes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.site import diagrams, pages, rest, variables

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 600
ACCESSIBLE = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
    "<pre>": '<pre tabindex="0">',
}
"""What Sphinx and furo write, and what lets people without a mouse scroll it, and screen readers rank it."""
NOT_FOR_READERS = (".buildinfo", "objects.inv")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.site", description="Build the documentation site.")
    parser.add_argument("--to", type=Path, default=ROOT / "var" / "site", help="folder; what is there is replaced")
    to = parser.parse_args().to.resolve()
    if to.exists() and any(to.iterdir()) and not (to / "searchindex.js").exists():
        sys.exit(f"{to} is not empty, and is no site: name another folder")
    with tempfile.TemporaryDirectory(prefix="setpoint-site-") as folder:
        work = Path(folder)
        stage(work / "source", work / "var")
        build(work / "source", work / "site", work / "doctrees")
        replace(to, work / "site")
    sys.stdout.write(f"{to / 'index.html'}\n")


def stage(to: Path, var: Path) -> None:
    """Lay out the pages as they lie in the repository, so that their links hold, and the generated ones beside them."""
    for name in [*pages.FILES, *(p.relative_to(ROOT).as_posix() for f in pages.FOLDERS for p in (ROOT / f).rglob("*"))]:
        source, target = ROOT / name, to / name
        if source.is_dir():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            text = diagrams.drawn(source.read_text(encoding="utf-8"))
            target.write_text(pages.with_children(name, text), encoding="utf-8")
        else:
            shutil.copyfile(source, target)
    (to / "index.md").write_text(pages.index(), encoding="utf-8")
    (to / "reference").mkdir()
    for name, body in bodies(var).items():
        (to / "reference" / f"{name}.md").write_text(pages.generated(name, body), encoding="utf-8")


def bodies(var: Path) -> dict[str, str]:
    """Return the generated part of each page of the reference."""
    for name in [name for name in os.environ if name.startswith("SETPOINT_")]:
        del os.environ[name]
    os.environ |= {"SETPOINT_VAR": str(var), "DJANGO_SETTINGS_MODULE": "config.settings"}
    import django

    django.setup()
    from tools.site import figures  # models, which need Django set up

    figures.empty_database()
    return {
        "settings": variables.page(ROOT),
        "rest": rest.page(ROOT),
        "metrics": figures.metrics_page(figures.families()),
        "alerts": f"{figures.alerts_page()}\n## Notices\n\n{figures.notices_page()}",
    }


def build(source: Path, to: Path, doctrees: Path) -> None:
    """Run Sphinx. Ends the process with Sphinx's own message when a page has a fault."""
    options = ["-W", "--keep-going", "-q", "-b", "html", "-c", str(Path(__file__).parent), "-d", str(doctrees)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": "0", "PYTHONHASHSEED": "0"}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "sphinx", *options, str(source), str(to)], env=environment, check=False, timeout=SECONDS
    )
    if done.returncode:
        sys.exit(done.returncode)
    for name in NOT_FOR_READERS:
        (to / name).unlink(missing_ok=True)
    for page in to.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for old, new in ACCESSIBLE.items():
            text = text.replace(old, new)
        page.write_text(text, encoding="utf-8")


def replace(old: Path, new: Path) -> None:
    """Put the new site in the place of the old one; a build that failed has changed nothing."""
    old.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(old, ignore_errors=True)
    shutil.move(new, old)


if __name__ == "__main__":
    main()
