"""Python distributions and their RECORD files, on a made-up site-packages folder."""

import base64
import hashlib

import pytest

from env.probes.distributions import check_files, find_unowned, read_distributions


def record_hash(text):
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")


@pytest.fixture
def site(tmp_path):
    """Return a site-packages folder with one distribution, as installed."""
    folder = tmp_path / "lib" / "site-packages"
    info = folder / "Some_Thing-1.5.dist-info"
    info.mkdir(parents=True)
    metadata = "Metadata-Version: 2.1\nName: Some_Thing\nVersion: 1.5\nLicense-Expression: MIT\n"
    (info / "METADATA").write_text(metadata)
    module, script = "x = 1\n", "#!python\n"
    (folder / "thing.py").write_text(module)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "thing").write_text(script)
    rows = [
        f"thing.py,{record_hash(module)},6",
        f"../../bin/thing,{record_hash(script)},9",
        f"Some_Thing-1.5.dist-info/METADATA,{record_hash(metadata)},1",
        "__pycache__/thing.cpython-311.pyc,,",
        "Some_Thing-1.5.dist-info/RECORD,,",
    ]
    (info / "RECORD").write_text("\n".join(rows) + "\n")
    return folder


def test_a_distribution_is_read_by_its_normal_name(site):
    (one,) = read_distributions([str(site)])
    assert (one.name, one.version, one.location) == ("some-thing", "1.5", str(site))
    assert (one.licence, one.owner) == ("MIT", "some-thing 1.5")
    assert dict(one.files)[str(site / "thing.py")] == hashlib.sha256(b"x = 1\n").hexdigest()


def test_of_two_copies_the_first_counts(site, tmp_path):
    other = tmp_path / "other" / "some.thing-2.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: some.thing\nVersion: 2\n")
    for path, version in (([tmp_path / "other", site], "2"), ([site, tmp_path / "other"], "1.5")):
        (one,) = read_distributions([str(folder) for folder in path])
        assert one.version == version


def test_files_as_installed_are_in_order(site):
    assert check_files(read_distributions([str(site)])) == (3, [])


@pytest.mark.parametrize("name", ["thing.py", "../../bin/thing"])
def test_an_edited_file_is_told_with_both_hashes(site, name):
    before = hashlib.sha256((site / name).read_bytes()).hexdigest()
    (site / name).write_text("edited\n")
    _, (wrong,) = check_files(read_distributions([str(site)]))
    assert (wrong.path, wrong.problem, wrong.owner) == (
        str((site / name).resolve()), "edited", "some-thing 1.5",
    )  # fmt: skip
    assert (wrong.expected, wrong.found) == (before, hashlib.sha256(b"edited\n").hexdigest())


def test_a_missing_file_is_told(site):
    (site / "thing.py").unlink()
    _, (wrong,) = check_files(read_distributions([str(site)]))
    assert (wrong.problem, wrong.found) == ("missing", "")


def test_a_hash_that_is_none_fits_no_file(site):
    record = site / "Some_Thing-1.5.dist-info" / "RECORD"
    record.write_text("thing.py,sha256=*,6\n")
    _, (wrong,) = check_files(read_distributions([str(site)]))
    assert wrong.path == str(site / "thing.py")


def test_a_distribution_without_a_record_says_so(site):
    (site / "Some_Thing-1.5.dist-info" / "RECORD").unlink()
    assert [one.files for one in read_distributions([str(site)])] == [None]


def test_files_that_nobody_brought_are_found_but_not_byte_code(site):
    (site / "evil.pth").write_text("import os\n")
    (site / "__pycache__").mkdir()
    (site / "__pycache__" / "thing.cpython-311.pyc").write_bytes(b"")
    (site / "__pycache__" / "other.cpython-311.pyc").write_bytes(b"")
    found = find_unowned(read_distributions([str(site)]), folders=[site])
    assert found == [str(site / "evil.pth")]


@pytest.mark.parametrize(
    ("lines", "licence"),
    [
        ("License: BSD\n", "BSD"),
        ("License: a very long text " + "of a licence " * 20 + "\n", ""),
        ("Classifier: License :: OSI Approved :: MIT License\nLicense: x\n", "MIT License"),
        ("Classifier: License :: OSI Approved\n", ""),
        ("", ""),
    ],
)
def test_the_licence_is_the_most_exact_word_of_the_metadata(site, lines, licence):
    metadata = site / "Some_Thing-1.5.dist-info" / "METADATA"
    metadata.write_text(f"Metadata-Version: 2.1\nName: Some_Thing\nVersion: 1.5\n{lines}")
    (one,) = read_distributions([str(site)])
    assert one.licence == licence
