"""One broker for all tests here; each test makes its own topics."""

from __future__ import annotations

import gc
import warnings
from typing import TYPE_CHECKING

import pytest

from plait.testing.broker import LocalBroker, broker
from tests.integration.kafka.authority import Authority, make_authority

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSWORD = "canary-7f3a"


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def kafka(authority: Authority) -> Iterator[LocalBroker]:
    with broker(users={"ann": PASSWORD}, certificate=authority.broker) as running:
        yield running


@pytest.fixture(autouse=True)
def no_socket_for_the_next_test(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """kafka-python leaves sockets open where it could not connect; they go with the test. What it
    logged holds on to them, and pytest to that."""
    yield
    caplog.get_records("call").clear()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"unclosed <(socket|ssl)", ResourceWarning)
        gc.collect()
