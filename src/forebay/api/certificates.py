"""The certificate of a server, and the authorities whose clients it lets in; read again when their files change.

A certificate and its key are often two files, and are seldom replaced in one moment: files that do not fit together
change nothing, and are tried again when one of them has changed once more. Connections that are open keep what they
began with.

The event loop keeps the context that it was given, so that one only chooses: at each handshake (`sni_callback`) the
connection is put under the context that was made last. Sessions of TLS are not resumed where clients need
certificates: a resumed one would not show its certificate again, although its authority may have been taken out.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from forebay.api.keys_file import file_state
from forebay.errors import Permanent


class CertificateRefused(Permanent):
    """The certificate or its key cannot be used. The server does not fall back to plain HTTP."""


class Certificates:
    def __init__(self, certificate: str, certificate_key: str = "", client_ca_file: str = "") -> None:
        self._certificate = certificate
        self._certificate_key = certificate_key
        self._client_ca_file = client_ca_file
        self._seen = self._states()
        self._current = self._made()
        self.context = self._made()
        """What the socket is served with."""
        self.context.sni_callback = self._choose

    def reload(self) -> None:
        """Connections that are opened from now on get what is in the files now. Raises `CertificateRefused`."""
        self._seen = self._states()
        self._current = self._made()

    def reload_if_changed(self) -> bool:
        """What is wrong with the files is raised once, until one of them changes again."""
        if self._states() == self._seen:
            return False
        self.reload()
        return True

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _states(self) -> list[tuple[int, ...]]:
        names = (self._certificate, self._certificate_key, self._client_ca_file)
        return [file_state(Path(name)) for name in names if name]

    def _made(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self._certificate, self._certificate_key or None)
        except (OSError, ssl.SSLError) as error:
            raise CertificateRefused(f"{self._certificate}: {error}") from error
        if self._client_ca_file:
            try:
                context.load_verify_locations(self._client_ca_file)
            except (OSError, ssl.SSLError) as error:
                raise CertificateRefused(f"{self._client_ca_file}: {error}") from error
            context.verify_mode = ssl.CERT_REQUIRED
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        return context


def certificates(certificate: str, certificate_key: str, client_ca_file: str) -> Certificates | None:
    """None without a certificate. What only goes with one is refused then: its owner does not mean plain HTTP."""
    if certificate:
        return Certificates(certificate, certificate_key, client_ca_file)
    for file, what in ((certificate_key, "a key"), (client_ca_file, "authorities for clients")):
        if file:
            raise CertificateRefused(
                f"{file}: {what} without a certificate", remedy="Name a certificate: --server-certificate"
            )
    return None
