"""The project's commands, where Invoke looks for them. The tasks lie in `commands`, by theme."""

from invoke import Collection

from commands import benches, clusters, data, images, machine, models, results, scaling, training

namespace = Collection()
for theme in (images, machine, data, training, models, results, clusters, benches, scaling):
    for one in Collection.from_module(theme).tasks.values():
        namespace.add_task(one)
