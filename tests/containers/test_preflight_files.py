"""The files that a validation leaves, and what it is told before the work."""

import json
from pathlib import Path

import pytest

from containers.preflight import OUTPUTS, Validation, validate
from env.errors import UserError

QUICK = ("--only", "host.root,site.expectations")


def test_every_form_of_the_report_is_left_where_it_was_asked_for(tmp_path, capfd):
    outputs = {option: tmp_path / option.lstrip("-") for option in OUTPUTS}
    validation = Validation(outputs=outputs, options=QUICK)
    assert validate(validation) == 0
    assert json.loads((tmp_path / "json").read_text())["exit_code"] == 0
    assert "<testsuites" in (tmp_path / "junit").read_text()
    assert (tmp_path / "failed-hosts").read_text() == "\n"
    site = json.loads((tmp_path / "record-site").read_text())
    site["equal"]["host.machine"] = "vax"
    other = tmp_path / "site.json"
    other.write_text(json.dumps(site))
    again = Validation(outputs={"--failed-hosts": tmp_path / "hosts"}, expectations=other,
                       options=QUICK)  # fmt: skip
    assert validate(again) == 1
    [host] = json.loads((tmp_path / "json").read_text())["hosts"]
    assert (tmp_path / "hosts").read_text() == f"{host}\n"
    assert "'vax'" in capfd.readouterr().out
    silenced = Validation(
        expectations=other, options=(*QUICK, "--silence", "site.expectations=old")
    )
    assert validate(silenced) == 0
    assert "silenced (old)" in capfd.readouterr().out


@pytest.mark.parametrize("option", OUTPUTS)
def test_a_missing_folder_is_told_before_the_work(tmp_path, option):
    with pytest.raises(UserError, match=option):
        validate(Validation(outputs={option: tmp_path / "no" / "file"}))


def test_a_bad_site_file_is_told_before_the_work(tmp_path):
    with pytest.raises(UserError, match="site file"):
        validate(Validation(expectations=Path(tmp_path / "none.json")))
