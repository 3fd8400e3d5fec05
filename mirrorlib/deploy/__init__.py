"""Databricks bundles without the Databricks CLI: read one, render a target, check it, send its jobs to a workspace.

`read` loads `databricks.yml` and what it includes; `render` resolves a target, with `overlay` and `presets`; `check`
finds what the workspace would refuse, or what would go wrong there without a word; `push` uploads and calls.
"""
