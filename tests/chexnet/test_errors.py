from chexnet import errors


def test_one_message_form():
    error = errors.UserError("a folder", found="a file", fix="remove it")
    assert str(error) == "expected: a folder\nfound:    a file\nfix:      remove it"
    assert error.exit_code == 2


def test_unknown_name_lists_the_known_in_order():
    error = errors.unknown_name("pipeline", "fst", known=["old", "new"])
    assert (error.found, error.fix) == ("'fst'", "use one of: new, old")


def test_name_some_counts_the_rest():
    assert errors.name_some("abc") == "a, b, c"
    assert errors.name_some("abcdefg") == "a, b, c, d, e and 2 more"
