"""What `invoke stacks` shows: every stack with its status, device, driver and GPUs."""

import json

import jsonschema
import pytest

from containers.stacks import describe_gpu, print_stacks, render_stacks
from env.stack import PROJECT, Gpu, load_stacks

STACKS = load_stacks()


def test_the_table_shows_status_device_driver_and_gpus(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    print_stacks(STACKS)
    said = capsys.readouterr().out
    rows = {cells[1].strip(): cells[2:-1] for line in said.splitlines()
            if len(cells := line.replace("┃", "│").split("│")) > 2}  # fmt: skip
    names = [cell.strip() for cell in rows[""]]
    shown = {
        key: dict(zip(names, map(str.strip, cells), strict=True)) for key, cells in rows.items()
    }
    assert shown["device"] == {name: stack.device for name, stack in STACKS.items()}
    assert shown["status"]["cuda12"] == "supported"
    assert shown["status"]["ngc12"] == "candidate"
    assert shown["driver from"]["cuda12"] == "525.60.13"
    assert shown["driver from"]["cpu"] == ""
    assert shown["cudnn"]["cpu"] == ""
    assert "Hopper (H100, H200), 9.0: compiled by the driver at the start, driver 555.42.02" in said


def test_the_json_has_all_that_the_catalogue_says(capsys):
    data = {stack["name"]: stack for stack in json.loads(render_stacks(STACKS))["stacks"]}
    assert list(data) == list(STACKS)
    cuda = data["cuda12"]
    assert (cuda["device"], cuda["driver_minimum"]) == ("gpu", "525.60.13")
    assert {"name": "Volta (V100)", "compute_capability": "7.0", "code": "binary",
            "driver": "525.60.13"} in cuda["gpus"]  # fmt: skip
    assert data["cpu"]["gpus"] == []
    assert cuda["sources"]["cudnn"] == ["pkg:pypi/nvidia-cudnn-cu12@9.10.2.21",
                                        "pkg:pypi/tensorflow@2.21.0"]  # fmt: skip


def test_the_json_is_of_its_schema():
    schema = json.loads((PROJECT / "containers/stacks.schema.json").read_text(encoding="utf-8"))
    data = json.loads(render_stacks(STACKS))
    jsonschema.validate(data, schema)
    del data["stacks"][0]["driver_minimum"]
    with pytest.raises(jsonschema.ValidationError, match="driver_minimum"):
        jsonschema.validate(data, schema)


def test_a_gpu_served_by_machine_code_says_so():
    gpu = Gpu(name="Kepler", compute_capability="3.5", code="binary", driver="410.48")
    assert describe_gpu(gpu) == "Kepler, 3.5: machine code, driver 410.48 or later"
