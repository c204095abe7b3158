"""Certificates for tests, of localhost and 127.0.0.1."""

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID


def name_of(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def certificate(directory, name="localhost", days=30, signer=None, kind="ec", stem=None):
    """Writes STEM.pem and STEM.key, and returns (certificate, key); `signer` is such a pair."""
    key = (ec.generate_private_key(ec.SECP256R1()) if kind == "ec"
           else rsa.generate_private_key(65537, 2048))
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (x509.CertificateBuilder()
               .subject_name(name_of(name)).public_key(key.public_key())
               .issuer_name(signer[0].subject if signer else name_of(name))
               .serial_number(x509.random_serial_number())
               .not_valid_before(now - datetime.timedelta(days=60))
               .not_valid_after(now + datetime.timedelta(days=days))
               .add_extension(x509.SubjectAlternativeName(
                   [x509.DNSName("localhost"),
                    x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
               .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), True))
    made = builder.sign(signer[1] if signer else key, hashes.SHA256())
    stem = stem or name
    (directory / f"{stem}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (directory / f"{stem}.key").write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption()))
    return made, key
