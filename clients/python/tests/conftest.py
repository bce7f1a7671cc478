import os

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from mauve_metrics import Mauve
from stub import KEY, stub_service

hypothesis_settings.register_profile(
    "patient",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
hypothesis_settings.load_profile("patient")
for name in ("MAUVE_KEY", "MAUVE_INGEST_URL"):
    os.environ.pop(name, None)


@pytest.fixture
def service():
    with stub_service() as running:
        yield running


@pytest.fixture
def client(service):
    """Return a function that makes clients, which are closed after the test."""
    clients = []

    def make(key=KEY, **options):
        made = Mauve(key, **{"url": service.url, "flush_interval": 0.01, **options})
        clients.append(made)
        return made

    yield make
    for each in clients:
        each.close(0)
