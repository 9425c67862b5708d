"""Where checkpoints are kept: files by path under a root, written whole or not at all.

`Store` is the port. `LocalStore` writes under a temporary name, flushes, renames and flushes the
folder, and creates exclusively by a hard link. `ArrowStore` is any other file system of pyarrow:
S3, Google Cloud Storage, and what fsspec knows. There a file appears when its upload ends, nothing
is renamed, and nothing can be created exclusively: pyarrow has no conditional put. `claims.py` does
without. What a store cannot do raises `StoreFailed`; a file that is not there raises `Missing`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol

from plait.checkpoints.config import shown_url
from plait.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TEMPORARY = ".tmp"
"""The folder of files that are being written; what a crash leaves there is swept at a claim."""
ABANDONED_S = 3600.0
"""A temporary file that nobody has written to for this long is left over."""
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class StoreFailed(StateError):
    """The store could not be read or written: it is full, away, or may not be written."""


class Missing(StateError):
    """A file that should be there is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file of a store."""

    path: str
    size_bytes: int


class Store(Protocol):
    """Files under a root. Paths are relative to it, with `/` between their names."""

    exclusive: bool
    """Whether `create` is exclusive, so that of several callers one is told True; and `lock`."""

    def read(self, path: str, most: int) -> bytes:
        """The whole file. Refuses one of more than `most` bytes before it is read."""

    def read_range(self, path: str, at: int, size: int) -> bytes:
        """Bytes of a file. Refuses what is not all within it, before anything is read."""

    def write(self, path: str, data: Sequence[bytes]) -> None:
        """The pieces as one file: whole or not at all, and safe when this returns."""

    def create(self, path: str, data: bytes) -> bool:
        """As `write`, if there is no such file; else False. See `exclusive`."""

    def list(self, folder: str) -> list[Entry]:
        """All files in a folder and the folders in it, by path; none if there is no folder."""

    def delete(self, path: str) -> None:
        """The file is gone, whether it was there or not."""

    def sweep(self, folder: str) -> None:
        """Removes what crashed writers left half written in a folder."""

    def lock(self, path: str) -> Lock | None:
        """A lock held until it is closed; None if it is taken. Where there are no locks, one that
        everybody gets: there the claims alone decide."""


class Lock(Protocol):
    def close(self) -> None: ...


def open_store(url: str) -> Store:
    """The store at a URL or a path."""
    scheme = url.split("://", 1)[0] if "://" in url else ""
    if scheme in ("", "file"):
        return LocalStore(Path(url.removeprefix("file://")))
    import pyarrow
    from pyarrow import fs

    try:
        if scheme in ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs"):
            system, root = fs.FileSystem.from_uri(url)
        else:
            system, root = fsspec_system(url)
    except (OSError, ValueError, TypeError, pyarrow.ArrowException) as error:
        reason = short(error).replace(url, shown_url(url))
        raise StoreFailed(f"{shown_url(url)} cannot be opened: {reason}") from None
    if not root.strip("/"):
        raise StoreFailed(f"{shown_url(url)} cannot be opened: it names no bucket or folder")
    from plait.checkpoints.arrow_store import ArrowStore

    return ArrowStore(system, root)


def fsspec_system(url: str) -> tuple[Any, str]:
    from pyarrow import fs

    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise StoreFailed(
            f"{shown_url(url)} needs fsspec: pip install fsspec, and what it needs for this URL"
        ) from None
    try:
        system, root = url_to_fs(url)
    except ImportError as error:
        raise StoreFailed(f"{shown_url(url)} cannot be opened: {error}") from None
    return fs.PyFileSystem(fs.FSSpecHandler(system)), root


def short(error: BaseException) -> str:
    """The first line of an error, at most 300 characters."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]


def check_path(path: str) -> str:
    """Refuses a path that leads out of the root: paths come from files that are read."""
    parts = PurePosixPath(path).parts
    if not path or path.startswith("/") or ".." in parts or "\0" in path or "\\" in path:
        raise StateError(f"{path!r} is not a path in a checkpoint folder")
    return path


def check_range(path: str, at: int, size: int, length: int) -> None:
    if at < 0 or size < 0 or at + size > length:
        raise StateError(
            f"{path} is damaged: it has {length:,} bytes, and bytes {at:,} to {at + size:,} of it "
            "are named"
        )


def check_length(path: str, size: int, most: int) -> None:
    if size > most:
        raise StateError(f"{path} is refused: it has {size:,} bytes, more than {most:,}")


