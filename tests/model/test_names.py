"""Names of shares, schemas and tables, and the table URL."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from delta_sharing_client.errors import ProtocolError, TableNameError
from delta_sharing_client.model.names import Schema, Share, Table, check_name, parse_bare_table, parse_table_url

SECRET = "s3cr3tS1gn4tur3"


class TestParse:
    @pytest.mark.parametrize(
        ("text", "names"),
        [
            ("a.b.c", ("a", "b", "c")),
            ("a.b.c.d", ("a.b", "c", "d")),
            ("my.share.with.dots.s.t", ("my.share.with.dots", "s", "t")),
            ("ä.表.🦆", ("ä", "表", "🦆")),
            ("a b.c d.e f", ("a b", "c d", "e f")),
            ("a#b.c.d", ("a#b", "c", "d")),
        ],
    )
    def test_tables_are_split_from_the_right(self, text, names):
        table = Table.parse(text)
        assert (table.share, table.schema, table.name) == names
        assert table.full_name == text

    @pytest.mark.parametrize(
        ("text", "names"),
        [
            ("`a`.`b`.`c`", ("a", "b", "c")),
            ("`my.share`.s.`my.table`", ("my.share", "s", "my.table")),
            ("my.share.`s.1`.t", ("my.share", "s.1", "t")),
            ("`a#b`.s.`it``s`", ("a#b", "s", "it`s")),
            (" `a`.`b`.`c` ", ("a", "b", "c")),
            ("it`s.b`.c", ("it`s", "b`", "c")),  # no name is in backticks
        ],
    )
    def test_names_in_backticks(self, text, names):
        share, schema, name = names
        table = Table(name, share, schema)
        assert Table.parse(text) == table
        assert parse_bare_table(text) == table
        for profile in ("p.share", "/odd#dir/p.share"):
            assert parse_table_url(f"{profile}#{text}") == (profile, table)

    def test_backticks_do_not_hide_an_invalid_name(self):
        for text in ("`a`.`b/c`.d", "``.b.c", "`a.b.c`"):
            with pytest.raises(TableNameError):
                Table.parse(text)

    def test_text_is_the_full_name(self):
        table = Table("c", "a", "b")
        assert (str(table), str(Schema("b", "a")), str(Share("a"))) == ("a.b.c", "a.b", "a")
        assert repr(table) == "Table(name='c', share='a', schema='b')"

    @pytest.mark.parametrize("text", [" a.b.c", "a.b.c\n", "\ta.b.c  "])
    def test_surrounding_blanks_are_ignored(self, text):
        assert Table.parse(text) == Table("c", "a", "b")
        assert parse_table_url(text.replace("a.", "p.share#a.")) == ("p.share", Table("c", "a", "b"))

    @pytest.mark.parametrize(
        "text",
        ["", "a", "a.b", "..", "a..c", ".b.c", "a.b.", "a/b.c.d", "a.b/c.d", "a.b.c/d", "a.b\n.c", "a.\x00.c"],
    )
    def test_malformed_table_names_raise(self, text):
        with pytest.raises(TableNameError):
            Table.parse(text)
        with pytest.raises(ValueError):
            Table.parse(text)

    def test_schemas(self):
        assert Schema.parse("a.b.c") == Schema("c", "a.b")
        assert Schema.parse("a.b").full_name == "a.b"
        for text in ("", "a", "a.", ".b"):
            with pytest.raises(TableNameError):
                Schema.parse(text)

    @pytest.mark.parametrize("name", ["", ".", "..", "a/b", "\x7f", "a\tb", "x" * 256, "\x85"])
    def test_check_name_refuses(self, name):
        with pytest.raises(TableNameError):
            check_name(name, "share")

    def test_check_name_takes(self):
        for name in ("x" * 255, "a.b", "...", "ünï", "%2F", "a b"):
            assert check_name(name, "share") == name
        with pytest.raises(TypeError, match="a share name is a str, not int"):
            check_name(3, "share")


class TestTableUrl:
    @pytest.mark.parametrize(
        ("url", "profile"),
        [
            ("p.share#a.b.c", "p.share"),
            ("/home/me/my profile.share#a.b.c", "/home/me/my profile.share"),
            ("/odd#dir/p.share#a.b.c", "/odd#dir/p.share"),
            ("s3://bucket/p.share#a.b.c", "s3://bucket/p.share"),
            ("C:\\p.share#a.b.c", "C:\\p.share"),
            ("#a.b.c", None),
        ],
    )
    def test_split_at_the_last_hash(self, url, profile):
        assert parse_table_url(url) == (profile, Table("c", "a", "b"))

    @pytest.mark.parametrize("url", ["", "a.b.c", "p.share", "p.share#", "p.share#a", "p.share#a.b", "p#a.b.c#"])
    def test_malformed(self, url):
        with pytest.raises(TableNameError):
            parse_table_url(url)

    def test_errors_show_no_signature(self):
        with pytest.raises(TableNameError) as caught:
            parse_table_url(f"https://host/p.share?sig={SECRET}")
        assert SECRET not in str(caught.value)

    def test_not_text(self):
        with pytest.raises(TypeError):
            parse_table_url(None)

    # Blanks around a URL, and around a name, are not part of it.
    names = st.text(
        st.characters(exclude_characters="/.#`", exclude_categories=["C"]), min_size=1, max_size=20
    ).filter(lambda text: text == text.strip())
    profiles = st.none() | st.text(min_size=1).filter(lambda text: text == text.strip())

    @given(profiles, names, names, names)
    @settings(max_examples=examples(100), deadline=None)
    def test_round_trip(self, profile, share, schema, name):
        table = Table(name, share, schema)
        assert parse_table_url(f"{profile or ''}#{table.full_name}") == (profile, table)


class TestListings:
    def test_share(self):
        share = Share.from_json(
            {"name": "s", "id": "1", "displayName": "S", "comment": "c", "properties": {"a": "b"}, "new": 1}
        )
        assert (share.name, share.id, share.display_name, share.comment) == ("s", "1", "S", "c")
        assert share.properties == {"a": "b"}
        assert share == Share("s")
        assert Share.from_json({"name": "s", "id": None, "properties": "x"}).properties is None

    def test_schema_and_table(self):
        assert Schema.from_json({"name": "d", "share": "s", "x": 1}) == Schema("d", "s")
        table = Table.from_json(
            {
                "name": "t",
                "schema": "d",
                "share": "s",
                "shareId": "1",
                "id": "2",
                "location": "s3://b/t",
                "accessModes": ["url", "dir"],
                "auxiliaryLocations": ["s3://b/u"],
            }
        )
        assert table == Table("t", "s", "d")
        assert (table.id, table.share_id, table.location) == ("2", "1", "s3://b/t")
        assert table.access_modes == ("url", "dir")
        assert table.auxiliary_locations == ("s3://b/u",)
        assert Table.from_json({"name": "t", "schema": "d", "share": "s", "accessModes": None}).access_modes == ()

    @pytest.mark.parametrize("cls", [Share, Schema, Table])
    @pytest.mark.parametrize("item", [{}, {"name": None}, {"name": ""}, {"name": 5}])
    def test_a_name_is_required(self, cls, item):
        with pytest.raises(ProtocolError, match="without a 'name'"):
            cls.from_json(item)
