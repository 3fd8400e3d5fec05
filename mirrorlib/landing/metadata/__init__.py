"""What a publisher states beside his files: `_metadata.json` of a table, and who he is.

`lenient` reads JSON as publishers write it, `reading` makes `declared.TableMetadata` of it, `partner` is who publishes.
"""
