"""A crash at every single operation on the store, before it is done or after: what was sealed stays
whole, and the next run goes on from it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plait.checkpoints.job_folder import JobFolder
from plait.checkpoints.store import LocalStore, StoreFailed
from plait.errors import StateError
from tests.unit.checkpoints.stores import FailingStore, Run, State, files, state_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.checkpoints.store import Store

ONE: State = {("count", bin): bytes([bin]) * 100 for bin in range(8)}
TWO: State = {**ONE, ("count", 3): b"three"}
THREE: State = {**TWO, ("count", 4): b"four", ("sum", 0): b"new"}


def prepare(store: Store) -> None:
    """Three checkpoints and a savepoint by two attempts, an abandoned one, and a late manifest's
    worth of garbage."""
    first = Run(store)
    first.restore()
    first.checkpoint(ONE, name="start")
    first.save({0: TWO})
    second = Run(store)
    second.restore()
    second.checkpoint(ONE)
    second.save({0: THREE})
    second.checkpoint(TWO)


class Inexclusive(LocalStore):
    """Claims as on an object store."""

    exclusive = False


KINDS: dict[str, Callable[[Path], Store]] = {"exclusive": LocalStore, "other": Inexclusive}


def crash_everywhere(
    tmp_path: Path,
    kind: str,
    act: Callable[[Store], object],
    check: Callable[[Store, bool], None],
) -> int:
    """Runs `act` with a crash at its k-th operation, for all k, and `check` after each; the number
    of operations. `check` is told whether `act` came to its end."""
    origin = tmp_path / "origin"
    prepare(KINDS[kind](origin))
    for after in (False, True):
        for k in range(10_000):
            place = tmp_path / f"{after}-{k}"
            shutil.copytree(origin, place)
            store = KINDS[kind](place)
            failing = FailingStore(store, k, after=after)
            ended = True
            try:
                act(failing)
            except StoreFailed:
                ended = False
            check(store, ended)
            shutil.rmtree(place)
            if ended:
                break
        else:
            raise AssertionError("it never ends")
    return k


def check_goes_on(store: Store, expected: tuple[State, ...]) -> None:
    """Another run restores one of the states, and takes a checkpoint; the savepoint is whole."""
    run = Run(store)
    assert run.restore() in expected
    sealed = run.checkpoint(THREE)
    assert state_of(run.folder, sealed.number) == THREE
    assert state_of(run.folder, "start") == ONE
    run.folder.retire(1)
    assert state_of(run.folder, sealed.number) == THREE
    assert state_of(run.folder, "start") == ONE
    assert len([path for path in files(store) if "/manifests/" in path]) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_while_claiming(kind: str, tmp_path: Path) -> None:
    def act(store: Store) -> None:
        JobFolder(store, "carts").claim(None)

    count = crash_everywhere(tmp_path, kind, act, lambda store, _: check_goes_on(store, (TWO,)))
    assert count >= 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_in_a_checkpoint(kind: str, tmp_path: Path) -> None:
    def act(store: Store) -> None:
        run = Run(store)
        run.restore()
        run.checkpoint(THREE)

    def check(store: Store, ended: bool) -> None:
        check_goes_on(store, (THREE,) if ended else (TWO, THREE))

    assert crash_everywhere(tmp_path, kind, act, check) >= 15


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_in_a_savepoint(kind: str, tmp_path: Path) -> None:
    def act(store: Store) -> None:
        run = Run(store)
        run.restore()
        run.checkpoint(THREE, name="named")

    def check(store: Store, ended: bool) -> None:
        folder = JobFolder(store, "carts")
        if ended:
            assert state_of(folder, "named") == THREE
        for info in folder.savepoints():
            folder.verify(folder.read(info.name))
        check_goes_on(store, (THREE,) if ended else (TWO, THREE))

    assert crash_everywhere(tmp_path, kind, act, check) >= 15


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keep", [1, 2])
def test_a_crash_in_retention(kind: str, keep: int, tmp_path: Path) -> None:
    def act(store: Store) -> None:
        JobFolder(store, "carts").retire(keep)

    def check(store: Store, ended: bool) -> None:
        folder = JobFolder(store, "carts")
        infos = folder.manifests()
        assert len(infos) == keep if ended else len(infos) >= keep
        for info in infos[:keep]:
            folder.verify(folder.read(info.number))
        folder.retire(keep)  # what the crash left is found again
        assert folder.retire(keep).size_bytes == 0
        named = named_files(folder, keep)
        left = {path for path in files(store) if "/parts/" in path or "/chunks/" in path}
        assert left == named
        check_goes_on(store, (TWO,))

    assert crash_everywhere(tmp_path, kind, act, check) >= 10


def named_files(folder: JobFolder, keep: int) -> set[str]:
    found: set[str] = set()
    kept = [folder.read(info.number) for info in folder.manifests()[:keep]]
    for manifest in (*kept, folder.read("start")):
        for ref in manifest.parts:
            part = folder.read_part(ref)
            found.update((ref.path, *(chunk.path for chunk in part.chunks)))
    return {f"carts/{path}" for path in found}


@pytest.mark.parametrize("kind", KINDS)
def test_sealing_again_after_a_lost_answer(kind: str, tmp_path: Path) -> None:
    """The same manifest is told again, as after a restart of who tells it."""
    for k in range(100):
        place = tmp_path / str(k)
        store = KINDS[kind](place)
        run = Run(store)
        run.restore()
        run.checkpoint(ONE)
        manifest = run.manifest(run.save({0: TWO}), name="again")
        run.folder.store = FailingStore(store, k, after=True)
        try:
            run.folder.seal(manifest)
            break
        except StoreFailed:
            run.folder.store = store
            run.folder.seal(manifest)
        assert state_of(run.folder, 2) == state_of(run.folder, "again") == TWO
    assert k >= 5


def test_a_read_only_folder_can_be_read() -> None:
    """By a process that may not write there; root may, so it becomes somebody else first."""
    code = """
