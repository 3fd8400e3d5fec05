"""Delimited text: from the bytes of a change file to typed Arrow tables, in the order of its rows.

The data's way: `dialect` says how a table's text is written, `text` gives its UTF-8 blocks, `rows`
cuts them where rows end, `tables` has pyarrow parse them and names what does not fit, `values` says
what each declared type is written like.
"""
