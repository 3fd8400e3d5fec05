"""Delimited text: from the bytes of a change file to typed Arrow tables, in the order of its rows."""
