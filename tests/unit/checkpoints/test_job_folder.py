"""The door to a job's checkpoints, on every store: claims, chains, parts, savepoints, refusals."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from plait.checkpoints.codec import Key
from plait.checkpoints.job_folder import JobFolder, Overtaken
from plait.checkpoints.manifests import ManifestId, SinkEntry, SourceEntry
from plait.checkpoints.store import LocalStore, StoreFailed, open_store
from plait.errors import JobError, StateError
from tests.unit.checkpoints.stores import FailingStore, Run, State, files, local_run, state_of

if TYPE_CHECKING:
    from pathlib import Path

    from plait.checkpoints.store import Store

A: State = {("count", 0): b"a", ("count", 1): b"b", ("sum", 7): b"\0" * 1000}
B: State = {**A, ("count", 1): b"changed"}


def test_a_checkpoint_comes_back(store: Store) -> None:
    run = Run(store)
    assert run.restore() == {}
    run.checkpoint(A)
    assert state_of(JobFolder(store, "carts"), 1) == A
    assert Run(store).restore() == A


def test_everything_in_a_manifest_comes_back(store: Store) -> None:
    run = Run(store)
    position = {"file": "a.csv", "row": 17, "seen": [1, (2, 3)], "etag": b"\xff", "none": None}
    whole = replace(
        run.manifest(run.save({0: A, 3: {("sum", 9): b"z"}})),
        finished=True,
        at=1.5,
        version="0.1.0",
        bin_bits=8,
        sources=(SourceEntry(id="source:bids", position=position, rows=5),),
        sinks=(SinkEntry(id="sink:out", kind="follower", prepared=["a", 2**63 - 1, -1.5]),),
        counts={"count": tuple(range(9))},
        letters=4,
        settings={"epoch_records": 100},
    )
    run.folder.seal(whole)
    assert JobFolder(store, "carts").read(1) == whole
    assert state_of(run.folder, 1) == {**A, ("sum", 9): b"z"}
    assert run.folder.verify(whole) == 1003


def test_only_wanted_bins_are_read(store: Store) -> None:
    run = Run(store)
    manifest = run.checkpoint(A)
    found = run.folder.read_bins(manifest, lambda *place: place == ("count", 1))
    assert list(found) == [("count", 1, b"b")]


def test_blobs_come_back(store: Store) -> None:
    run = Run(store)
    run.folder.seal(run.manifest(run.save({0: A}, blob=b"letters so far")))
    part = run.folder.read_part(run.folder.read(1).parts[0])
    assert run.folder.read_blob(part.blobs["letters"]) == b"letters so far"


def test_attempts_rise_and_the_newest_is_current(store: Store) -> None:
    first, second = Run(store), Run(store)
    assert (first.claim.attempt, second.claim.attempt) == (1, 2)
    assert first.claim.lineage == second.claim.lineage
    assert second.folder.is_current(second.claim)
    assert not first.folder.is_current(first.claim)
    with pytest.raises(StateError, match="newer run of job 'carts' has taken over"):
        first.checkpoint(A)


def test_many_claims_at_once_get_one_attempt_each(store: Store) -> None:
    ready = threading.Barrier(4)
    claims = []

    def claim() -> None:
        ready.wait()
        claims.append(JobFolder(store, "carts").claim(None))

    threads = [threading.Thread(target=claim) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({claim.attempt for claim in claims}) == 4
    assert len({claim.lineage for claim in claims}) == 1


def test_a_lineage_is_kept_or_refused(store: Store) -> None:
    assert JobFolder(store, "carts").claim("feed").lineage == "feed"
    assert JobFolder(store, "carts").claim("feed").attempt == 2
    with pytest.raises(StateError, match="of lineage feed, not beef"):
        JobFolder(store, "carts").claim("beef")


def test_a_damaged_claim_is_passed_over_while_another_tells(tmp_path: Path) -> None:
    first = local_run(tmp_path).claim
    local_run(tmp_path)
    (tmp_path / "carts" / "attempts" / "000002.claim").write_bytes(b"junk")
    third = local_run(tmp_path).claim
    assert (third.attempt, third.lineage) == (3, first.lineage)
    for file in (tmp_path / "carts" / "attempts").glob("*.claim"):
        file.write_bytes(b"junk")
    with pytest.raises(StateError, match="no claim of job 'carts' can be read"):
        local_run(tmp_path)


def test_a_late_manifest_of_an_older_attempt_does_not_count(store: Store) -> None:
    old = Run(store)
    old.restore()
    old.checkpoint(A)
    late = old.manifest(old.save({0: B}))
    new = Run(store)
    assert new.restore() == A
    with pytest.raises(StateError, match="has taken over"):
        old.folder.seal(late)
    # It looked at the claims before, and wrote after.
    write_late(store, old, late)
    infos = JobFolder(store, "carts").manifests()
    assert [info.id for info in infos] == [ManifestId(1, 1)]
    assert "checkpoint 2 of attempt 1 does not count" in infos[0].passed_over[0]
    sealed = new.checkpoint({("count", 0): b"mine"})
    assert sealed.id == ManifestId(2, 2)
    infos = JobFolder(store, "carts").manifests()
    assert [info.id for info in infos] == [ManifestId(2, 2), ManifestId(1, 1)]
    assert Run(store).restore() == {("count", 0): b"mine"}


def write_late(store: Store, run: Run, manifest: object) -> None:
    from plait.checkpoints.codec import encode
    from plait.checkpoints.manifests import Manifest
    from plait.checkpoints.paths import manifest_path

    assert isinstance(manifest, Manifest)
    store.write(f"carts/{manifest_path(manifest.id)}", [encode(manifest, run.folder.key)])


def test_an_attempt_goes_on_from_an_older_checkpoint(store: Store) -> None:
    run = Run(store)
    run.restore()
    first = run.checkpoint(A)
    run.checkpoint(B)
    again = Run(store)
    again.folder.choose(again.claim, first.id)
    assert [info.number for info in again.folder.manifests()] == [1]
    with pytest.raises(StateError, match="goes on from checkpoint 1 of attempt 1 already"):
        again.folder.choose(again.claim, None)


def test_choosing_is_refused_when_a_newer_run_is_there(store: Store) -> None:
    old = Run(store)
    Run(store)
    with pytest.raises(StateError, match="taken over from attempt 1"):
        old.folder.choose(old.claim, None)


def test_a_damaged_manifest_falls_back_and_says_so(tmp_path: Path) -> None:
    first = local_run(tmp_path)
    first.restore()
    first.checkpoint(A)
    second = local_run(tmp_path)
    second.restore()
    second.checkpoint(B)
    path = tmp_path / "carts" / "manifests" / "000002-000002.plm"
    path.write_bytes(path.read_bytes()[:-1])
    infos = second.folder.manifests()
    assert [info.number for info in infos] == [1]
    assert "checkpoint 2 of attempt 2 is refused" in infos[0].passed_over[0]
    assert "damaged" in infos[0].passed_over[0]
    with pytest.raises(StateError, match="damaged"):
        second.folder.read(2)


@pytest.mark.parametrize("what", ["parts", "chunks", "manifests"])
def test_state_that_is_gone_is_never_an_empty_one(what: str, tmp_path: Path) -> None:
    run = local_run(tmp_path)
    run.restore()
    run.checkpoint(A)
    for file in (tmp_path / "carts" / what).rglob("*.pl*"):
        file.unlink()
    if what == "manifests":
        run = local_run(tmp_path)
        with pytest.raises(StateError, match="no checkpoint 1"):
            run.folder.read(1)
        run.folder.store.write("carts/attempts/000002.from-000001-000001", [b""])
    with pytest.raises(
        StateError, match=r"no checkpoint of job 'carts' can be restored: .*not there"
    ):
        run.folder.manifests()


def test_files_of_another_job_or_lineage_are_refused(tmp_path: Path) -> None:
    mine, other = local_run(tmp_path), local_run(tmp_path, "other")
    twin = local_run(tmp_path / "twin")
    for run in (mine, other, twin):
        run.restore()
        run.checkpoint(A)
    place = tmp_path / "carts" / "manifests" / "000001-000001.plm"
    for folder, words in (("other", "of job 'other'"), ("twin/carts", "of lineage")):
        place.write_bytes((tmp_path / folder / "manifests" / "000001-000001.plm").read_bytes())
        with pytest.raises(StateError, match=words):
            mine.folder.read(1)


def test_a_manifest_under_another_number_is_refused(tmp_path: Path) -> None:
    run = local_run(tmp_path)
    run.restore()
    run.checkpoint(A)
    folder = tmp_path / "carts" / "manifests"
    (folder / "000002-000001.plm").write_bytes((folder / "000001-000001.plm").read_bytes())
    infos = run.folder.manifests()
    assert [info.number for info in infos] == [1]
    assert "is checkpoint 1 of attempt 1, not" in infos[0].passed_over[0]


def test_sealing_may_be_repeated_but_not_changed(store: Store) -> None:
    run = Run(store)
    run.restore()
    first = run.checkpoint(A)
    run.folder.seal(first)
    with pytest.raises(StateError, match="sealed already, with other contents"):
        run.folder.seal(replace(first, letters=1))
    run.checkpoint(B)
    run.folder.seal(first)
    assert [info.number for info in run.folder.manifests()] == [2, 1]


def test_a_torn_manifest_is_sealed_again(store: Store) -> None:
    run = Run(store)
    run.restore()
    first = run.checkpoint(A)
    store.write("carts/manifests/000001-000001.plm", [b"torn"])
    run.folder.seal(first)
    assert state_of(run.folder, 1) == A


def test_a_manifest_follows_the_chain(store: Store) -> None:
    run = Run(store)
    run.restore()
    run.checkpoint(A)
    parts = run.save({0: B})
    for wrong in (None, ManifestId(1, 7)):
        with pytest.raises(StateError, match="the last one of job 'carts' that counts is check"):
            run.folder.seal(replace(run.manifest(parts), parent=wrong))


def test_a_manifest_without_its_files_is_not_sealed(tmp_path: Path) -> None:
    run = local_run(tmp_path)
    run.restore()
    parts = run.save({0: A})
    for file in (tmp_path / "carts" / "chunks").rglob("*.pls"):
        file.unlink()
    with pytest.raises(StateError, match=r"chunks/.* is not there"):
        run.folder.seal(run.manifest(parts))
    assert run.folder.manifests() == []


def test_parts_of_another_checkpoint_are_not_sealed(store: Store) -> None:
    run = Run(store)
    run.restore()
    parts = run.save({0: A})
    run.number += 1
    with pytest.raises(StateError, match="is of another checkpoint"):
        run.folder.seal(run.manifest(parts))


def test_an_abandoned_checkpoint_leaves_a_gap(store: Store) -> None:
    run = Run(store)
    run.restore()
    run.checkpoint(A)
    run.save({0: B})
    run.checkpoint(B)
    assert [info.number for info in run.folder.manifests()] == [3, 1]


def test_savepoints_have_names(store: Store) -> None:
    run = Run(store)
    run.restore()
    saved = run.checkpoint(A, name="before-upgrade")
    run.checkpoint(B)
    assert [info.name for info in run.folder.savepoints()] == ["before-upgrade"]
    assert run.folder.read("before-upgrade") == saved
    assert state_of(run.folder, "before-upgrade") == A
    with pytest.raises(StateError, match="has a savepoint 'before-upgrade' already"):
        run.checkpoint(A, name="before-upgrade")
    with pytest.raises(StateError, match="no savepoint 'x'; there are: before-upgrade"):
        run.folder.read("x")
    with pytest.raises(JobError, match="cannot name a savepoint"):
        run.folder.read("../x")


def test_a_second_run_on_a_local_folder_is_refused(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with JobFolder(store, "carts") as first:
        first.lock()
        with pytest.raises(StateError, match=r"of job 'carts' in .* are in use by another run"):
            JobFolder(store, "carts").lock()
        with JobFolder(store, "other"):
            pass
    with JobFolder(store, "carts"):
        pass


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "Zoë & Söhne", "a b", "%2E", "a\\b"])
def test_any_job_name_has_a_folder_of_its_own(store: Store, name: str) -> None:
    run = Run(store, name)
    run.restore()
    run.checkpoint(A)
    assert state_of(JobFolder(store, name), 1) == A
    assert {entry.path.split("/")[0] for entry in store.list(run.folder.folder)} == {
        run.folder.folder
    }


def test_a_job_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="needs a name"):
        JobFolder(LocalStore(tmp_path), "")


def test_positions_are_plain_data(tmp_path: Path) -> None:
    run = local_run(tmp_path)
    parts = run.save({0: A})
    for value, words in ((object(), "cannot hold a object"), (2**70, "cannot hold this value")):
        source = SourceEntry(id="s", position=value)
        with pytest.raises(StateError, match=words):
            run.folder.seal(replace(run.manifest(parts), sources=(source,)))


class TestKey:
    def test_what_is_not_signed_is_not_read(self, tmp_path: Path) -> None:
        local_run(tmp_path)
        with pytest.raises(StateError, match="not signed, and PLAIT_CHECKPOINT_KEY is set"):
            local_run(tmp_path, key=Key(b"secret"))

    def test_what_is_signed_needs_the_key(self, tmp_path: Path) -> None:
        run = local_run(tmp_path, key=Key(b"secret"))
        run.restore()
        run.checkpoint(A)
        for key, words in ((None, "is signed; set PLAIT"), (Key(b"x"), "signed with another key")):
            with pytest.raises(StateError, match=words):
                JobFolder(LocalStore(tmp_path), "carts", key).manifests()
        again = JobFolder(LocalStore(tmp_path), "carts", Key(b"secret"))
        assert state_of(again, 1) == A

    def test_the_environment_gives_it_and_nothing_shows_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PLAIT_CHECKPOINT_KEY", "open-sesame")
        run = local_run(tmp_path)
        run.restore()
        run.checkpoint(A)
        folder = JobFolder(LocalStore(tmp_path), "carts")
        assert folder.key == Key(b"open-sesame")
        assert "sesame" not in repr(folder) + repr(folder.key) + str(folder.key)
        for path in tmp_path.rglob("*"):
            assert not path.is_file() or b"sesame" not in path.read_bytes()
        monkeypatch.setenv("PLAIT_CHECKPOINT_KEY", "other-sesame")
        with pytest.raises(StateError) as caught:
            JobFolder(LocalStore(tmp_path), "carts").manifests()
        assert "sesame" not in str(caught.value)


def test_a_folder_can_be_moved(tmp_path: Path) -> None:
    run = local_run(tmp_path / "here")
    run.restore()
    run.checkpoint(A)
    (tmp_path / "here").rename(tmp_path / "there")
    assert state_of(JobFolder(open_store(str(tmp_path / "there")), "carts"), 1) == A
    assert files(LocalStore(tmp_path / "here")) == []


class LostAnswer(FailingStore):
    """The next file that it creates is there, and the answer is lost."""

    armed = False

    def create(self, path: str, data: bytes) -> bool:
        made = FailingStore.create(self, path, data)
        if self.armed:
            self.armed = False
            raise StoreFailed("the answer is lost")
        return made


def test_a_seal_whose_answer_is_lost_is_looked_for(tmp_path: Path) -> None:
    store = LostAnswer(LocalStore(tmp_path))
    run = Run(store)
    run.restore()
    store.armed = True
    run.checkpoint({("count", 0): b"1"})
    assert not store.armed
    assert run.folder.read(1).number == 1


def test_a_checkpoint_given_up_that_is_there_after_all(tmp_path: Path) -> None:
    """The next one cannot follow the one before: a decider would be at neither of the two newest.
    The next attempt finds both that count."""
    store = LocalStore(tmp_path)
    run = Run(store)
    run.restore()
    run.checkpoint({("count", 0): b"1"})
    run.folder.seal(run.manifest(run.save({0: {("count", 0): b"2"}})))  # nobody heard of it
    with pytest.raises(Overtaken, match="counts is checkpoint 2 of attempt 1, which was given up"):
        run.checkpoint({("count", 0): b"3"})
    again = Run(store)
    assert again.restore() == {("count", 0): b"2"}
    assert [info.number for info in again.folder.manifests()] == [2, 1]
