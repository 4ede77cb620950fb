import pytest

from chexnet import labels
from chexnet.errors import UserError


def test_order_is_that_of_the_contract():
    assert labels.FINDINGS == (
        "Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Mass", "Nodule", "Pneumonia",
        "Pneumothorax", "Consolidation", "Edema", "Emphysema", "Fibrosis", "Pleural_Thickening",
        "Hernia",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cell", "findings", "ones"),
    [
        ("No Finding", (), []),
        ("Hernia", ("Hernia",), [13]),
        ("Effusion|Cardiomegaly", ("Cardiomegaly", "Effusion"), [1, 2]),
        ("Mass|Mass", ("Mass",), [4]),
    ],
)
def test_cells(cell, findings, ones):
    assert labels.parse_findings(cell, where="t") == findings
    vector = labels.encode_findings(findings)
    assert len(vector) == 14
    assert [index for index, value in enumerate(vector) if value] == ones
    assert labels.decode_findings(vector) == findings


def test_format_is_the_way_back():
    assert labels.format_findings(()) == "No Finding"
    assert labels.format_findings(("Cardiomegaly", "Effusion")) == "Cardiomegaly|Effusion"


@pytest.mark.parametrize("cell", ["Gout", "Mass|gout", "", "Mass|", "No Finding|Mass"])
def test_unknown_finding_names_the_place_and_the_known(cell):
    with pytest.raises(UserError) as error:
        labels.parse_findings(cell, where="table.csv, line 7")
    assert "table.csv, line 7" in error.value.expected
    assert "Pleural_Thickening" in error.value.fix
    assert error.value.exit_code == 2


def test_a_vector_of_another_length_is_not_decoded():
    with pytest.raises(ValueError):
        labels.decode_findings([0, 1])
