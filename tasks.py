"""The project's commands, where Invoke looks for them. The tasks lie in `commands`, by theme."""

from invoke import Collection
from invoke.parser.parser import ParseMachine

from commands import (
    benches,
    clusters,
    data,
    images,
    machine,
    models,
    predictions,
    reports,
    results,
    scaling,
    training,
)
from commands.command import refuse_words

ParseMachine.error = refuse_words
namespace = Collection()
themes = (
    images,
    machine,
    data,
    training,
    models,
    results,
    predictions,
    reports,
    clusters,
    benches,
    scaling,
)
for theme in themes:
    for one in Collection.from_module(theme).tasks.values():
        namespace.add_task(one)
