"""What plan-scaling prints, takes from records, and draws."""

import json

import jsonschema
import pytest
from invoke import Context, Exit

from commands.scaling import plan_scaling
from containers.scaling import Cluster, Work
from containers.scaling_plan import Request, parse_numbers, show_plan, show_validation
from containers.scaling_sources import read_numbers, read_rates, settle
from env.errors import UserError
from env.stack import PROJECT

SCHEMA = json.loads((PROJECT / "containers" / "scaling.schema.json").read_text())
REQUEST = Request(Work(step_ms=40, batch=64), Cluster(input_images_per_s=3000), (1, 4, 16))
OPEN = Request(Work(step_ms=0, batch=0), Cluster(), (1, 2))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1,2,4", (1, 2, 4)), ("1, 2,…,16", (1, 2, 4, 8, 16)), ("1,...,512,600", (
            1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600)), ("3,…,20", (3, 6, 12, 20)), ("7,7", (7,)),
    ],
)  # fmt: skip
def test_numbers_of_gpus(text, numbers):
    assert parse_numbers(text) == numbers


@pytest.mark.parametrize("text", ["", "0", "1,x", "-2", "…,4", "1,…", "1.5", "²", "9999999"])
def test_what_is_no_number_of_gpus(text):
    with pytest.raises(UserError, match="numbers of GPUs"):
        parse_numbers(text)


def test_the_table_says_what_binds(capsys):
    show_plan(REQUEST)
    said = capsys.readouterr().out
    rows = [line.split() for line in said.splitlines() if line.strip()[:1].isdigit()]
    assert [row[0] for row in rows if row[3].endswith("%")] == ["1", "4", "16"]
    assert [row[-1] for row in rows if row[3].endswith("%")] == [
        "compute",
        "input",
        "input",
    ]  # 4 GPUs of 1,600 images/s each want 6,400
    assert "3,000 images/s prepared by a node" in said


def test_json_follows_its_schema(capsys):
    show_plan(Request(REQUEST.work, REQUEST.cluster, (1, 4), json=True))
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, SCHEMA)
    assert data["predictions"][1]["images_per_s"] == pytest.approx(3000)
    show_validation("dell", as_json=True)
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, SCHEMA)
    assert {one["table"] for one in data["validation"]} == {"dell"}
    assert len(data["validation"]) == 3 * 7


def test_a_validation_prints_every_row_and_its_reason(capsys):
    show_validation("all")
    said = capsys.readouterr().out
    assert all(name in said for name in ("dell:", "resnet50-v100-fp32:", "resnet50-v100-fp16:"))
    assert "a step loses 89 ms; the exchange inside one node takes at most" in said


def test_large_batches_are_remarked(capsys):
    show_plan(Request(Work(step_ms=40, batch=64), Cluster(), (1, 512)))
    assert "512 GPUs train on 32,768 films at once" in capsys.readouterr().out


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def test_a_run_gives_batch_and_step(tmp_path):
    write(tmp_path / "record.json", {"throughput": {"images_per_s": 400.0}, "ranks": 2})
    write(tmp_path / "config.json", {"batch_size": 16, "accumulation_steps": 2})
    # Two ranks of 32 films a step, 400 images/s: 160 ms.
    numbers = {"batch": 32, "step_ms": pytest.approx(160), "gradient_mib": 26.58}
    assert read_numbers(tmp_path) == numbers
    settled = settle(OPEN, [tmp_path])
    assert (settled.work.batch, settled.work.step_ms) == (32, pytest.approx(160))
    assert str(tmp_path) in settled.sources.values()


@pytest.mark.parametrize(
    ("step", "batch", "found"),
    [(7, 0, "--step-ms 7"), (0, 32, "--batch 32")],
)
def test_a_step_of_another_batch_is_refused(tmp_path, step, batch, found):
    write(tmp_path / "record.json", {"throughput": {"images_per_s": 400.0}, "ranks": 1})
    write(tmp_path / "config.json", {"batch_size": 16})
    with pytest.raises(UserError, match="has 40 ms for 16 films") as error:
        settle(Request(Work(step_ms=step, batch=batch), Cluster(), (1,)), [tmp_path])
    assert error.value.found == found
    same = settle(Request(Work(step_ms=0, batch=16), Cluster(), (1,)), [tmp_path]).work
    assert (same.step_ms, same.batch) == (40, 16)
    both = settle(Request(Work(step_ms=7, batch=32), Cluster(), (1,)), [tmp_path]).work
    assert (both.step_ms, both.batch) == (7, 32)


