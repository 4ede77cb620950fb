"""What pages say was measured is what the committed records say."""

import json

import pytest

from env.stack import PROJECT


def record(name):
    return json.loads((PROJECT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))


def values(name):
    return {one["name"]: one for one in record(name)["results"]}


def page(name):
    return (PROJECT / "docs" / name).read_text("utf-8")


def rate(value):
    return f"{value:,.0f}"


def stand_in_rows():
    found = values("stand-in")
    for pipeline in ("old", "new", "fast"):
        rates = [found[f"{pipeline}, {n} rank{'s' * (n > 1)}"]["value"] for n in (1, 2, 4, 8)]
        cells = " | ".join(map(rate, rates))
        yield f"| `{pipeline}` | {cells} | {rates[-1] / rates[0] / 8:.0%} |".replace("%", " %")


def loader_rows():
    found = values("loaders")
    for title, rows in (
        ("1024 px PNG as shipped", ("old", "new", "dali", "torch", "grain")),
        ("256 px JPEG", ("old", "new", "dali", "torch", "grain")),
    ):
        kind = "png" if "PNG" in title else "jpeg"
        cells = [rate(found[f"{kind}: {row}"]["value"]) for row in rows]
        yield f"| {title} | {' | '.join(cells)} | |"
    peers = [found[f"bytes: {name}, mapped array"]["value"] for name in ("dali", "torch", "grain")]
    fast = found["bytes: fast"]["value"]
    yield f"| decoded 256 px bytes | | | {' | '.join(map(rate, peers))} | {rate(fast)} |"


def layout_rows():
    found = values("layouts")
    for name in ("TFRecord, a film each", "TFRecord, blocks of 32", "fixed-length records",
                 "mapped, by number alone", "mapped, by number"):  # fmt: skip
        states = [found[f"{name}, {state}"] for state in ("cached", "cold", "slow")]
        cells = [rate(one["value"]) for one in states]
        cells += [f"{states[0]['bytes_per_film']:,}", f"{states[0]['shuffle_quality']:.2f}"]
        yield f"| {name} | {' | '.join(cells)} |"


def scaling_rows():
    found = values("scaling")
    for shown, name in (("`old`", "old, real"), ("`new`", "new, real"), ("`fast`", "fast, real"),
                        ("none read (`synthetic`)", "synthetic")):  # fmt: skip
        one, two = (found[f"{name}, {ranks}"]["value"] for ranks in ("1 rank", "2 ranks"))
        yield f"| {shown} | {rate(one)} | {rate(two)} | {two / one / 2:.0%} |".replace("%", " %")


def exchange_rows():
    ratios = record("allreduce")["ratios"]
    for transport in ("shared memory", "TCP"):
        for setting, shown in (("default", ""), ("cycle time 0.1 ms", ", cycle time 0.1 ms")):
            found = [
                ratios[f"{transport}, {setting}, {way} / plain MPI_Allreduce"]
                for way in ("grouped", "flat", "each", "grouped, fp16")
            ]
            yield f"| {transport}{shown} | {' | '.join(f'{one:.2f}' for one in found)} |"


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("pipeline.md", stand_in_rows),
        ("pipeline.md", loader_rows),
        ("adr/0003-fast-data.md", layout_rows),
        ("scaling.md", scaling_rows),
        ("horovod.md", exchange_rows),
    ],
    ids=["stand-in", "loaders", "layouts", "scaling", "exchange"],
)
def test_tables_repeat_the_records(name, rows):
    for row in rows():
        assert row in page(name), row


def test_the_story_of_the_stand_in_is_the_record_s():
    text, found = page("pipeline.md"), values("stand-in")
    slow = found["old, 8 ranks"]
    assert f"`old` on 8 ranks takes {slow['input_ms']:.0f} ms to make a batch" in text
    idle = f"{slow['device_idle_share']:.0%}".replace("%", " %")
    assert f"It idles {idle} on 8 ranks of `old`" in text


def test_goals_and_costs_are_the_records_own():
    text, found, ratios = page("pipeline.md"), values("loaders"), record("loaders")["ratios"]
    for words in (
        f"{ratios['fast / new from PNG']:.0f} times `new` from PNG",
        f"{ratios['fast / best peer from bytes']:.1f} times the best of the others",
        f"{ratios['fast / floor']:.0%} of the floor".replace("%", " %"),
        f"after {found['preparation: fast, paid back against new from PNG']['value']:.1f} epochs",
    ):
        assert words in " ".join(text.split()), words
    reached = record("preparation")["ratios"]
    for case, words in (("fast, 256 px", " of"), ("fast, 320 px", " at 320 px"),
                        ("encoded, 256 px", " for `encoded`")):  # fmt: skip
        share = reached[f"prepare-data: {case} / (cores x fastest decoder)"]
        assert f"{share:.2f}{words}" in text
    together = reached["decode: pillow, one process a core / (cores x fastest decoder)"]
    assert f"decoding alone, in one process a core, reaches {together:.2f}" in text
    fed = values("pipeline")
    for name in ("new", "fast"):
        for cache in ("cached", "cold"):
            assert rate(fed[f"{name}, {cache}, 2 cores"]["value"]) in text
