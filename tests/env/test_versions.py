"""Versions: read, ordered, compared with packaging and dpkg where they mean the same."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version as PackagingVersion

from env.errors import UserError
from env.versions import parse_version

numbers = st.lists(st.integers(0, 999), min_size=1, max_size=4).map(
    lambda parts: ".".join(map(str, parts))
)
revisions = st.one_of(
    st.just(""),
    st.builds("-{}".format, st.integers(0, 30)),
    st.builds("-{}+b{}".format, st.integers(0, 30), st.integers(1, 9)),
    st.builds("-{}+deb{}u{}".format, st.integers(0, 30), st.integers(12, 13), st.integers(1, 19)),
    st.builds("-{}~bpo12+{}".format, st.integers(0, 30), st.integers(1, 9)),
    st.builds("-{}ubuntu{}.22.04.1".format, st.integers(0, 9), st.integers(0, 9)),
    st.builds("-{}+cuda{}.{}".format, st.integers(0, 3), st.integers(11, 13), st.integers(0, 9)),
)
upstream = st.sampled_from(["", "+ds1", "+ds2", "+dfsg4", "~rc1", "~rc2", "~beta1", "~rc1+ds1"])
epochs = st.sampled_from(["", "1:", "2:"])
debian = st.builds("{}{}{}{}".format, epochs, numbers, upstream, revisions)
before = st.one_of(
    st.just(""),
    st.builds("{}{}".format, st.sampled_from(["rc", "a", "b", ".dev"]), st.integers(0, 9)),
    st.builds(".post{}".format, st.integers(0, 9)),
)
local = st.sampled_from(["", "+cpu", "+cu118", "+nv24.03", "+cuda12.9"])
pythonic = st.builds("{}{}{}".format, numbers, before, local)


@pytest.mark.parametrize(
    "text",
    ["12.4", "2.29.7-1", "535.104.05", "9.3.0.75", "4.1.4-3+b1", "5.0.7-1+deb13u1",
     "1:2.3~rc1", "2.27.7-1+cuda12.9", "4.2.2rc2", "2.15.0+nv24.03", "1:4.5.1-1", "2.21.0rc1",
     "1.28.2+ds1-3+deb12u1+b3", "2026.10.19.post1", "3"],
)  # fmt: skip
def test_a_version_is_written_as_it_was_read(text):
    assert str(parse_version(text)) == text


def _rebuilt(version):
    """Return the text that the parts of a version make, numbers without leading zeros."""
    epoch = f"{version.epoch}:" if version.epoch else ""
    revision = f"-{version.revision}" if version.revision else ""
    return f"{epoch}{'.'.join(map(str, version.release))}{version.rest}{revision}"


@given(debian | pythonic)
def test_the_parts_of_a_version_make_the_whole_again(text):
    version = parse_version(text)
    assert _rebuilt(version) == text
    assert parse_version(_rebuilt(version)) == version


def test_parts_of_a_debian_version():
    version = parse_version("1:1.28.2+ds1-3+b3")
    assert (version.epoch, version.release) == (1, (1, 28, 2))
    assert (version.rest, version.revision) == ("+ds1", "3+b3")


@pytest.mark.parametrize("text", ["", "latest", "v", "-1", "1..2", "1.2 3", "1:", "٢.16"])
def test_what_is_no_version_is_refused(text):
    with pytest.raises(UserError) as caught:
        parse_version(text)
    assert repr(text) in caught.value.found


@pytest.mark.parametrize(
    ("low", "high"),
    [("535.54.03", "535.104.05"), ("4.1.4-3", "4.1.4-3+b1"), ("2.29.7", "2.29.7-1"),
     ("2.21.0rc1", "2.21.0"), ("2.21.0.dev3", "2.21.0"), ("2.9", "2.21"), ("9.9", "1:1.0"),
     ("1.28.2-4", "1.28.2+ds1-3"), ("1.0~rc1", "1.0"), ("2.0-rc1", "2.0"), ("12.4", "12.4.1"),
     ("1:2.3~rc1", "1:2.3"), ("2.21.0rc1+cpu", "2.21.0"), ("4.2.2rc2", "4.2.3"),
     ("5.0.7-1", "5.0.7-1+deb13u1"), ("5.0.7-1~bpo12+1", "5.0.7-1")],
)  # fmt: skip
def test_order_of_known_pairs(low, high):
    assert parse_version(low) < parse_version(high)
    assert parse_version(high) > parse_version(low)
    assert parse_version(low) != parse_version(high)


@pytest.mark.parametrize(("one", "same"), [("535.104.05", "535.104.5"), ("12.4", "12.4.0")])
def test_equal_but_written_differently(one, same):
    assert parse_version(one) == parse_version(same)
    assert hash(parse_version(one)) == hash(parse_version(same))


@pytest.mark.parametrize(
    ("version", "prefix", "expected"),
    [
        ("4.1.4-3+b1", "4.1.4", True),
        ("4.1.4-3+b1", "4.1", True),
        ("4.1.4-3+b1", "4.1.4-3", True),
        ("4.1.4-3+b1", "4.1.4-3+b1", True),
        ("4.1.4-30", "4.1.4-3", False),
        ("4.1.40", "4.1.4", False),
        ("4.1", "4.1.4", False),
        ("12.4", "12.4.0", True),
        ("2.21.0rc1", "2.21.0", False),
        ("1:4.5.1-1", "4.5.1", True),
        ("1:4.5.1-1", "2:4.5.1", False),
        ("3.11.2", "3.11", True),
        ("3.1", "3.11", False),
    ],
)
def test_prefix(version, prefix, expected):
    assert parse_version(version).has_prefix(prefix) is expected


@given(debian | pythonic, debian | pythonic, debian | pythonic)
def test_the_order_is_total(a, b, c):
    one, two, three = map(parse_version, (a, b, c))
    assert (one < two) + (one == two) + (one > two) == 1
    if one <= two and two <= three:
        assert one <= three
    if one == two:
        assert hash(one) == hash(two)


@given(debian | pythonic)
def test_a_version_has_itself_for_a_prefix_and_is_given_back(text):
    version = parse_version(text)
    assert str(version) == text
    assert version.has_prefix(text) or version.is_before_release


@given(pythonic, pythonic)
def test_agrees_with_packaging_on_python_versions(a, b):
    ours = (parse_version(a) < parse_version(b), parse_version(a) == parse_version(b))
    theirs = (PackagingVersion(a) < PackagingVersion(b), PackagingVersion(a) == PackagingVersion(b))
    assert ours == theirs


def _without_trailing_zeros(text: str) -> bool:
    return not text.endswith(".0") and not any(f".0{sign}" in text for sign in "+-~")


@settings(max_examples=60, deadline=None)
@given(debian.filter(_without_trailing_zeros), debian.filter(_without_trailing_zeros))
def test_agrees_with_dpkg_on_debian_versions(a, b):
    """dpkg tells 12.4 from 12.4.0, we do not: such pairs are left out."""
    below = subprocess.run(["dpkg", "--compare-versions", a, "lt", b]).returncode == 0
    equal = subprocess.run(["dpkg", "--compare-versions", a, "eq", b]).returncode == 0
    assert (parse_version(a) < parse_version(b), parse_version(a) == parse_version(b)) == (
        below,
        equal,
    )
