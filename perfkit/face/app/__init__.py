"""The browser app: server, page template and navigation."""

import sys

# Before nbformat, which imports jsonschema; the reason stands in perfkit/face/charts/__init__.py.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
