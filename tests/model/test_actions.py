"""Protocol features, capabilities, and representations of actions."""

import pickle

import pytest
from msgspec import structs

from delta_sharing_client.errors import UnsupportedFeatureError, UnsupportedTableError
from delta_sharing_client.model.actions import (
    AddFile,
    CdcFile,
    Metadata,
    Protocol,
    RemoveFile,
)
from delta_sharing_client.model.capabilities import (
    ResponseCapabilities,
    parse_capabilities,
    request_capabilities,
)
from delta_sharing_client.model.reader_features import ADVERTISED_FEATURES, SUPPORTED_FEATURES, canonical_feature


def delta(version, features=()):
    return Protocol(version, 7, features, ("appendOnly", "icebergCompatV1", "anything"), "delta")


class TestCheckReadable:
    @pytest.mark.parametrize(
        "protocol",
        [
            Protocol(0),
            Protocol(1),
            delta(1),
            delta(3),
            delta(3, ("timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "catalogManaged")),
            delta(3, ("TIMESTAMPNTZ", "timestampNtz-preview", "catalogManaged-preview")),
            delta(3, ("catalogOwned-preview",)),
            delta(3, tuple(sorted(SUPPORTED_FEATURES))),
        ],
        ids=repr,
    )
    def test_readable(self, protocol):
        protocol.check_readable("table s.d.t")

    def test_writer_features_have_no_effect_on_readers(self):
        delta(3, ("timestampNtz",)).check_readable("t")

    def test_every_unknown_feature_is_named(self):
        with pytest.raises(UnsupportedFeatureError) as caught:
            delta(3, ("timestampNtz", "geospatialType", "brandNew-preview")).check_readable("table s.d.t")
        assert caught.value.features == ("geospatialType", "brandNew-preview")
        for word in ("table s.d.t", "geospatialType", "brandNew-preview"):
            assert word in str(caught.value)
        assert "timestampNtz" not in str(caught.value)

    def test_the_legacy_reader_version_2_means_column_mapping(self):
        assert delta(2).required_features == ("columnMapping",)
        if "columnmapping" in SUPPORTED_FEATURES:
            delta(2).check_readable("t")
        else:
            with pytest.raises(UnsupportedFeatureError, match="columnMapping"):
                delta(2).check_readable("t")

    def test_no_features_are_taken_from_parquet_format(self):
        assert Protocol(1).required_features == ()

    @pytest.mark.parametrize("protocol", [Protocol(2), Protocol(99), delta(4), delta(4, ("timestampNtz",))])
    def test_a_newer_reader_version(self, protocol):
        with pytest.raises(UnsupportedTableError, match=r"table s\.d\.t needs reader version .* upgrade"):
            protocol.check_readable("table s.d.t")

    @pytest.mark.parametrize(
        ("name", "canonical"),
        [
            ("deletionVectors", "deletionvectors"),
            ("deletionVectors-preview", "deletionvectors"),
            ("variantType-PREVIEW", "varianttype"),
            ("x-dev", "x"),
            ("preview", "preview"),
        ],
    )
    def test_preview_names_count_as_their_feature(self, name, canonical):
        assert canonical_feature(name) == canonical


def test_protocol_and_metadata_pickle():
    for item in (delta(3, ("a",)), Metadata("i", "{}", configuration={"a": "b"}, partition_columns=("p",))):
        assert pickle.loads(pickle.dumps(item)) == item
        hash(item)


def test_metadata_repr_is_short():
    shown = repr(Metadata("i", "schema" * 1000, configuration={"k": "v" * 1000}))
    assert len(shown) < 300


class TestCapabilities:
    def test_request_for_parquet(self):
        assert request_capabilities(("parquet",)) == "responseformat=parquet;includeendstreamaction=true"

    def test_request_for_delta_names_every_supported_feature(self):
        header = request_capabilities(("delta", "parquet"))
        parts = dict(part.split("=") for part in header.split(";"))
        assert parts["responseformat"] == "delta,parquet"
        assert set(parts["readerfeatures"].split(",")) == ADVERTISED_FEATURES
        assert parts["includeendstreamaction"] == "true"
        assert header == header.lower()
        assert " " not in header

    @pytest.mark.parametrize(
        ("preview", "final"),
        [
            ("typeWidening-preview", "typewidening"),
            ("variantType-preview", "varianttype"),
            ("variantShredding-preview", "variantshredding"),
            ("catalogOwned-preview", "catalogmanaged"),
        ],
    )
    def test_previews_are_advertised_beside_their_features(self, preview, final):
        features = request_capabilities(("delta",)).split("readerfeatures=")[1].split(";")[0].split(",")
        assert {preview.lower(), final} <= set(features)
        assert delta(3, (preview,)).check_readable("table t") is None

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (None, ResponseCapabilities()),
            ("", ResponseCapabilities()),
            (";;", ResponseCapabilities()),
            ("nonsense", ResponseCapabilities()),
            ("responseformat=delta", ResponseCapabilities("delta")),
            ("responseFormat=PARQUET", ResponseCapabilities("parquet")),
            ("responseformat=iceberg", ResponseCapabilities()),
            ("includeEndStreamAction=TRUE", ResponseCapabilities(None, True)),
            ("includeendstreamaction=false", ResponseCapabilities()),
            (" responseformat = delta ; includeendstreamaction = true ", ResponseCapabilities("delta", True)),
            ("x=1;responseformat=delta;readerfeatures=a,b;y", ResponseCapabilities("delta")),
        ],
    )
    def test_response(self, value, expected):
        assert parse_capabilities(value) == expected

    def test_the_header_of_a_request_can_be_parsed(self):
        assert parse_capabilities(request_capabilities(("delta",))) == ResponseCapabilities("delta", True)


@pytest.mark.parametrize("kind", [AddFile, CdcFile, RemoveFile])
def test_files_are_values_that_show_no_url(kind):
    file = kind("https://h/f?sig=s", "f1", {"p": "1"}, 9, '{"numRecords":1}', 2, 3, 4)
    again = pickle.loads(pickle.dumps(file))
    assert again == file
    assert hash(again) == hash(file)
    assert file == structs.replace(file, expiration_timestamp=5)
    assert file != structs.replace(file, size=8)
    for other in (AddFile, CdcFile, RemoveFile):
        assert (file == other(**structs.asdict(file))) == (other is kind)
    shown = repr(file)
    assert shown.startswith(f"{kind.__name__}(id='f1', partition_values={{'p': '1'}}, size=9, version=2, ")
    assert "https" not in shown + repr(list(file.__rich_repr__()))
    with pytest.raises(AttributeError):
        file.size = 1
