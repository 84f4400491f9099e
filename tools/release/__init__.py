"""What a release consists of: notes, images, bills of materials, provenance. `python -m tools.release --help`."""
