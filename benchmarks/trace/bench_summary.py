"""`perfkit summary` of the two-rank sample, and `import perfkit`, from a cold Python; the yardstick is `import pandas`."""

from __future__ import annotations

from benchmarks.paired import compare, python
from perfkit.core.resources import data_folder

SAMPLE = data_folder() / "traces" / "torch_npu_2rank"

if __name__ == "__main__":
    summary = f"from perfkit.face.cli import main; main(['summary', {str(SAMPLE)!r}, '--json'])"
    print(compare("perfkit summary, two ranks", python(summary), python("import pandas")))
    print(compare("import perfkit", python("import perfkit"), python("import pandas")))
