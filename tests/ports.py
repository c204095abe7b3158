"""A free port for a server under test, when several test programs run at once.

Whoever takes a port of the kernel's choice frees it for a moment, until the server binds it, and in
that moment the kernel may give it to another program. Here a name in Linux's abstract namespace
keeps a port from other test programs until this process ends."""

import errno
import random
import socket

PORTS = (15000, 32000)  # below those that the kernel gives to clients
held = []


def free_port(family=socket.AF_INET, host="127.0.0.1"):
    """A port that nobody listens on and that no other test program gets."""
    while True:
        port = random.SystemRandom().randrange(*PORTS)
        name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            name.bind(f"\0inferd-test-port-{port}")
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.bind((host, port))
        except OSError as fault:
            name.close()
            if fault.errno != errno.EADDRINUSE:
                raise
            continue
        held.append(name)
        return port
