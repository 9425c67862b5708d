"""Object stores: fsspec's memory, and an S3 server."""

from __future__ import annotations

import uuid

import pytest

from tests.unit.checkpoints.conftest import s3_endpoint, s3_url

__all__ = ["s3_endpoint", "s3_url"]


@pytest.fixture(params=["memory", "s3"])
def objects_url(request: pytest.FixtureRequest) -> str:
    """A folder; what follows `?` belongs behind names in it."""
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}/out"
    url: str = request.getfixturevalue("s3_url")
    return url
