"""The rules of Host, Origin and token, as values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.web.web_settings import (
    VIEWER_ORIGINS,
    WebSettings,
    allowed_origin,
    bearer_token,
    host_name,
    is_known_host,
    is_token_shown,
    split_token,
)


@pytest.mark.parametrize(
    ("header", "is_known"),
    [
        ("127.0.0.1:5280", True),
        ("127.0.0.1:9999", True),  # a tunnel has another port
        ("localhost", True),
        ("LOCALHOST:80", True),
        ("[::1]:5280", True),
        ("127.3.2.1", True),
        ("scope-3:5280", True),
        ("192.168.7.4:5280", True),
        ("192.168.7.5:5280", False),
        ("evil.example:5280", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("127.evil", False),
        ("", False),
        ("127.0.0.1:5280, evil.example", False),
        ("evil.example@127.0.0.1", False),
        ("[::1]evil", False),
        ("127.\u0660.0.1", False),
    ],
)
def test_only_names_of_this_server_are_known(header, is_known):
    assert is_known_host(header, "192.168.7.4", ("scope-3",)) is is_known


@given(st.text())
def test_a_host_header_never_fails(header):
    name = host_name(header)
    assert name == "" or ":" not in name or header.startswith("[")


@pytest.mark.parametrize(
    ("origin", "is_allowed"),
    [
        ("http://127.0.0.1:5280", True),
        ("http://localhost:3000", True),
        ("http://[::1]:8000", True),
        ("http://scope-3:5280", True),  # its own
        ("https://neuroglancer-demo.appspot.com", True),
        ("https://neuroglancer-demo.appspot.com.evil.example", False),
        ("http://neuroglancer-demo.appspot.com", False),
        ("https://evil.example", False),
        ("http://127.0.0.1.evil.example", False),
        ("http://evil.example#127.0.0.1", False),
        ("http://evil.com@localhost", False),
        ("http://127.0.0.1:5280/evil", False),
        ("http://127.\u0660.0.1", False),
        ("https://hms-dbmi.github.io", False),  # all pages of an organisation: to be asked for
        ("null", False),
        ("http://[", False),
        (None, False),
    ],
)
def test_only_pages_of_the_list_may_read(origin, is_allowed):
    found = allowed_origin(origin, "scope-3:5280", VIEWER_ORIGINS)
    assert found == (origin if is_allowed else "")


def test_a_star_lets_every_page_read():
    assert allowed_origin("https://any.example", "127.0.0.1", ("*",)) == "https://any.example"
    assert allowed_origin("null", "127.0.0.1", ("*",)) == "*"


@given(st.text(), st.text())
def test_an_origin_is_echoed_or_not_answered(origin, host):
    assert allowed_origin(origin, host, VIEWER_ORIGINS) in ("", origin)


def test_tokens_come_in_paths_and_headers():
    assert split_token("/t/secret/data/cells/") == ("secret", "/data/cells/")
    assert split_token("/t/secret") == ("secret", "/")
    assert split_token("/data/t/secret") == ("", "/data/t/secret")
    assert split_token("/token") == ("", "/token")
    assert bearer_token("Bearer abc") == "abc"
    assert bearer_token("Basic abc") == ""


def test_a_token_is_right_or_not():
    assert is_token_shown("secret-secret-1", ["", "secret-secret-1"])
    assert not is_token_shown("secret-secret-1", ["", "secret-secret", "ü"])
    assert not is_token_shown("secret-secret-1", [])


def test_settings_do_not_show_their_token(tmp_path):
    assert "hidden" not in repr(WebSettings(data=tmp_path, token="hidden"))