def test_a_second_source_changes_neither_the_step_nor_the_batch_of_the_first(tmp_path):
    for name, batch in (("a", 16), ("b", 64)):
        write(tmp_path / name / "record.json", {"throughput": {"images_per_s": 400}, "ranks": 1})
        write(tmp_path / name / "config.json", {"batch_size": batch})
    work = settle(OPEN, [tmp_path / "b", tmp_path / "a"]).work
    assert (work.step_ms, work.batch) == (160, 64)


def test_a_given_number_stands_even_where_it_is_the_default(tmp_path):
    link = {"name": "tcp", "value": 1, "unit": "ms", "latency_us": 50, "bandwidth_gb_s": 2.5}
    write(tmp_path / "link.json", {"results": [link]})
    work = Work(step_ms=40, batch=64)
    request = Request(work, Cluster(), (1,), given={"bandwidth_gb_s": 12.5, "gradient_mib": 3.0})
    settled = settle(request, [tmp_path / "link.json"])
    assert (settled.cluster.latency_us, settled.cluster.bandwidth_gb_s) == (50, 12.5)
    assert settled.work.gradient_mib == 3


def test_gradients_are_those_of_the_runs_network(tmp_path):
    write(tmp_path / "record.json", {"throughput": {"images_per_s": 400.0}, "ranks": 1})
    write(tmp_path / "config.json", {"batch_size": 16, "compression": "fp16"})
    assert settle(OPEN, [tmp_path]).work.gradient_mib == 13.29
    write(tmp_path / "config.json", {"batch_size": 16, "model": "tiny"})
    with pytest.raises(UserError, match="--gradient-mib"):
        settle(OPEN, [tmp_path])
    times = {"batch_size": 8, "memory_step_s": 1, "exchange_s": 0.5, "exchange_mib": 2.5}
    write(tmp_path / "p" / "profile.json", {"times": times})
    assert settle(OPEN, [tmp_path, tmp_path / "p"]).work.gradient_mib == 2.5


def test_records_give_input_and_links(tmp_path):
    rate = {"unit": "images/s", "name": "x"}
    write(tmp_path / "input.json", {"results": [
        {**rate, "value": 9e5, "pipeline": "synthetic", "cores": 2, "cold": False},
        {**rate, "value": 500, "pipeline": "new", "cores": 2, "cold": False},
        {**rate, "value": 9000, "pipeline": "fast", "cores": 2, "cold": False},
        {**rate, "value": 5000, "pipeline": "fast", "cores": 1, "cold": False},
        {**rate, "value": 100, "pipeline": "fast", "cores": 2, "cold": True},
    ]})  # fmt: skip
    assert read_numbers(tmp_path / "input.json") == {"input_images_per_s": 9000}
    link = {"name": "tcp", "value": 1, "unit": "ms", "latency_us": 50, "bandwidth_gb_s": 2.5}
    write(tmp_path / "link.json", {"results": [link]})
    work = Work(step_ms=40, batch=64)
    settled = settle(Request(work, Cluster(), (1,)), [tmp_path / "link.json"])
    assert (settled.cluster.latency_us, settled.cluster.bandwidth_gb_s) == (50, 2.5)


def test_a_benchmark_of_one_rank_with_synthetic_input_gives_the_step(tmp_path):
    write(tmp_path / "s.json", {"results": [
        {"name": "a", "value": 50, "unit": "images/s", "ranks": 1, "input": "real", "batch": 8},
        {"name": "b", "value": 80, "unit": "images/s", "ranks": 1, "input": "synthetic",
         "batch": 8}]})  # fmt: skip
    assert read_numbers(tmp_path / "s.json") == {"batch": 8, "step_ms": 100}


def test_a_profile_gives_the_step_without_its_exchange(tmp_path):
    times = {"ranks": 2, "batch_size": 64, "step_s": 0.15, "memory_step_s": 0.125,
             "exchange_s": 0.025, "exchange_mib": 26.58}  # fmt: skip
    write(tmp_path / "profile.json", {"times": times})
    numbers = {"batch": 64, "step_ms": pytest.approx(100), "gradient_mib": 26.58}
    assert read_numbers(tmp_path) == read_numbers(tmp_path / "profile.json") == numbers


