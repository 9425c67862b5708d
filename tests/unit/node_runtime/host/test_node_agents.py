"""Nodes of a job in this process: who reads, what their loads are, hearts and payloads."""

from __future__ import annotations

import ctypes
import pickle
import socket
from typing import TYPE_CHECKING

import pyarrow as pa

import plait
from plait.coordinator.shell.beats import BEAT_BYTES, KEY_BYTES, BeatListener
from plait.execution.local_run import graph_of
from plait.model.settings import Settings
from plait.node_runtime.host.agent import NodeAgent, load_payload
from plait.node_runtime.native._cluster import NativeHeart
from plait.protocol.messages import EVERYONE, Begin, Done, Drop, End, Layout, Prepare
from plait.results.outcomes import merge_outcomes

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS = 100_000


def begin(job: plait.Job, owners: Sequence[int], nodes: int) -> list[NodeAgent]:
    """These nodes run the job; their links are up."""
    payload = pickle.dumps((graph_of(job), Settings(workers=1, epoch_records=4096)))
    agents = [NodeAgent(rank, payload, "secret") for rank in range(nodes)]
    layout = Layout(epoch=0, members=tuple(range(nodes)), owners=tuple(owners), readers=(EVERYONE,))
    for agent in agents:
        others = tuple(other.peer() for other in agents if other is not agent)
        agent.apply(Prepare(rank=agent.rank, layout=layout, peers=others, home=0))
    for agent in agents:
        assert agent.apply(Begin(layout=layout)) == Done()
    return agents


def counts_in_turn(name: str) -> plait.Job:
    """A thousand keys, one after the other, again and again."""
    job = plait.Job(name)
    table = pa.table({"k": [n % 1000 for n in range(ROWS)]})
    job.source(plait.Table(table)).key_by("k").count().sink(plait.Collect(), name="out")
    return job


def test_loads_show_all_keys_that_come_in_turn() -> None:
    agents = begin(counts_in_turn("sampled"), [bin % 2 for bin in range(1024)], 2)
    try:
        assert all(agent.engine.wait(60.0) for agent in agents)
        loads = [agent.report(loads=True).loads for agent in agents]
        sums = [sum(load.records for load in each) for each in zip(*loads, strict=True)]
        assert sum(sums) == ROWS, "a stretch of rows counts as many as it has"
        # 1,000 keys are in 629 of 1,024 bins, give or take; rows at equal distances saw 125 keys.
        assert sum(records > 0 for records in sums) > 500
    finally:
        for agent in agents:
            agent.close()


def test_a_member_without_bins_reads_nothing_and_can_be_dropped() -> None:
    job = counts_in_turn("spared")
    expected = plait.run(job, workers=1).outputs["out"]
    agents = begin(job, [bin % 2 for bin in range(1024)], 3)
    try:
        agents[2].close()  # as if it had died
        for agent in agents[:2]:
            assert agent.apply(Drop(ranks=(2,))) == Done()
        assert all(agent.engine.wait(60.0) for agent in agents[:2])
        for agent in agents[:2]:
            agent.apply(End(good=True))
        found = [outcome for a in agents[:2] if (outcome := a.outcome()) is not None]
        made = merge_outcomes("spared", found)
        assert made.outputs["out"].combine_chunks() == expected.combine_chunks()
        assert made.account.read == ROWS
    finally:
        for agent in agents:
            agent.close()


def test_a_heart_beats_while_a_call_holds_the_interpreter() -> None:
    heart = NativeHeart()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        assert heart.aim("127.0.0.1", listener.getsockname()[1], b"k" * KEY_BYTES, 1)
        first = listener.recv(100)
        listener.setblocking(False)
        ctypes.PyDLL(None).usleep(200_000)
        heart.stop()
        beats = [first]
        while True:
            try:
                beats.append(listener.recv(100))
            except BlockingIOError:
                break
    assert {len(beat) for beat in beats} == {BEAT_BYTES}
    assert {beat[:KEY_BYTES] for beat in beats} == {b"k" * KEY_BYTES}
    numbers = [int.from_bytes(beat[KEY_BYTES:], "little") for beat in beats]
    assert numbers == list(range(1, len(beats) + 1))
    assert len(beats) > 2
    assert not heart.aim("no.such.host.invalid", 1, b"", 1)


def test_a_listener_hears_whom_it_knows() -> None:
    listener = BeatListener("127.0.0.1")
    aim = listener.aim_of(("job", 1))
    assert listener.aim_of(("job", 1)) == aim
    assert listener.heard_at(("job", 1)) is None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for beat in (b"", b"x" * 5000, b"x" * BEAT_BYTES):
            stranger.sendto(beat, (aim.host, aim.port))
    listener.take(aim.key, 7)
    heard = listener.heard_at(("job", 1))
    assert heard is not None
    listener.take(aim.key, 7)  # heard before: somebody repeats it
    assert listener.heard_at(("job", 1)) == heard
    listener.forget(("job", 1))
    listener.take(aim.key, 8)
    assert listener.heard_at(("job", 1)) is None
    assert listener.aim_of(("job", 1)).key != aim.key
    listener.close()


def test_a_payload_is_loaded_from_its_bytes_or_its_parts() -> None:
    graph, settings = graph_of(counts_in_turn("parts")), Settings(workers=1)
    buffers: list[pickle.PickleBuffer] = []
    main = pickle.dumps((graph, settings), protocol=5, buffer_callback=buffers.append)
    assert buffers
    for payload in ([main, *buffers], pickle.dumps((graph, settings))):
        assert load_payload(payload)[0].name == "parts"
