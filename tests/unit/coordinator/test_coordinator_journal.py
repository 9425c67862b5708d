"""The journal and its bytes: what is written comes back, torn tails are cut, damage is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.coordinator.journal.codec import VERSION, decode, encode
from plait.coordinator.journal.store import FileJournal, MemoryJournal, frame, unframe
from plait.coordinator.machine.state import JobWatch, State
from plait.coordinator.machine.step import step
from plait.coordinator.messages.events import (
    Asked,
    Fact,
    HostsSeen,
    LoadsKnown,
    NodeMade,
    Restarted,
    WaitDone,
)
from plait.coordinator.messages.hosts import HostView
from plait.coordinator.messages.requests import Rescale, Submit
from plait.coordinator.messages.spec import JobSpec, PartSpec, Policy, SourceSpec
from plait.coordinator.shell.manager import recover
from plait.errors import StateError
from plait.protocol.messages import Peer

if TYPE_CHECKING:
    from pathlib import Path

SPEC = JobSpec(
    name="job",
    payload="key",
    token="secret",
    bin_bits=6,
    sources=(SourceSpec(label="in", splits=True),),
    nodes=2,
    parts=(
        PartSpec(name="in", kind="rows", sources=(0,), queries=("out",)),
        PartSpec(name="sinks", kind="sinks", inputs=(0,), queries=("out",)),
    ),
)
HOSTS = (HostView(host="a", cores=4, cpu_ratio=None), HostView(host="b", cores=4, cpu_ratio=0.5))


def made(rank: int) -> NodeMade:
    peer = Peer(rank=rank, host="a", port=7000 + rank)
    return NodeMade(at=3.0, job="job", rank=rank, host="a", peer=peer, pid=10 + rank)


FACTS: list[Fact] = [
    Restarted(at=0.5, cause="start"),
    Asked(at=1.0, cause="client", request_id="r1", request=Submit(spec=SPEC)),
    HostsSeen(at=2.0, hosts=HOSTS),
    made(0),
    made(1),
    WaitDone(at=4.0, job="job", wait=4),
    WaitDone(at=5.0, job="job", wait=5),
    Asked(at=6.0, request_id="r2", request=Rescale(job="job", nodes=1, strategy="batched")),
    LoadsKnown(
        at=7.0,
        job="job",
        wait=7,
        bins=tuple(range(64)),
        records=tuple(range(64)),
        sizes=(1 << 40,) * 64,
    ),
]


def after(facts: list[Fact]) -> State:
    state = State()
    for fact in facts:
        state, _ = step(state, fact)
    return state


def durable(state: State) -> State:
    """Without what a restart forgets."""
    jobs = {name: replace(job, watch=JobWatch()) for name, job in state.jobs.items()}
    return replace(state, jobs=jobs)


def test_facts_and_states_come_back_equal() -> None:
    assert [decode(encode(fact)) for fact in FACTS] == FACTS
    state = after(FACTS)
    assert state.jobs["job"].change is not None, "the facts lead into a rescale"
    assert decode(encode(state)) == durable(state)


def test_unknown_kinds_and_versions_are_refused() -> None:
    def packed(value: object, version: int = VERSION) -> bytes:
        return bytes(msgpack.packb([version, value]))

    for data, word in [
        (packed(["d", "Popen", {}]), "newer version"),
        (packed(["d", "Tick", {"at": 1.0, "zone": 1}]), "Tick.zone"),
        (packed(["d", "Tick", {}]), "lacks a field"),
        (packed(["z", 1]), "unknown kind"),
        (packed(1, version=99), "version 99"),
        (b"\xc1", "not a record"),
    ]:
        with pytest.raises(StateError, match=word):
            decode(data)
    with pytest.raises(StateError, match="cannot be journalled"):
        encode(object())


def test_a_file_journal_comes_back_and_goes_on(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal")
    assert journal.load() == (None, [])
    journal.append(FACTS[:4])
    journal.append(FACTS[4:5])
    journal.close()
    journal = FileJournal(tmp_path / "journal")
    assert journal.load() == (None, FACTS[:5])
    journal.snapshot(after(FACTS[:5]))
    journal.append(FACTS[5:])
    journal.close()
    journal = FileJournal(tmp_path / "journal")
    state, latest = recover(journal, Policy())
    journal.close()
    assert durable(state) == durable(after(FACTS))
    assert latest == 7.0
    assert {path.name for path in (tmp_path / "journal").iterdir()} == {
        "lock",
        "snapshot-1",
        "facts-1",
    }
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "journal").iterdir())


def test_two_coordinators_cannot_have_one_journal(tmp_path: Path) -> None:
    first = FileJournal(tmp_path)
    with pytest.raises(StateError, match="in use by another coordinator"):
        FileJournal(tmp_path)
    first.close()
    FileJournal(tmp_path).close()


def test_a_torn_tail_is_cut_at_every_byte(tmp_path: Path) -> None:
    whole = b"".join(frame(encode(fact)) for fact in FACTS[:3])
    before = b"".join(frame(encode(fact)) for fact in FACTS[:2])
    for length in range(len(before), len(whole)):
        records, good = unframe(whole[:length])
        assert (len(records), good) == (2, len(before))
    assert unframe(before + b"\0" * 40) == unframe(before)
    path = tmp_path / "facts-0"
    path.write_bytes(whole[:-1])
    journal = FileJournal(tmp_path)
    assert journal.load() == (None, FACTS[:2])
    journal.append(FACTS[2:3])
    journal.close()
    assert path.read_bytes() == whole


@given(data=st.data())
def test_damage_before_the_end_is_refused(data: st.DataObject) -> None:
    frames = [frame(encode(fact)) for fact in FACTS[:4]]
    whole = bytearray(b"".join(frames))
    at = data.draw(st.integers(0, len(whole) - len(frames[-1]) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(StateError, match="damaged"):
        unframe(bytes(whole))


@given(st.binary(max_size=200))
def test_any_bytes_are_records_a_tail_or_refused(data: bytes) -> None:
    try:
        records, good = unframe(data)
    except StateError:
        return
    assert sum(len(one) + 12 for one in records) == good <= len(data)


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path)
    journal.load()
    journal.snapshot(after(FACTS))
    journal.close()
    path = tmp_path / "snapshot-1"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    journal = FileJournal(tmp_path)
    with pytest.raises(StateError, match="damaged"):
        journal.load()
    journal.close()


def test_a_memory_journal_tells_the_same() -> None:
    journal = MemoryJournal()
    journal.append(FACTS)
    assert MemoryJournal(facts=bytes(journal.facts)).load() == (None, FACTS)
