"""Decoding of the files of an answer, in both formats."""

import json

import pytest
from answer_lines import (
    END,
    METADATA,
    PROTOCOL,
    SECRET,
    URL,
    body,
    decode,
    decode_line,
)

from delta_sharing_client.errors import (
    ProtocolError,
)
from delta_sharing_client.model.actions import (
    AddFile,
    CdcFile,
    DeletionVector,
    RemoveFile,
)
from delta_sharing_client.secrets import SecretUrl


def one_file(**fields):
    return decode_line({"file": {"url": URL, "id": "f1", "partitionValues": {}, "size": 1} | fields})


class TestFiles:
    @pytest.mark.parametrize(
        ("key", "kind"), [("file", AddFile), ("add", AddFile), ("cdf", CdcFile), ("remove", RemoveFile)]
    )
    def test_parquet_actions(self, key, kind):
        action = decode_line(
            {
                key: {
                    "url": URL,
                    "id": "f1",
                    "partitionValues": {"a": "1", "b": None, "c": ""},
                    "size": 10,
                    "stats": '{"numRecords":1}',
                    "version": 3,
                    "timestamp": 1700000000000,
                    "expirationTimestamp": 1700000900000,
                }
            }
        )
        assert type(action) is kind
        assert action.url.reveal() == URL
        assert action.id == "f1"
        assert action.partition_values == {"a": "1", "b": None, "c": ""}
        assert (action.size, action.version, action.timestamp) == (10, 3, 1700000000000)
        assert action.expiration_timestamp == 1700000900000
        assert action.stats == '{"numRecords":1}'
        assert action.deletion_vector is None
        assert action.data_change

    @pytest.mark.parametrize(("key", "kind"), [("add", AddFile), ("cdc", CdcFile), ("remove", RemoveFile)])
    def test_delta_actions(self, key, kind):
        action = decode_line(
            {
                "file": {
                    "id": "f1",
                    "size": 573,
                    "deletionVectorFileId": "v1",
                    "version": 7,
                    "timestamp": 8,
                    "expirationTimestamp": 9,
                    "deltaSingleAction": {
                        key: {
                            "path": URL,
                            "partitionValues": {"col-1": "x"},
                            "size": 574,
                            "stats": '{"numRecords":1}',
                            "dataChange": False,
                            "deletionVector": {
                                "storageType": "p",
                                "pathOrInlineDv": f"https://h/dv.bin?sig={SECRET}",
                                "offset": 1,
                                "sizeInBytes": 34,
                                "cardinality": 2,
                            },
                        }
                    },
                }
            }
        )
        assert type(action) is kind
        assert action == kind(
            SecretUrl(URL),
            "f1",
            {"col-1": "x"},
            574,
            '{"numRecords":1}',
            7,
            8,
            9,
            DeletionVector("p", SecretUrl(f"https://h/dv.bin?sig={SECRET}"), 34, 2, 1),
            "v1",
            False,
        )
        assert action.expiration_timestamp == 9
        assert SECRET not in repr(action)

    def test_the_size_may_be_a_field_of_the_wrapper(self):
        item = {"id": "f1", "size": 573, "deltaSingleAction": {"add": {"path": URL}}}
        assert decode_line({"file": item}).size == 573
        item["deltaSingleAction"]["add"]["size"] = 0
        assert decode_line({"file": item}).size == 573

    @pytest.mark.parametrize("fields", [{}, {"partitionValues": None}, {"partitionValues": {}}])
    def test_partition_values_may_be_missing(self, fields):
        item = {"url": URL, "id": "f1"} | fields
        action = decode_line({"file": item})
        assert action.partition_values == {}
        assert action.size == 0

    def test_partition_values_that_are_no_strings(self):
        values = {"i": 5, "b": True, "f": 1.5, "n": None, "s": "x", "z": False, "big": 2**60 + 1}
        assert one_file(partitionValues=values).partition_values == {
            "i": "5",
            "b": "true",
            "f": "1.5",
            "n": None,
            "s": "x",
            "z": "false",
            "big": str(2**60 + 1),
        }

    def test_a_partition_value_of_many_digits(self):
        """A decimal that should have come as text: a whole number is exact, any other would be rounded."""
        line = '{"file":{"url":"https://h/x","id":"1","partitionValues":{"d":%s}}}'
        file = decode(body(PROTOCOL, METADATA, line % "123456789012345678901", END))[2]
        assert file.partition_values == {"d": "123456789012345678901"}
        with pytest.raises(ProtocolError, match=r"line 3 of the answer: .*too many digits"):
            decode(body(PROTOCOL, METADATA, line % "123456789012345678901.5", END))

    @pytest.mark.parametrize(
        ("sent", "meant"),
        [
            ("573", 573),
            (573.0, 573),
            (" 573 ", 573),
            (str(2**60 + 1), 2**60 + 1),
            ("0", 0),
            (None, 0),
            (2**60 + 1,) * 2,
        ],
    )
    def test_integers_may_come_as_text(self, sent, meant):
        assert one_file(size=sent).size == meant
        assert one_file(version=sent).version == (meant if sent is not None else None)

    def test_stats_may_come_as_an_object(self):
        assert json.loads(one_file(stats={"numRecords": 3}).stats) == {"numRecords": 3}
        assert one_file(stats=None).stats is None
        assert one_file(stats="").stats is None

    def test_an_id_may_be_missing(self):
        def action(url, **fields):
            return decode_line({"file": {"url": url} | fields})

        first = action("https://h/a/part-0.parquet?sig=1")
        assert first.id
        assert first.id == action("https://h/a/part-0.parquet?sig=2").id
        assert first.id != action("https://h/a/part-1.parquet?sig=1").id
        assert action("https://h/a", id=17).id == "17"

    def test_files_without_id_have_distinct_ids(self):
        ids = {decode_line({"file": {"url": url}}).id for url in ("a/b", "a/c", "https://h:x/1", "https://h:x/2")}
        assert len(ids) == 4

    def test_equality_ignores_the_expiration(self):
        assert one_file(expirationTimestamp=1) == one_file(expirationTimestamp=2)
        assert one_file(size=1) != one_file(size=2)

    def test_kinds_are_never_equal(self):
        item = {"url": URL, "id": "f1"}
        assert decode_line({"add": item}) != decode_line({"remove": item})
