"""Encodings: which codec reads what publishers call an encoding.

In: a name as .NET, Windows, Azure Data Factory or Python writes it. Out: the name of one of Python's
codecs. The rule: the format is Microsoft's, so a name means what .NET writes under it, and the East Asian names
Windows' code pages, which have more characters than the standards: docs/bad-input.md, "Delimited text", has it all.
"""

from __future__ import annotations

import codecs
import re

_NAMES = {"unicode": "utf-16", "unicodefffe": "utf-16-be"}  # what Python does not know
_PAGE = re.compile(r"^(?:windows|ibm|cp|dos|ms)?-?0*([0-9]{2,5})$")
_SUPERSETS = {
    "shift_jis": "cp932",
    "gb2312": "gb18030",
    "gbk": "gb18030",  # the same characters, and those that came later
    "euc_kr": "cp949",
    "big5": "cp950",
    "utf-8-sig": "utf-8",  # whether there is a mark is seen
}
_MARK_STATED = re.compile(r"\s+with(out)?\s+bom$")
# Text to Python, but no encodings of files; "mbcs" and "oem" mean what the machine means.
_NO_ENCODINGS = frozenset(
    {"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem"}
)


def codec_of(stated: str) -> str:
    """Give the codec of an encoding's name; nothing is UTF-8. Raises `LookupError` for what is no encoding of text."""
    name = _MARK_STATED.sub("", stated.strip().casefold()) or "utf-8"
    page = _PAGE.match(name)
    name = f"cp{page[1]:0>3}" if page else _NAMES.get(name, name)
    try:
        "".encode(name)  # LookupError for codecs that are no text encodings, such as "base64"
        codec = codecs.lookup(name)
    except ValueError as exc:  # a NUL in the name
        raise LookupError from exc
    if codec.name in _NO_ENCODINGS or codec.incrementaldecoder is None:
        raise LookupError
    return _SUPERSETS.get(codec.name, codec.name)
