"""`set_result` as the adapter of old ais-bench packages imports it: the one of Trainshed's `ais_utils`.

Loaded by its file, because a package may have an `ais_utils.py` of its own that imports this module.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: PTH100, PTH118, PTH120
import importlib.util
import os

_FILE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "common", "ais_utils.py")
_spec = importlib.util.spec_from_file_location("trainshed_ais_utils", _FILE)
_module = importlib.util.module_from_spec(_spec)  # type: ignore[arg-type]
_spec.loader.exec_module(_module)  # type: ignore[union-attr]
set_result = _module.set_result
