"""Records travel whole or not at all, through whatever a launcher makes of the output."""

import json
import random
import re
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from env.errors import UserError
from env.facts import Fact, Facts, write_facts
from env.records import (
    load_launch,
    load_records,
    parse_output,
    print_record,
    record_path,
    render_lines,
    write_records,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


def record(rank, **values):
    facts = {f"a.{key}": Fact(value, "x") for key, value in values.items()}
    return Facts({"launch.rank": Fact(rank, "x"), **facts})


def noise(rank, size=6000):
    """A value that does not pack, so that the record takes several lines."""
    return "".join(random.Random(rank).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=size))


def printed(facts):
    parts = []
    print_record(facts, write=parts.append)
    return b"".join(parts).decode()


def test_records_are_found_by_rank(tmp_path):
    write_records(tmp_path, {rank: record(rank) for rank in (12, 0)})
    (tmp_path / "notes.json").write_text("not a record")
    (tmp_path / ".rank-00001.json.77").write_text("half a rec")
    ranks = load_records(tmp_path)
    assert {rank: facts.value("launch.rank") for rank, facts in ranks.items()} == {0: 0, 12: 12}
    with pytest.raises(UserError, match="no such folder"):
        load_records(tmp_path / "absent")


def test_a_bad_record_does_not_hide_the_others(tmp_path):
    write_records(tmp_path, {0: record(0)})
    record_path(tmp_path, rank=1).write_text('{"schema_version": 1, "fac')
    ranks = load_records(tmp_path)
    assert ranks[0].value("launch.rank") == 0
    assert "rank-00001.json" in ranks[1]["rank.record"].problem


def test_how_the_launch_went_lies_beside_them(tmp_path):
    assert dict(load_launch(tmp_path)) == {}
    write_facts(tmp_path / "launch.json", {"launcher.end": Fact("exit code 0", "mpirun")})
    assert load_launch(tmp_path).value("launcher.end") == "exit code 0"
    assert load_records(tmp_path) == {}


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text(), st.builds(Fact, JSON, st.text(), st.none() | st.text())))
def test_any_facts_come_back_from_their_lines(facts):
    facts = {**facts, "launch.rank": Fact(3, "x")}
    ranks, rest = parse_output("\n".join(render_lines(facts)))
    assert {rank: dict(found) for rank, found in ranks.items()} == {3: facts}
    assert rest == ""


def test_later_parts_lie_over_earlier_ones_and_other_output_is_kept():
    text = f"hello\n{printed(record(1, x=1, y=1))}in between\n{printed(record(1, x=2))}bye"
    ranks, rest = parse_output(text)
    assert (ranks[1].value("a.x"), ranks[1].value("a.y")) == (2, 1)
    assert rest == "hello\nin between\nbye"


def labelled(style, streams, block):
    """Mix the ranks' output as a launcher does that reads so many characters at once."""
    text, held, chance = "", "", random.Random(block)
    left = [[out[n : n + block] for n in range(0, len(out), block)] for out in streams]
    blocks = []
    while any(left):
        rank = chance.choice([rank for rank, parts in enumerate(left) if parts])
        blocks.append((rank, left[rank].pop(0)))
    for rank, part in blocks:
        if style == "open-mpi-4":  # every block and every line begins with its label
            label = f"[1,{rank}]<stdout>:"
            text += label + part.rstrip("\n").replace("\n", f"\n{label}")
            text += "\n" if part.endswith("\n") else ""
        elif style == "open-mpi-5":  # what a block leaves unfinished comes with the next one
            whole, newline, unfinished = (held + part).rpartition("\n")
            for line in whole.split("\n") if newline else ():
                text += f"[1,{rank}]<stdout>: {line}\n"
            held = unfinished
        else:
            lines = part.split("\n")
            text += "".join(f"{rank}: {line}\n" for line in lines if line)
    return text + held


@pytest.mark.parametrize("style", ["open-mpi-4", "open-mpi-5", "srun"])
@pytest.mark.parametrize("block", [1000, 4096, 5003])
def test_records_survive_the_labels_of_each_launcher(style, block):
    facts = [record(rank, noise=noise(rank, 3000)) for rank in range(4)]
    streams = [f"hello from {rank}\n" + printed(one) for rank, one in enumerate(facts)]
    ranks, rest = parse_output(labelled(style, streams, block))
    if style == "open-mpi-5":
        # Whole or absent: what it tore apart in both copies does not count.
        assert all(dict(ranks[rank]) == dict(facts[rank]) for rank in ranks)
        assert len(ranks) == 4 or block == 1000
    else:
        assert {rank: dict(one) for rank, one in ranks.items()} == dict(enumerate(map(dict, facts)))
        assert "hello from 3" in rest
        assert "chexnet-record" not in rest


@settings(max_examples=60, deadline=None)
@given(st.text())
def test_any_output_is_read_without_harm(text):
    ranks, _ = parse_output(text)
    assert ranks == {}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_changed_record_is_no_record(data):
    lines = printed(record(2, noise=noise(2, 900)))
    begin = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(begin, len(lines)))
    ranks, _ = parse_output(lines[:begin] + data.draw(st.text(max_size=20)) + lines[end:])
    assert set(ranks) <= {2}
    assert all(facts.value("a.noise") == noise(2, 900) for facts in ranks.values())


def forged(data, *, rank=0):
    import base64

    packed = base64.b64encode(data).decode()
    crc = zlib.crc32(packed.encode())
    return f"@chexnet-record {rank} {zlib.crc32(data):08x} 0/1 {crc:08x} {packed}#"


@pytest.mark.parametrize(
    "data",
    [
        b"not packed", zlib.compress(b"not json"), zlib.compress(b'{"facts": [1]}'),
        zlib.compress(b"\xff\xfe"), zlib.compress(b"0" * 80_000_000),
        zlib.compress(json.dumps({"facts": {"launch.rank": {"value": 1, "origin": "x"}}}).encode()),
        zlib.compress(json.dumps({"facts": {"launch.rank": {"value": 0}}}).encode()),
        zlib.compress(b'{"facts": {"launch.rank": {"value": 0, "origin": "x", "evil": 1}}}'),
    ],
)  # fmt: skip
def test_forged_records_do_not_count(data):
    assert parse_output(forged(data))[0] == {}


@pytest.mark.parametrize("text", ["A" * 2_000_000, "[" + "1," * 1_000_000, "9" * 2_000_000])
def test_a_line_of_megabytes_is_read_at_once(text):
    """It took hours when the time grew with the square of the length: then this never ends."""
    assert parse_output(text) == ({}, text)


def test_what_is_left_of_a_torn_piece_is_no_output():
    line = render_lines(record(1, noise=noise(1)))[0]
    assert parse_output(f"before\n{line[200:]}\nafter\n{line[:200]}")[1] == "before\nafter"


def test_lines_are_short_and_printable():
    text = printed(record(1, noise=noise(1), control="\x1b[2J\r\n\0"))
    assert all(len(line) < 900 and line.isascii() for line in text.splitlines())
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", text)