def test_runs_of_an_array_job_stand_beside_the_plan(tmp_path, capsys):
    for name, ranks, rate in (("ranks-1", 1, 1500), ("ranks-4", 4, 5600), ("again", 4, 5400)):
        record = {"ranks": ranks, "throughput": {"images_per_s": rate}}
        write(tmp_path / "study" / name / "record.json", record)
    write(tmp_path / "study" / "failed" / "record.json", {"ranks": 2, "throughput": {}})
    assert read_rates([tmp_path / "study"]) == {1: 1500, 4: 5600}
    assert read_rates([tmp_path / "study" / "again"]) == {4: 5400}
    work = Work(step_ms=40, batch=64, gradient_mib=1e-6, cycle_ms=0)
    cluster = Cluster(intra_latency_us=0)
    measured = read_rates([tmp_path / "study"])
    show_plan(Request(work, cluster, (1, 2), measured=measured, picture=tmp_path / "p.png"))
    # One GPU does 1,600 images/s, four 6,400.
    said = capsys.readouterr().out
    assert "measured 1,500 images/s, 94% of it" in said
    assert "measured 5,600 images/s, 88% of it" in said
    show_plan(Request(work, cluster, (1, 2), json=True, measured=measured))
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, SCHEMA)
    assert data["measured"] == {"1": 1500, "4": 5600}
    assert [one["ranks"] for one in data["predictions"]] == [1, 2, 4]
    with pytest.raises(UserError, match="--measured"):
        read_rates([tmp_path / "nowhere"])


def test_a_validation_gives_the_bandwidth_of_its_sum(tmp_path):
    sums = {"id": "ranks.allreduce", "found": "12.34 GB/s (rank 1; 64 MiB, 8 ranks)"}
    other = {"id": "mpi.library", "found": "libmpi.so.40"}
    write(tmp_path / "one.json", {"hosts": ["a"], "results": [other, sums]})
    write(tmp_path / "two.json", {"hosts": ["a", "b"], "results": [other, sums]})
    assert read_numbers(tmp_path / "one.json") == {"intra_bandwidth_gb_s": 12.34}
    assert read_numbers(tmp_path / "two.json") == {"bandwidth_gb_s": 12.34}
    write(tmp_path / "none.json", {"hosts": ["a"], "results": [other]})
    with pytest.raises(UserError, match="no number"):
        read_numbers(tmp_path / "none.json")


def test_a_benchmark_of_sums_gives_the_bandwidth_inside_a_node(tmp_path):
    # Four ranks send 1.5 times 27.871 MB each; in 10 ms that is 4.18 GB/s.
    row = {"transport": "shared memory", "setting": "default", "way": "grouped", "value": 10.0}
    slower = {**row, "transport": "TCP", "value": 50.0}
    write(tmp_path / "a.json", {"command": ["x", "--ranks", "4"], "results": [slower, row]})
    assert read_numbers(tmp_path / "a.json") == {
        "intra_bandwidth_gb_s": pytest.approx(4.18, abs=0.01)
    }


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"results": 3}', '{"results": []}'])
def test_a_source_of_nothing_is_named(tmp_path, text):
    path = tmp_path / "odd.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"odd\.json"):
        settle(OPEN, [path])


def test_nothing_measured_is_told():
    with pytest.raises(UserError, match="--step-ms and --batch"):
        settle(OPEN, [])


def test_a_picture_is_drawn(tmp_path):
    for name in ("p.png", "p.svg"):
        show_plan(Request(REQUEST.work, REQUEST.cluster, (1, 4), picture=tmp_path / name))
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"
    first = (tmp_path / "p.svg").read_text()
    assert "<svg" in first
    show_plan(Request(REQUEST.work, REQUEST.cluster, (1, 4), picture=tmp_path / "p.svg"))
    assert (tmp_path / "p.svg").read_text() == first
    with pytest.raises(UserError, match=r"p\.gif"):
        show_plan(Request(REQUEST.work, REQUEST.cluster, (1,), picture=tmp_path / "p.gif"))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["p.png", "p.svg"]


def test_a_table_is_drawn_beside_what_is_predicted_of_it(tmp_path, capsys):
    show_validation("dell", picture=tmp_path / "v.png")
    assert (tmp_path / "v.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(UserError, match="one table to draw"):
        show_validation("all", picture=tmp_path / "w.png")


def test_the_command_hands_on_what_was_given_alone(tmp_path, capsys):
    link = {"name": "tcp", "value": 1, "unit": "ms", "latency_us": 50, "bandwidth_gb_s": 2.5}
    write(tmp_path / "link.json", {"results": [link]})
    plan_scaling(
        Context(), step_ms=40, batch=64, bandwidth_gbs=12.5, from_=[tmp_path / "link.json"]
    )
    assert "between nodes 12.5 GB/s and 50 µs" in capsys.readouterr().out
    with pytest.raises(Exit, match="--validate and --gpus"):
        plan_scaling(Context(), validate="dell", gpus="1,2")
