"""The same fixtures as tests/api, in the environment of schemathesis."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "api"))

from fixtures import (  # noqa: E402,F401  pylint: disable=wrong-import-position
    inferd, pytest_addoption)
