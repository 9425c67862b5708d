"""The stores that checkpoints are tested on: a folder, fsspec's memory, and an S3 server."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from typing import TYPE_CHECKING

import pytest

from plait.checkpoints.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from plait.checkpoints.store import Store

SERVER = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

app = DomainDispatcherApplication(create_backend_app)
server = make_server("127.0.0.1", 0, app, threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of moto's S3 server, in a process of its own on a free port."""
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SERVER],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()
        assert server.stdout is not None
        server.stdout.close()


@pytest.fixture
def s3_url(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket of its own."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    bucket = f"b{uuid.uuid4().hex}"
    request = urllib.request.Request(f"http://{s3_endpoint}/{bucket}", method="PUT")
    for _ in range(50):
        try:
            with urllib.request.urlopen(request, timeout=10):
                break
        except urllib.error.URLError:
            time.sleep(0.1)
    else:
        raise AssertionError("the S3 server does not answer")
    options = f"endpoint_override={s3_endpoint}&scheme=http&region=us-east-1"
    return f"s3://{bucket}/checkpoints?{options}"


@pytest.fixture(params=["local", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Every test with it runs on each kind of store."""
    if request.param == "local":
        return open_store(str(tmp_path / "ckpt"))
    if request.param == "memory":
        return open_store(f"memory://{uuid.uuid4().hex}/ckpt")
    return open_store(request.getfixturevalue("s3_url"))
