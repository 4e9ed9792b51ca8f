"""A real SMTP receiver for tests."""

from __future__ import annotations

import socketserver


class Mailbox(socketserver.ThreadingTCPServer):
    """As much of an SMTP server as a client needs; keeps what it got."""

    allow_reuse_address = True

    def __init__(self) -> None:
        self.mails: list[str] = []
        self.busy = 0
        super().__init__(("127.0.0.1", 0), _Smtp)


class _Smtp(socketserver.StreamRequestHandler):
    server: Mailbox

    def handle(self) -> None:
        def say(text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

        say("220 test")
        for raw in self.rfile:
            line = raw.decode().strip()
            word = line.split(" ")[0].upper()
            if word in ("EHLO", "HELO"):
                say("250 test")
            elif word == "MAIL" and self.server.busy:
                self.server.busy -= 1
                say("451 try again later")
            elif word == "DATA":
                say("354 go on")
                lines = []
                for part in self.rfile:
                    if part.rstrip(b"\r\n") == b".":
                        break
                    lines.append(part.decode())
                self.server.mails.append("".join(lines))
                say("250 kept")
            elif word == "QUIT":
                say("221 bye")
                return
            else:
                say("250 ok")
