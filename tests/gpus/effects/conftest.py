from tests.jobs.conftest import make_world

__all__ = ["make_world"]
