"""The run folder: who may use it, and its files against their schemas."""

import dataclasses
import json
from pathlib import Path

import jsonschema
import pytest

import chexnet.run
from chexnet.config import load_config, render_config
from chexnet.errors import UserError
from chexnet.run import begin_run, load_run_config
from chexnet.training.run_record import RunRecord, end_record, hash_lock, load_record, write_record

CONFIG = load_config(settings=["preset=demo", "model=tiny"])
RECORD = RunRecord(
    status="running",
    command=("train", "--data", "d"),
    started="2026-01-02T03:04:05+00:00",
    ranks=2,
    hosts=("a", "b"),
    device="cpu",
    data="/data",
    data_sha256="0" * 64,
    lock_sha256=None,
    git_revision=None,
    versions={"python": "3.11"},
    horovod={"mpi_enabled": True},
)


def begin(folder, *, config=CONFIG, record=RECORD, resume=False, environment=None, plan=None):
    begin_run(
        folder, config=config, record=record, resume=resume, environment=environment, plan=plan
    )


def load_schema(name):
    (path,) = Path(chexnet.__file__).parent.rglob(name)
    return json.loads(path.read_text())


def test_new_folder_gets_config_record_environment_and_plan(tmp_path):
    report = tmp_path / "report.json"
    report.write_text('{"exit_code": 0}')
    folder = tmp_path / "deep" / "run"
    (tmp_path / "dealt.json").write_text('{"ranks": []}')
    begin(folder, environment=report, plan=tmp_path / "dealt.json")
    assert load_run_config(folder) == CONFIG
    assert load_record(folder) == RECORD
    assert (folder / "environment.json").read_text() == '{"exit_code": 0}'
    assert (folder / "plan.json").read_text() == '{"ranks": []}'
    jsonschema.validate(
        json.loads((folder / "record.json").read_text()), load_schema("record.schema.json")
    )


def test_what_the_launcher_left_does_not_make_it_a_run(tmp_path):
    (tmp_path / "environment.json").write_text("{}")
    (tmp_path / "launch.log").write_text("")
    (tmp_path / "plan.json").write_text("{}")
    begin(tmp_path, environment=tmp_path / "environment.json", plan=tmp_path / "plan.json")
    assert load_record(tmp_path) == RECORD


@pytest.mark.parametrize("resume", [True, False])
def test_what_a_kill_in_the_first_write_left_does_not_make_it_a_run(tmp_path, resume):
    (tmp_path / ".config.json.4711.tmp").write_text("{")
    begin(tmp_path, resume=resume)
    assert load_run_config(tmp_path) == CONFIG


def test_folder_with_content_is_refused_without_resume(tmp_path):
    begin(tmp_path)
    with pytest.raises(UserError, match="--resume") as caught:
        begin(tmp_path)
    assert caught.value.exit_code == 2


def test_resume_keeps_the_first_start_and_what_came_out(tmp_path):
    begin(tmp_path)
    place = {"epoch": 2, "step": 9, "examples": 144}
    write_record(tmp_path, record=dataclasses.replace(RECORD, results={"epoch": 2}, position=place))
    later = dataclasses.replace(RECORD, started="2027-01-01T00:00:00+00:00", ranks=3)
    begin(tmp_path, record=later, resume=True)
    assert load_record(tmp_path).started == RECORD.started
    assert load_record(tmp_path).ranks == 3
    assert load_record(tmp_path).results == {"epoch": 2}
    assert load_record(tmp_path).position == place  # until it has found its checkpoint


def test_resume_of_nothing_begins(tmp_path):
    begin(tmp_path / "new", resume=True)
    assert load_record(tmp_path / "new") == RECORD


def test_other_configuration_is_refused_naming_the_keys(tmp_path):
    begin(tmp_path)
    other = dataclasses.replace(CONFIG, batch_size=99, seed=5)
    with pytest.raises(UserError) as caught:
        begin(tmp_path, config=other, resume=True)
    assert f"batch_size: {CONFIG.batch_size} and 99; seed: 0 and 5" in str(caught.value)
    assert load_run_config(tmp_path) == CONFIG


def test_other_data_is_refused(tmp_path):
    begin(tmp_path)
    other = dataclasses.replace(RECORD, data="/elsewhere", data_sha256="1" * 64)
    with pytest.raises(UserError, match="other data"):
        begin(tmp_path, record=other, resume=True)


def test_folder_of_something_else_is_not_continued(tmp_path):
    (tmp_path / "thesis.docx").write_text("")
    with pytest.raises(UserError, match=r"thesis\.docx"):
        begin(tmp_path, resume=True)


def test_unwritable_place_is_a_message(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="can be written"):
        begin(tmp_path / "file" / "run")


@pytest.mark.parametrize("text", ["{", "[]", '{"schema_version": 99}', '{"schema_version": 1}'])
def test_damaged_record_is_named(tmp_path, text):
    (tmp_path / "record.json").write_text(text)
    with pytest.raises(UserError, match=r"record\.json"):
        load_record(tmp_path)


def test_no_run_there(tmp_path):
    assert load_record(tmp_path) is None
    with pytest.raises(UserError, match="a run folder at"):
        load_run_config(tmp_path)


def test_the_first_reason_to_stop_stays(tmp_path):
    assert not end_record(tmp_path, status="failed", error="no record there")
    write_record(tmp_path, record=RECORD)
    assert end_record(tmp_path, status="failed", error="first")
    assert not end_record(tmp_path, status="failed", error="second")
    record = load_record(tmp_path)
    assert (record.status, record.error) == ("failed", "first")
    assert record.ended


def test_lock_is_hashed(tmp_path, monkeypatch):
    lock = tmp_path / "lock.json"
    lock.write_bytes(b"abc")
    monkeypatch.setenv("CHEXNET_LOCK", str(lock))
    # SHA-256 of "abc", from FIPS 180-2, appendix B.1.
    assert hash_lock() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    monkeypatch.delenv("CHEXNET_LOCK")
    assert hash_lock() is None


def test_writing_is_whole_or_nothing(tmp_path):
    write_record(tmp_path, record=RECORD)
    write_record(tmp_path, record=dataclasses.replace(RECORD, status="finished"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["record.json"]
    assert load_record(tmp_path).status == "finished"


def test_config_text_names_its_schema_version():
    assert json.loads(render_config(CONFIG))["schema_version"] == 2
