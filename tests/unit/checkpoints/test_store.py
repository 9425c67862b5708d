"""Every store: whole files, ranges, lists, and words when it fails."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from plait.checkpoints.store import LocalStore, Missing, StoreFailed, open_store
from plait.errors import StateError

if TYPE_CHECKING:
    from pathlib import Path

    from plait.checkpoints.store import Store


def test_what_is_written_is_read(store: Store) -> None:
    store.write("job/a/one", [b"abc", b"", b"def"])
    assert store.read("job/a/one", 100) == b"abcdef"
    assert store.read_range("job/a/one", 2, 3) == b"cde"
    assert store.read_range("job/a/one", 6, 0) == b""
    store.write("job/empty", [])
    assert store.read("job/empty", 0) == b""


def test_files_are_listed_with_their_sizes(store: Store) -> None:
    assert store.list("job") == []
    for path in ("job/b/two", "job/a/one", "jobs/other"):
        store.write(path, [path.encode()])
    assert [(each.path, each.size_bytes) for each in store.list("job")] == [
        ("job/a/one", 9),
        ("job/b/two", 9),
    ]


def test_a_file_is_deleted_once_or_twice(store: Store) -> None:
    store.write("job/a", [b"1"])
    store.delete("job/a")
    store.delete("job/a")
    assert store.list("job") == []
    with pytest.raises(Missing, match="is not there"):
        store.read("job/a", 10)
    with pytest.raises(Missing, match="is not there"):
        store.read_range("job/a", 0, 1)


def test_create_leaves_what_is_there(store: Store) -> None:
    assert store.create("job/a", b"first")
    assert not store.create("job/a", b"second")
    assert store.read("job/a", 10) == b"first"


@pytest.mark.parametrize(("at", "size"), [(0, 4), (3, 1), (-1, 2), (0, 1 << 60), (2, -1)])
def test_a_range_must_be_within_the_file(store: Store, at: int, size: int) -> None:
    store.write("job/a", [b"abc"])
    with pytest.raises(StateError, match="damaged"):
        store.read_range("job/a", at, size)


def test_a_file_that_is_too_long_is_not_read(store: Store) -> None:
    store.write("job/a", [b"abcd"])
    with pytest.raises(StateError, match="more than 3"):
        store.read("job/a", 3)


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "job/../../x", "", "a\0b", "a\\b"])
def test_a_path_stays_under_the_root(store: Store, path: str) -> None:
    for act in (lambda: store.read(path, 9), lambda: store.write(path, [b""])):
        with pytest.raises(StateError, match="not a path"):
            act()


def test_a_large_file_comes_back(store: Store) -> None:
    data = os.urandom(1 << 20) * 12  # more than one part of an upload
    store.write("job/large", [data[: 5 << 20], data[5 << 20 :]])
    assert store.read("job/large", 1 << 30) == data


def test_of_many_creators_one_is_told_true(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    told: list[bool] = []
    ready = threading.Barrier(8)

    def create(number: int) -> None:
        ready.wait()
        told.append(store.create("job/claim", str(number).encode()))

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == [False] * 7 + [True]


def test_a_file_system_without_links_creates_exclusively(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", link)
    store = LocalStore(tmp_path)
    assert store.create("job/a", b"first")
    assert not store.create("job/a", b"second")
    assert store.read("job/a", 10) == b"first"


@pytest.mark.parametrize("broken", ["fsync", "rename"])
def test_a_write_that_fails_leaves_nothing(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    store.write("job/a", [b"old"])

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, broken, fail)
        patch.setattr("pathlib.Path.rename", fail) if broken == "rename" else None
        with pytest.raises(StoreFailed, match="No space left"):
            store.write("job/a", [b"new"])
    assert store.read("job/a", 10) == b"old"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "job" / "a"]


def test_a_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "ckpt").write_text("not a folder")
    store = open_store(str(tmp_path / "ckpt"))
    with pytest.raises(StoreFailed, match="cannot write"):
        store.write("job/a", [b"1"])


def test_what_a_crash_left_is_swept(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.write("job/a", [b"1"])
    for name in ("old", "new"):
        (tmp_path / "job" / ".tmp" / name).write_bytes(b"half")
    os.utime(tmp_path / "job" / ".tmp" / "old", (0, 0))
    assert [each.path for each in store.list("job")] == ["job/a"]
    store.sweep("job")
    assert [path.name for path in (tmp_path / "job" / ".tmp").iterdir()] == ["new"]


def test_a_server_that_is_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "hidden-name")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden-secret")
    options = "endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1"
    store = open_store(f"s3://bucket/x?{options}")
    with pytest.raises(StoreFailed, match="cannot write bucket/x/job/a") as caught:
        store.write("job/a", [b"1"])
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("url", ["s3://", "nothing://x/y", "gs:///"])
def test_a_url_that_cannot_be_opened_is_told(url: str) -> None:
    with pytest.raises(StateError, match="cannot be opened"):
        open_store(url)


def test_a_file_url_is_a_folder(tmp_path: Path) -> None:
    open_store(f"file://{tmp_path}/ckpt").write("job/a", [b"1"])
    assert (tmp_path / "ckpt" / "job" / "a").read_bytes() == b"1"
