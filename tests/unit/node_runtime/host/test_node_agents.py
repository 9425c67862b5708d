"""Nodes of a job in this process: who reads, what their loads are, hearts and payloads."""

from __future__ import annotations

import ctypes
import pickle
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pyarrow as pa

import plait
from plait.coordinator.shell.beats import BEAT_BYTES, KEY_BYTES, BeatListener
from plait.execution.local_run import graph_of
from plait.model.settings import Settings
from plait.node_runtime.host.agent import NodeAgent
from plait.node_runtime.host.engine_host import load_payload
from plait.node_runtime.host.strangers import StrangerLog
from plait.node_runtime.native._cluster import NativeHeart
from plait.protocol.messages import EVERYONE, Begin, Done, Drop, End, Layout, Prepare
from plait.results.outcomes import merge_outcomes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

ROWS = 100_000
STRANGERS = 300


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


def test_strangers_at_the_data_port_are_counted_and_hurt_no_job(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = counts_in_turn("besieged")
    expected = plait.run(job, workers=1).outputs["out"]
    agents = begin(job, [bin % 2 for bin in range(1024)], 2)
    with ExitStack() as undo:
        for agent in agents:
            undo.callback(agent.close)
        port = agents[0].peer().port
        for number in range(STRANGERS):
            stranger = undo.enter_context(socket.create_connection(("127.0.0.1", port)))
            if number % 2:
                stranger.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        # All but those that still have time to prove themselves.
        while (report := agents[0].report()).refused_links < STRANGERS - 64:
            assert report.phase in ("running", "ended")
        assert agents[1].report().refused_links == 0
        agents[0].report()
        assert all(agent.engine.wait(60.0) for agent in agents)
        for agent in agents:
            agent.apply(End(good=True))
        made = merge_outcomes("besieged", [o for a in agents if (o := a.outcome()) is not None])
        assert made.outputs["out"].combine_chunks() == expected.combine_chunks()
    (line,) = [record.getMessage() for record in caplog.records if record.name == "plait.node"]
    assert line.startswith("refused ")
    assert " to the data port; the last one came from 127.0.0.1:" in line


def test_refusals_are_logged_at_once_and_then_once_in_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = StrangerLog()
    log.note(0, 99, "", "", 99.0)
    log.note(1, 99, "no proof", "10.0.0.9:77", 101.0)
    for second in range(1, 60):
        log.note(1 + second * 100, 99, "noise", "10.0.0.9:78", 101.0 + second)
    log.note(6_000, 99, "noise", "10.0.0.9:79", 161.0)
    log.note(6_000, 100, "noise", "10.0.0.9:79", 162.0)
    log.note(6_000, 100, "noise", "10.0.0.9:79", 300.0)
    log.note(6_000, 100, "noise", "10.0.0.9:79", 400.0)
    assert [record.getMessage() for record in caplog.records] == [
        "refused a connection to the data port; the last one came from 10.0.0.9:77: no proof",
        "refused 5,999 connections to the data port; the last one came from 10.0.0.9:79: noise",
        "100 connections to the data port ended before they proved that they belong to the job",
    ]


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
