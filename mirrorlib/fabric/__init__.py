"""Microsoft Fabric: the notebooks, the wheel and their schedule as items that git integration and fabric-cicd take.

`items` writes the folders, `source` says a notebook as Fabric's git format does, `pipelines` says what runs it.
"""
