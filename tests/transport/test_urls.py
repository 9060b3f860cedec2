"""URL rules for endpoints and data URLs."""

import pytest

from delta_sharing_client.errors import InsecureUrlError
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.transport.url_rules import check_data_url, check_endpoint, is_loopback, same_origin


@pytest.mark.parametrize(
    "url",
    [
        "https://host/x",
        "http://127.0.0.1:80/x",
        "http://localhost/x",
        "http://[::1]/x",
        "http://127.9.9.9",
        "http://LOCALHOST.",
    ],
)
def test_accepted_endpoints(url):
    assert check_endpoint(url, allow_http=False) == url


def test_plain_http_needs_to_be_allowed():
    with pytest.raises(InsecureUrlError, match=r"allow_http=True"):
        check_endpoint("http://host/x", allow_http=False)
    assert check_endpoint("http://host/x", allow_http=True)


@pytest.mark.parametrize(
    "url", ["http://localhost.evil.com/", "http://0.0.0.0/", "http://128.0.0.1/", "http://127.0.0.1.nip.io/"]
)
def test_hosts_similar_to_loopback_are_not_loopback(url):
    assert not is_loopback(url)
    with pytest.raises(InsecureUrlError):
        check_endpoint(url, allow_http=False)


@pytest.mark.parametrize(
    "url", ["http://127.1/", "http://2130706433/", "http://0x7f.1/", "http://[::ffff:127.0.0.1]/"]
)
def test_other_spellings_of_loopback(url):
    assert is_loopback(url)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "/etc/passwd",
        "etc/passwd",
        "ftp://host/x",
        "s3://bucket/x",
        "data:text/plain,x",
        "https:///x",
        "https://me@host/x",
        "https://me:pw@host/x",
        "https://host:0/x",
        "https://host:99999/x",
        "https://ho st/x",
        "https://host/x\r\nHost: y",
        "https://host\\@evil/x",
        "https://[::1/x",
        "",
        "https://169.254.169.254/latest/meta-data",
        "https://169.254.170.2/",
        "https://100.100.100.200/",
        "https://168.63.129.16/",
        "https://metadata.google.internal/",
        "https://METADATA.google.internal./",
        "https://[fe80::1]/",
        "https://[fe80::1%25eth0]/",
        "https://[fd00:ec2::254]/",
        "https://[::ffff:169.254.169.254]/",
        "https://[64:ff9b::a9fe:a9fe]/",
        "https://[2002:a9fe:a9fe::1]/",
        "https://2852039166/",
        "https://0xa9fea9fe/",
        "https://0251.0376.0251.0376/",
        "https://169.254.43518/",
        "https://169.254.169%2e254/",
        "https://metadata%2Egoogle.internal/",
    ],
)
@pytest.mark.parametrize("allow_http", [False, True])
def test_data_urls_refused_with_and_without_allow_http(url, allow_http):
    with pytest.raises(InsecureUrlError):
        check_data_url(SecretUrl(url), endpoint_is_loopback=True, allow_http=allow_http)


def test_data_urls_over_plain_http():
    def allowed(url, *, loopback=False, allow_http=False):
        try:
            check_data_url(SecretUrl(url), endpoint_is_loopback=loopback, allow_http=allow_http)
        except InsecureUrlError:
            return False
        return True

    assert allowed("https://bucket.s3.amazonaws.com/x?X-Amz-Signature=y")
    assert not allowed("http://bucket/x")
    assert not allowed("http://bucket/x", loopback=True)
    assert allowed("http://bucket/x", allow_http=True)
    assert not allowed("http://127.0.0.1/x")
    assert allowed("http://127.0.0.1/x", loopback=True)


def test_refusals_show_no_signature():
    with pytest.raises(InsecureUrlError) as caught:
        check_data_url(
            SecretUrl("http://bucket/x?X-Amz-Signature=s3cret"), endpoint_is_loopback=False, allow_http=False
        )
    assert "s3cret" not in str(caught.value)
    assert "http://bucket/x" in str(caught.value)


def test_same_origin():
    assert same_origin("https://host/a", "https://HOST:443/b")
    assert not same_origin("https://host/a", "http://host/a")
    assert not same_origin("https://host/a", "https://host:444/a")
    assert not same_origin("https://host/a", "https://host:x/a")
