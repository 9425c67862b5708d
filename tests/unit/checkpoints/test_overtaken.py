"""A run that another has overtaken, as on a store without locks: it shows nothing any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import plait
from plait.checkpoints.job_folder import JobFolder
from plait.checkpoints.store import LocalStore

if TYPE_CHECKING:
    from pathlib import Path


def numbers(folder: Path) -> plait.Job:
    job = plait.Job("numbers")
    job.source([{"n": n} for n in range(100)]).sink(plait.Files(folder / "out", "jsonl"), "out")
    return job


def test_another_claims_while_the_manifest_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last look at the claims is before that, and the manifest comes too late to count."""
    create = LocalStore.create
    others: list[JobFolder] = []

    def claimed_meanwhile(store: LocalStore, path: str, data: bytes) -> bool:
        if "manifests/000001" in path and not others:
            other = JobFolder(LocalStore(tmp_path / "saved"), "numbers")
            others.append(other)
            claim = other.claim(None)
            other.choose(claim, other.manifests()[0].id)
        return create(store, path, data)

    monkeypatch.setattr(LocalStore, "create", claimed_meanwhile)
    with pytest.raises(plait.CheckpointError, match="has taken over"):
        plait.run(numbers(tmp_path), checkpoint=str(tmp_path / "saved"), progress=False)
    [other] = others
    assert [info.number for info in other.manifests()] == [0]
    assert not [path for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")]
    monkeypatch.undo()
    result = plait.run(numbers(tmp_path), checkpoint=str(tmp_path / "saved"), progress=False)
    assert result.account.read == 100
