"""What a publisher states beside his files: `_metadata.json` of a table, and who he is."""
