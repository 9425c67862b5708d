"""A certificate authority for the broker of the tests."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """PEM files."""

    own: Path
    """The certificate by which clients know the broker."""
    other: Path
    """That of another authority."""
    broker: Path
    """The broker's key and certificate."""


def make_authority(folder: Path) -> Authority:
    key, own = self_signed("ours")
    made = Authority(
        own=folder / "own.pem", other=folder / "other.pem", broker=folder / "broker.pem"
    )
    made.own.write_bytes(pem(own))
    made.other.write_bytes(pem(self_signed("theirs")[1]))
    broker_key = ec.generate_private_key(ec.SECP256R1())
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = builder("broker", own.subject, broker_key.public_key()).add_extension(here, False)
    private = broker_key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    made.broker.touch(mode=0o600)
    made.broker.write_bytes(private + pem(signed.sign(key, hashes.SHA256())))
    return made


def self_signed(name: str) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    made = builder(name, named(name), key.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), True
    )
    return key, made.sign(key, hashes.SHA256())


def builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
    )


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