class LocalStore:
    """A folder of this machine, or one that all machines have mounted."""

    exclusive = True

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root))

    def __repr__(self) -> str:
        return f"LocalStore({str(self.root)!r})"

    def place(self, path: str) -> Path:
        return self.root / check_path(path)

    def read(self, path: str, most: int) -> bytes:
        with self.words("read", path), self.place(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            check_length(path, size, most)
            data = file.read(size)
        if len(data) != size:
            raise StateError(f"{path} is damaged: it became shorter while it was read")
        return data

    def read_range(self, path: str, at: int, size: int) -> bytes:
        with self.words("read", path), self.place(path).open("rb") as file:
            check_range(path, at, size, os.fstat(file.fileno()).st_size)
            file.seek(at)
            data = file.read(size)
        if len(data) != size:
            raise StateError(f"{path} is damaged: it became shorter while it was read")
        return data

    def write(self, path: str, data: Sequence[bytes]) -> None:
        place = self.place(path)
        with self.words("write", path), self.temporary(path, data) as fresh:
            move_into(fresh, place)
            flush_folder(place.parent)

    def create(self, path: str, data: bytes) -> bool:
        place = self.place(path)
        with self.words("write", path):
            make_folder(place.parent)
            if place.exists():
                return False
            with self.temporary(path, [data]) as fresh:
                try:
                    os.link(fresh, place)
                except FileExistsError:
                    return False
                except OSError as error:
                    if error.errno not in NO_LINKS:
                        raise
                    if not create_in_place(place, data):
                        return False
            flush_folder(place.parent)
        return True

    def list(self, folder: str) -> list[Entry]:
        top = self.place(folder)
        found: list[Entry] = []
        with self.words("list", folder):
            for at, folders, files in os.walk(top, onerror=raise_unless_missing):
                folders[:] = [each for each in folders if each != TEMPORARY]
                for name in files:
                    file = Path(at, name)
                    with contextlib.suppress(FileNotFoundError):  # deleted since it was listed
                        size = file.stat().st_size
                        path = file.relative_to(self.root).as_posix()
                        found.append(Entry(path=path, size_bytes=size))
        return sorted(found, key=lambda entry: entry.path)

    def delete(self, path: str) -> None:
        place = self.place(path)
        with self.words("delete", path):
            place.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty, or gone
                place.parent.rmdir()

    def sweep(self, folder: str) -> None:
        with self.words("clean", folder):
            for file in (self.place(folder) / TEMPORARY).glob("*"):
                with contextlib.suppress(FileNotFoundError):  # its writer has ended
                    if time.time() - file.stat().st_mtime > ABANDONED_S:
                        file.unlink()

    def lock(self, path: str) -> Lock | None:
        place = self.place(path)
        with self.words("lock", path):
            make_folder(place.parent)
            file = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                return None
            except OSError:
                os.close(file)
                raise
        return os.fdopen(file, "r+b", buffering=0)

    @contextlib.contextmanager
    def temporary(self, path: str, data: Sequence[bytes]) -> Iterator[Path]:
        """The pieces in a file on the same disk, safe; it is gone afterwards unless renamed."""
        folder = self.root / PurePosixPath(path).parts[0] / TEMPORARY
        make_folder(folder)
        fresh = folder / f"{os.getpid()}-{secrets.token_hex(8)}"
        try:
            with fresh.open("xb") as file:
                for piece in data:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            yield fresh
        finally:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)

    @contextlib.contextmanager
    def words(self, verb: str, path: str) -> Iterator[None]:
        with failures_told(verb, f"{self.root}/{path}"):
            yield


@contextlib.contextmanager
def failures_told(verb: str, path: str) -> Iterator[None]:
    """What a file system raises, as errors of a store."""
    import pyarrow

    try:
        yield
    except FileNotFoundError:
        if verb in ("read", "list"):
            raise Missing(f"{path} is not there") from None
        raise StoreFailed(f"cannot {verb} {path}: its folder is gone") from None
    except (OSError, pyarrow.ArrowException) as error:
        reason = getattr(error, "strerror", None) or short(error)
        raise StoreFailed(f"cannot {verb} {path}: {reason}") from error


def raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it, each safe in the one above."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    flush_folder(folder.parent)


def move_into(fresh: Path, place: Path) -> None:
    """Renames a file into its folder, which another process may remove while it is empty."""
    for _ in range(8):
        make_folder(place.parent)
        try:
            fresh.rename(place)
        except FileNotFoundError:
            if place.parent.is_dir():
                raise
        else:
            return
    raise OSError(errno.EBUSY, "its folder is removed again and again")


def flush_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def create_in_place(place: Path, data: bytes) -> bool:
    """Exclusive creation without links. A crash may leave half of it, as its checksum tells."""
    try:
        with place.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        return False
    return True
