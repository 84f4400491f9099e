"""Parts of a release: notes, images, bills of materials, provenance. `python -m tools.release --help`."""