import os, sys
import msgpack, pyarrow
from plait.checkpoints.job_folder import JobFolder, open_store
from plait.checkpoints.store import StoreFailed
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
folder = JobFolder(open_store(sys.argv[1]), "carts")
print([info.number for info in folder.manifests()], folder.verify(folder.read("start")))
for act in (lambda: folder.claim(None), lambda: folder.lock(), lambda: folder.retire(1)):
    try:
        act()
    except StoreFailed as error:
        print("refused", "Permission denied" in str(error))
"""
    with tempfile.TemporaryDirectory() as top:
        prepare(LocalStore(Path(top, "ckpt")))
        for path in (Path(top), *Path(top).rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        command = [sys.executable, "-c", code, str(Path(top, "ckpt"))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        for path in (Path(top), *Path(top).rglob("*")):
            path.chmod(0o755)
    assert done.stdout.splitlines() == ["[4, 2, 1] 800", *["refused True"] * 3], done.stderr


def test_a_full_store_keeps_what_it_has(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk: real writes really fail."""
    prepare(LocalStore(tmp_path))
    code = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from plait.checkpoints.store import LocalStore, StoreFailed
from tests.unit.checkpoints.stores import Run
from pathlib import Path
run = Run(LocalStore(Path({str(tmp_path)!r})))
run.restore()
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    run.checkpoint({{("count", 1): b"x" * 5000}})
except StoreFailed as error:
    print("File too large" in str(error))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="."
    )
    assert done.stdout.splitlines() == ["True"], done.stderr
    check_goes_on(LocalStore(tmp_path), (TWO,))


def test_a_damaged_savepoint_stops_retention(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    prepare(store)
    store.write("carts/savepoints/start.plm", [b"junk"])
    before = files(store)
    retired = JobFolder(store, "carts").retire(1)
    assert retired.manifests == retired.chunks == 0
    assert "while a savepoint is damaged" in retired.kept_because
    assert files(store) == before


def test_a_damaged_newest_checkpoint_does_not_count_as_kept(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    prepare(store)
    folder = JobFolder(store, "carts")
    store.write("carts/manifests/000004-000002.plm", [b"junk"])
    folder.retire(1)
    assert [info.number for info in folder.manifests()] == [2]
    assert state_of(folder, 2) == ONE


def test_an_old_run_retires_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    old = Run(store)
    old.restore()
    old.checkpoint(ONE)
    old.checkpoint(TWO)
    Run(store)
    before = files(store)
    with pytest.raises(StateError, match="taken over"):
        old.folder.retire(1)
    assert files(store) == before
