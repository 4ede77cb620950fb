"""Edits to unpacked sources, by rules that must match exactly as often as they say.

Knows the shape of ``env/edits/*.toml`` and how to apply such a file to a folder: all
rules are tried in memory first, so a tree is edited whole or not at all. Leaves
fetching and unpacking the sources to its callers (bootstrap and the image recipe).
Imports nothing of this project, so that a build stage needs this one file and the rules:

    python3 env/source_edits.py --rules env/edits/horovod-VERSION.toml --source DIR
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

SCHEMA_VERSION = 1


class EditError(Exception):
    """A rule file that cannot be used, or a rule that does not fit the source."""


@dataclass(frozen=True)
class Edit:
    """One rule.

    Attributes:
        id: its name, unique in the file.
        file: path within the source tree.
        pattern: the text to find, or a regular expression (multi-line) where ``regex``.
        replacement: what takes its place; a template with group numbers where ``regex``.
        count: how many matches there must be, at least 1.
        reason: why the source needs it.
        upstream: a link to where upstream discusses or did the same.
        regex: whether ``pattern`` is a regular expression.
    """

    id: str
    file: str
    pattern: str
    replacement: str
    count: int
    reason: str
    upstream: str
    regex: bool = False

    @property
    def compiled(self) -> re.Pattern[str]:
        """The pattern, ready to search with."""
        return re.compile(self.pattern if self.regex else re.escape(self.pattern), re.MULTILINE)


def load_edits(path: Path) -> tuple[Edit, ...]:
    """Read a file of rules.

    Raises:
        EditError: the file is missing, is not TOML of this schema, or a rule has an
            unknown key, misses one, or holds a value of another type.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EditError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise EditError(f"{path}: not TOML: {error}") from error
    if data.get("schema_version") != SCHEMA_VERSION or not data.get("edits"):
        raise EditError(f"{path}: expected schema_version = {SCHEMA_VERSION} and [[edits]]")
    edits = tuple(_edit(path, number, raw) for number, raw in enumerate(data["edits"], start=1))
    names = [edit.id for edit in edits]
    for name in names:
        if names.count(name) > 1:
            raise EditError(f"{path}: rule {name!r} is there {names.count(name)} times")
    return edits


def apply_edits(edits: Sequence[Edit], *, source: Path) -> tuple[Path, ...]:
    """Apply rules to a source tree, all of them or none.

    Args:
        edits: the rules, applied in this order.
        source: the unpacked tree.

    Returns:
        The files that were written.

    Raises:
        EditError: a file is missing, a pattern matches another number of times than its
            rule says, or still matches afterwards (the rule could be applied twice).
    """
    texts: dict[Path, str] = {}
    for edit in edits:
        path = source / edit.file
        if path not in texts:
            try:
                texts[path] = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise EditError(f"{path}: rule {edit.id!r}: cannot be read: {error}") from error
        texts[path] = _replaced(edit, path, texts[path])
    for path, text in texts.items():
        aside = path.with_name(path.name + ".edited")
        aside.write_text(text, encoding="utf-8")
        aside.chmod(path.stat().st_mode)
        aside.replace(path)
    return tuple(texts)


def _replaced(edit: Edit, path: Path, text: str) -> str:
    template = edit.replacement if edit.regex else edit.replacement.replace("\\", r"\\")
    edited, found = edit.compiled.subn(template, text)
    if found != edit.count:
        raise EditError(
            f"{path}: rule {edit.id!r}: expected {edit.count} matches, found {found}\n"
            "fix: unpack the archive anew (a tree is edited once), or correct the rule "
            "if this is another release of the source"
        )
    if edit.compiled.search(edited):
        raise EditError(f"{path}: rule {edit.id!r}: its pattern matches its own outcome")
    return edited


def _edit(path: Path, number: int, raw: object) -> Edit:
    where = f"{path}: rule {number}"
    if not isinstance(raw, dict):
        raise EditError(f"{where}: expected a table")
    named = {"str": str, "int": int, "bool": bool}
    kinds = {field.name: named[field.type] for field in fields(Edit)}
    for key in raw:
        if key not in kinds:
            raise EditError(f"{where}: unknown key {key!r}; the known ones: {', '.join(kinds)}")
    for key, kind in kinds.items():
        if type(raw.get(key, False if key == "regex" else None)) is not kind:
            raise EditError(f"{where}: {key!r} must be a {kind.__name__}")
    edit = Edit(**raw)
    if edit.count < 1 or not edit.pattern:
        raise EditError(f"{where}: 'count' must be at least 1 and 'pattern' must not be empty")
    if Path(edit.file).is_absolute() or ".." in Path(edit.file).parts:
        raise EditError(f"{where}: 'file' must be a path within the source")
    try:
        edit.compiled  # noqa: B018 - compiled here so that a bad pattern is the rule's fault
    except re.error as error:
        raise EditError(f"{where}: 'pattern' is no regular expression: {error}") from error
    return edit


def main(argv: Sequence[str] | None = None) -> int:
    """Apply a rule file to a folder; return 0, or 1 with the rule and counts said."""
    parser = argparse.ArgumentParser(prog="source_edits", description=__doc__.splitlines()[0])
    parser.add_argument("--rules", type=Path, required=True, help="a file of env/edits/")
    parser.add_argument("--source", type=Path, required=True, help="the unpacked source tree")
    args = parser.parse_args(argv)
    try:
        edits = load_edits(args.rules)
        written = apply_edits(edits, source=args.source)
    except EditError as error:
        print(f"source_edits: {error}", file=sys.stderr)
        return 1
    print(f"{len(edits)} edits applied to {len(written)} files of {args.source}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
