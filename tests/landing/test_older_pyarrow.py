"""What pyarrow 14, which Fabric has, reads otherwise than newer ones, or not at all."""

from __future__ import annotations

import base64
import io
import zlib
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlib.errors import ChangeFileError
from mirrorlib.landing.footer import read_footer
from mirrorlib.landing.parquet import read_schema
from mirrorlib.store import StoredFile

# A column `v` of one string view, which no older pyarrow can write.
VIEW = zlib.decompress(base64.b85decode(
    "c-lpf!D_=W42BgmOb@xr*x*Ah$*Jwuj`c8dkxRzPR@w#1*fErl?XWdVxAt}RsFU5${$NQ+`ag`;R8A03p&Fv#LZY+)ApDCWjul>+"
    ";T>qX-@ezM6$-#O6*@Yk@a#90FxJ=%EXF34V0ePuRJqEt!NM{U*pu^`G+E&CNMr+*gRwfMvRu91pV;~@y7syyuNOM$iRehKp$DRd"
    "=1u51N3`_CoM;gmm&_`B*!0!L``G{JIf3hXG8J!O(=}%ko&9dw^NPz?h(IT8)qVfgKcj8ij;gNP9g{=d?LT&3$#gcp8BdJ$XPNQs"
    ")_mK4XB9};"
))  # fmt: skip


@pytest.mark.smoke
@pytest.mark.parametrize(
    "unit,word,logical",
    [("ms", b"\x25\x12", b"\x4c\x8c\x11\x1c\x1c"), ("us", b"\x25\x14", b"\x4c\x8c\x11\x1c\x2c")],
)
def test_a_moment_by_parquets_older_word_is_one(unit: str, word: bytes, logical: bytes) -> None:
    """As Spark 3.1, Hive and parquet.js write it; pyarrow 14 takes it for a wall clock."""
    sink, kind = io.BytesIO(), pa.timestamp(unit, "UTC")
    pq.write_table(pa.table({"t": pa.array([0], kind)}), sink, store_schema=False)
    body, said = sink.getvalue()[:-8], word + logical + bytes(4)
    assert 1 == body.count(said)
    length = int.from_bytes(sink.getvalue()[-8:-4], "little") - len(said) + len(word)
    data = body.replace(said, word) + length.to_bytes(4, "little") + b"PAR1"

    schema, footer = read_schema(io.BytesIO(data))

    assert "TIMESTAMP" in footer.schema.column(0).converted_type
    assert kind == schema.field("t").type


@pytest.mark.smoke
def test_a_type_that_pyarrow_does_not_know_is_no_damage() -> None:
    """The same file, published again, would be told so again."""
    file = StoredFile(path="orders/1.parquet", size=len(VIEW), modified=datetime.now(UTC), etag="e")

    def read() -> list[pa.DataType]:
        footer = read_footer(io.BytesIO(VIEW), file, table="orders", ntz="utc")
        return [column.type for column in footer.columns]

    if hasattr(pa, "string_view"):
        assert [pa.string()] == read()
    else:
        with pytest.raises(ChangeFileError, match="a type that this version of pyarrow") as caught:
            read()
        assert "Install a newer one" in str(caught.value)
