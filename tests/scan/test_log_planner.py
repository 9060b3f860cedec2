"""Files of a log in the form of files of an answer."""

import pytest

from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.log.actions import make_action
from delta_sharing_client.scan.log_planner import located
from delta_sharing_client.secrets import SecretUrl


def logged(vector=None, **more):
    raw = {"path": "p=a%20b/f", "partitionValues": {"p": "a b"}, "size": 9, "stats": "{}", "dataChange": False}
    add = make_action("add", raw | more | {"deletionVector": vector}, where="test")
    return located(add, lambda uri: SecretUrl(f"store://{uri}"), file_id="f1", vector_file_id="v1")


def descriptor(kind, text):
    return {"storageType": kind, "pathOrInlineDv": text, "offset": 1, "sizeInBytes": 34, "cardinality": 2}


def test_fields_of_the_log_are_kept():
    file = logged()
    assert file.url.reveal() == "store://p=a%20b/f"
    assert (file.id, file.deletion_vector_file_id, file.partition_values) == ("f1", "v1", {"p": "a b"})
    assert (file.size, file.stats, file.data_change, file.deletion_vector) == (9, "{}", False, None)
    assert logged(size=None).size == 0


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("i", "wi5b=", ("i", "wi5b=")),
        ("p", "file:/v%20w.bin", ("p", "store://file:/v%20w.bin")),
        (
            "u",
            "a b^-aqEH.-t@S}K{vb[*k^",
            ("p", "store://a%20b/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"),
        ),
    ],
)
def test_a_deletion_vector_has_the_url_of_its_file(kind, text, expected):
    vector = logged(descriptor(kind, text)).deletion_vector
    assert (vector.storage_type, vector.path_or_inline.reveal()) == expected
    assert (vector.offset, vector.size_in_bytes, vector.cardinality) == (1, 34, 2)


def test_a_deletion_vector_of_an_unknown_storage_type_is_refused():
    with pytest.raises(DeltaLogError, match="unknown kind"):
        logged(descriptor("x", "y"))
