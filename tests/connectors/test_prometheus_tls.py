"""A real server with TLS and a password: what is let in, and what is said where nothing is."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from steptax.app.errors import InputError
from steptax.app.lake import Lake
from steptax.app.watch import Refused, Stored
from steptax.app.watch_server import ServerWatch
from steptax.connectors.base import Options
from steptax.connectors.prometheus.api import PrometheusConnector
from steptax.connectors.prometheus.server import PrometheusServer
from tests.connectors.test_prometheus_server import BEGIN_S, SPAN, Real, _scraped, scraped_before

#: ``open sesame`` by bcrypt.
_HASH = "$2b$04$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy"
_USER, _PASSWORD = "steptax", "open sesame"


def _certificates(folder: Path) -> Path:
    """A certificate of ``localhost`` by an authority of our own; the authority's."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make certificates with")

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    run(
        "req",
        "-x509",
        *key,
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-subj",
        "/CN=own authority",
        "-addext",
        "keyUsage=critical,keyCertSign",
    )
    run("req", *key[:-2], "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    (folder / "names").write_text("subjectAltName=DNS:localhost\n")
    run("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2",
        "-CAcreateserial", "-extfile", "names", "-out", "server.pem")  # fmt: skip
    return folder / "ca.pem"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Real, Path]]:
    """The server, and the certificate of its authority."""
    folder = tmp_path_factory.mktemp("guarded")
    program = scraped_before(folder)
    authority = _certificates(folder)
    (folder / "web.yml").write_text(
        f"tls_server_config: {{cert_file: server.pem, key_file: server.key}}\n"
        f"basic_auth_users: {{{_USER}: '{_HASH}'}}\n"
    )
    found = Real(
        program,
        folder,
        f"--web.config.file={folder / 'web.yml'}",
        verify=str(authority),
        auth=(_USER, _PASSWORD),
    )
    found.start()
    try:
        yield found, authority
    finally:
        found.stop()


@pytest.fixture
def known(guarded: tuple[Real, Path], monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment of somebody who may ask it; asking again would fail the test."""
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "PROMETHEUS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(guarded[1]))
    monkeypatch.setenv("PROMETHEUS_USERNAME", _USER)
    monkeypatch.setenv("PROMETHEUS_PASSWORD", _PASSWORD)

    def again(_seconds: float) -> None:
        raise AssertionError("asked again")

    monkeypatch.setitem(PrometheusServer.__init__.__kwdefaults__, "sleep", again)
    return monkeypatch


def refused(url: str) -> InputError:
    """Why nothing can be had from ``url``."""
    with pytest.raises(InputError) as caught:
        list(PrometheusConnector().pull(url, Options(extra=SPAN)))
    assert _PASSWORD not in str(caught.value)
    return caught.value


def test_who_may_ask_gets_every_sample(
    guarded: tuple[Real, Path], known: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    watch = ServerWatch(
        lake, "prometheus", guarded[0].url, Options(), clock=lambda: BEGIN_S + 2415.0
    )
    assert {type(found) for found in watch.look()} == {Stored}
    assert lake.row_counts()["device_samples"] == len(list(_scraped()))
    # A password that was changed is said once, and what is stored stays.
    known.setenv("PROMETHEUS_PASSWORD", "old")
    later = ServerWatch(
        lake, "prometheus", guarded[0].url, Options(), clock=lambda: BEGIN_S + 2500.0
    )
    assert [type(found) for found in later.look()] == [Refused]
    assert list(later.look()) == []


def test_a_wrong_password_is_said(guarded: tuple[Real, Path], known: pytest.MonkeyPatch) -> None:
    known.setenv("PROMETHEUS_PASSWORD", "guess")
    error = refused(guarded[0].url)
    assert "answers 401" in error.message
    assert "PROMETHEUS_PASSWORD" in (error.hint or "")


def test_an_unknown_authority_is_said(
    guarded: tuple[Real, Path], known: pytest.MonkeyPatch
) -> None:
    known.delenv("REQUESTS_CA_BUNDLE")
    error = refused(guarded[0].url)
    assert "the certificate of the server is not trusted: unable to get" in error.message
    assert "REQUESTS_CA_BUNDLE" in (error.hint or "")


def test_a_certificate_of_another_host_is_said(
    guarded: tuple[Real, Path], known: pytest.MonkeyPatch
) -> None:
    error = refused(f"https://127.0.0.1:{guarded[0].port}")
    assert error.message == "the certificate of the server is of another host"


def test_http_where_tls_is_wanted_and_the_other_way_round(
    guarded: tuple[Real, Path], known: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Such a server says so, or closes the connection before it has read the question.
    with known.context() as patient:
        kept = PrometheusServer.__init__.__kwdefaults__
        patient.setitem(kept, "sleep", lambda _s: None)
        error = refused(f"http://localhost:{guarded[0].port}")
    assert "https://" in (error.hint or "")
    program = shutil.which("prometheus")
    assert program is not None
    (tmp_path / "config.yml").write_text("global: {}\n")
    plain = Real(program, tmp_path)
    plain.start()
    try:
        error = refused(plain.url.replace("http:", "https:"))
    finally:
        plain.stop()
    assert "there is no TLS with the server" in error.message
    assert "http://" in (error.hint or "")
