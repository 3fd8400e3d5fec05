"""The change feed of Delta tables, mirrors and others alike: read without gaps, folded, switched on.

A window is `(after, until]` in Delta versions. `window` settles the bounds and proves that no version is missing,
`read` makes a DataFrame of it, `net` folds it to what changed between its ends, `enable` switches feeds on.
"""
