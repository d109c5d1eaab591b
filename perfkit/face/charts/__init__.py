"""Charts: from a breakdown or frame to an altair chart. The only package that draws."""

import sys

# jsonschema's optional check of IRIs builds a parser when imported, 1 CPU second that altair never needs. None makes the import
# fail, which jsonschema takes as "not installed". It must stand before the first import of altair.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
