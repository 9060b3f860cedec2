"""Secrets of a request in what a server repeats of them, in other encodings, in part, and in long texts."""

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest

from delta_sharing_client.transport.echoes import mask_echoes, secrets_of

SECRET = 'canary+/=%41"\\ é&<s3cr3t>-0123456789abcdef'


def in_base64(before, encode=base64.b64encode):
    return encode(f"{before}{SECRET} and more".encode()).decode()


FORMS = {
    "plain": SECRET,
    "percent": quote(SECRET, safe=""),
    "percent, lower case": quote(SECRET, safe="").replace("%2F", "%2f").replace("%3D", "%3d"),
    "form": quote_plus(SECRET),
    "form of a URL": f"https://h.example/p?code={quote_plus(SECRET)}&state=1",
    "percent twice": quote(quote(SECRET, safe=""), safe=""),
    "json": json.dumps(SECRET),
    "json of utf-8": json.dumps(SECRET, ensure_ascii=False),
    "json in json": json.dumps(json.dumps(SECRET)),
    "json with escaped slashes": json.dumps(SECRET).replace("/", "\\/"),
    "json, all escaped": "".join(f"\\u{ord(char):04X}" for char in SECRET),
    "html": html.escape(SECRET),
    "html by numbers": "".join(f"&#{ord(char)};" for char in SECRET),
    "percent in json": json.dumps(quote(SECRET)),
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "base64 of a URL": base64.urlsafe_b64encode(SECRET.encode()).decode(),
    "base64 with an offset of 1": in_base64("a"),
    "base64 with an offset of 2": in_base64("ab", base64.urlsafe_b64encode),
    "base64, percent-encoded": quote(in_base64("id:"), safe=""),
    "hex": SECRET.encode().hex(),
    "its beginning": SECRET[:20],
    "its end": SECRET[-15:],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_each_form_is_masked(form):
    shown = mask_echoes(f"refused: {form} is unknown", [SECRET])
    assert shown.startswith("refused: ")
    assert shown.endswith(" is unknown")
    assert "***" in shown
    for part in ("s3cr3t", "0123456", base64.b64encode(b"0123456789")[:9].decode(), b"0123456".hex()):
        assert part not in shown
    assert len(shown) < 80


def test_other_texts_are_unchanged():
    text = 'Ungültig: %41 \\u0041 &amp; C:\\temp "grant" \ud800'
    assert mask_echoes(text, ["canary-s3cr3t"]) == text
    assert mask_echoes(text, [""]) == text


def test_short_secrets_are_masked_as_they_are():
    assert mask_echoes("user:pw1 failed", ["pw1"]) == "user:*** failed"


def test_headers_with_name_and_password():
    pair = base64.b64encode(b"client:pa%2Bss").decode()
    secrets = secrets_of({"Authorization": f"Basic {pair}"})
    assert mask_echoes(f"{pair} pa+ss pa%2Bss client", secrets) == "*** *** *** client"


def test_long_texts_are_cut():
    assert len(mask_echoes("%2" * 1_000_000, [SECRET])) <= 64 * 1024
