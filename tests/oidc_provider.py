"""A small OpenID Connect provider on loopback, for tests: the code flow with PKCE, and its faults.

Written after OpenID Connect Core 1.0 (sections 2, 3.1 and 5.1), Discovery 1.0 and RFC 7636. A user
logs in by pressing the button with a name.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT_ID = "steptax-test"
#: What is wrong with the identity tokens that are given out.
FAULTS = ("none", "expired", "other key", "other audience", "other nonce", "no signature")


class Provider(ThreadingHTTPServer):
    """Knows ``users`` by name with the claims of each; ``fault`` may be changed at any time."""

    daemon_threads = True

    def __init__(self, users: dict[str, dict[str, Any]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.users = users
        self.fault = "none"
        self.client_secret = secrets.token_urlsafe(24)
        self.issuer = f"http://127.0.0.1:{self.server_port}"
        self.key = RSAKey.generate_key(2048, {"kid": "right"}, private=True)
        self.other_key = RSAKey.generate_key(2048, {"kid": "right"}, private=True)
        self.codes: dict[str, dict[str, str]] = {}
        self.logins = 0

    def __enter__(self) -> Provider:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def id_token(self, asked: dict[str, str]) -> str:
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT_ID if self.fault != "other audience" else "somebody else",
            "sub": asked["user"],
            "iat": now if self.fault != "expired" else now - 7200,
            "exp": now + 300 if self.fault != "expired" else now - 3600,
            "nonce": asked["nonce"] if self.fault != "other nonce" else "made up",
            **self.users[asked["user"]],
        }
        if self.fault == "no signature":
            parts = [{"alg": "none"}, claims]
            return ".".join(_b64(json.dumps(part).encode()) for part in parts) + "."
        key = self.other_key if self.fault == "other key" else self.key
        return jwt.encode({"alg": "RS256", "kid": "right"}, claims, key)


class _Handler(BaseHTTPRequestHandler):
    server: Provider

    def log_message(self, *_: object) -> None:
        return

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        given = {name: values[0] for name, values in parse_qs(url.query).items()}
        me = self.server.issuer
        if url.path == "/.well-known/openid-configuration":
            self._json(
                {
                    "issuer": me,
                    "authorization_endpoint": f"{me}/authorize",
                    "token_endpoint": f"{me}/token",
                    "jwks_uri": f"{me}/jwks",
                    "response_types_supported": ["code"],
                    "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": ["RS256"],
                    "code_challenge_methods_supported": ["S256"],
                    "token_endpoint_auth_methods_supported": ["client_secret_basic"],
                }
            )
        elif url.path == "/jwks":
            self._json({"keys": [self.server.key.as_dict(private=False)]})
        elif url.path == "/authorize":
            self._authorize(given)
        else:
            self._json({"error": "not found"}, 404)

    def _authorize(self, given: dict[str, str]) -> None:
        needs = ("client_id", "redirect_uri", "state", "nonce", "code_challenge", "scope")
        if any(name not in given for name in needs) or given["client_id"] != CLIENT_ID:
            self._json({"error": "invalid_request"}, 400)
        elif given.get("user") in self.server.users:
            code = secrets.token_urlsafe(24)
            self.server.codes[code] = given
            back = urlencode({"code": code, "state": given["state"]})
            self.send_response(302)
            self.send_header("Location", f"{given['redirect_uri']}?{back}")
            self.end_headers()
        else:
            links = {u: f"/authorize?{urlencode(given | {'user': u})}" for u in self.server.users}
            buttons = "".join(f'<p><a href="{html.escape(to)}">{u}</a>' for u, to in links.items())
            self._send(f"<title>Provider</title>{buttons}".encode(), "text/html")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        given = {name: values[0] for name, values in parse_qs(body).items()}
        asked = self.server.codes.pop(given.get("code", ""), None)
        login = base64.b64encode(f"{CLIENT_ID}:{self.server.client_secret}".encode()).decode()
        verifier = given.get("code_verifier", "")
        if self.headers.get("Authorization") != f"Basic {login}":
            self._json({"error": "invalid_client"}, 401)
        elif (
            asked is None
            or given.get("redirect_uri") != asked["redirect_uri"]
            or _b64(hashlib.sha256(verifier.encode()).digest()) != asked["code_challenge"]
        ):
            self._json({"error": "invalid_grant"}, 400)
        else:
            self.server.logins += 1
            token = self.server.id_token(asked)
            self._json(
                {
                    "access_token": secrets.token_urlsafe(16),
                    "token_type": "Bearer",
                    "expires_in": 300,
                    "id_token": token,
                }
            )

    def _json(self, body: dict[str, Any], status: int = 200) -> None:
        self._send(json.dumps(body).encode(), "application/json", status)

    def _send(self, body: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
