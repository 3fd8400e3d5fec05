"""Encodings: which codec reads what publishers call an encoding.

In: a name as .NET, Windows, Azure Data Factory or Python writes it. Out: the name of one of Python's
codecs. The rule: the format is Microsoft's, so a name means what .NET writes under it
(https://learn.microsoft.com/dotnet/api/system.text.encoding). The East Asian names mean Windows' code
pages there, `shift_jis` 932, `gb2312` 936, `ks_c_5601-1987` 949 and `big5` 950, and so do they on the web
(https://encoding.spec.whatwg.org). These have more characters than the standards of the same names, and
give a few others: the wave dash is U+FF5E, and by Python's `shift_jis` it would be U+301C.
Where .NET has a code page for the standard itself, as for ISO-8859-1, the name means the standard. Bytes to which
a code page gives no character, of which .NET makes control characters, are refused.
"""

from __future__ import annotations

import codecs
import re

_NAMES = {  # what Python does not know
    "unicode": "utf-16",
    "unicodefffe": "utf-16-be",
    "x-sjis": "cp932",
    "windows-31j": "cp932",
    "x-gbk": "gb18030",
    "cn-gb": "gb18030",
    "csksc56011987": "cp949",
    "cn-big5": "cp950",
    "x-x-big5": "cp950",
}
_PAGES = {  # .NET's numbers for what has another name than its number
    "1200": "utf-16-le",
    "1201": "utf-16-be",
    "12000": "utf-32-le",
    "12001": "utf-32-be",
    "20127": "ascii",
    "20866": "koi8-r",
    "20932": "euc_jp",
    "21866": "koi8-u",
    "50220": "iso2022_jp",
    "51932": "euc_jp",
    "51949": "cp949",
    "54936": "gb18030",
    "65000": "utf-7",
    **{str(28590 + part): f"iso8859-{part}" for part in (*range(1, 10), 13, 15)},
}
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
_WINDOWS_JAPANESE = str.maketrans(
    "\u301c\u2016\u2212\u00a2\u00a3\u00ac", "\uff5e\u2225\uff0d\uffe0\uffe1\uffe2"
)
_JAPANESE = frozenset({"euc_jp", "iso2022_jp"})  # which Python has by the standard alone


def codec_of(stated: str) -> str:
    """Give the codec of an encoding's name; nothing is UTF-8. Raises `LookupError` for what is no encoding of text."""
    name = _MARK_STATED.sub("", stated.strip().casefold()) or "utf-8"
    page = _PAGE.match(name)
    name = _PAGES.get(page[1], f"cp{page[1]:0>3}") if page else _NAMES.get(name, name)
    try:
        "".encode(name)  # LookupError for codecs that are no text encodings, such as "base64"
        codec = codecs.lookup(name)
    except ValueError as exc:  # a NUL in the name
        raise LookupError from exc
    if codec.name in _NO_ENCODINGS or codec.incrementaldecoder is None:
        raise LookupError
    return _SUPERSETS.get(codec.name, codec.name)


def as_windows(text: str, codec: str) -> str:
    """Give the characters that Windows means, where Python's codec gives those of the standard."""
    return text.translate(_WINDOWS_JAPANESE) if codec in _JAPANESE else text
