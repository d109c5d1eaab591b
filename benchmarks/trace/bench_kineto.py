"""Reading a Kineto trace into a run; the yardstick inflates the file and parses it with the standard library."""

from __future__ import annotations

import gzip
import json

from benchmarks.paired import compare
from perfkit.core.resources import data_folder
from perfkit.record.load import load

SAMPLE = next((data_folder() / "traces" / "kineto_resnet").glob("*.json.gz"))

if __name__ == "__main__":
    print(compare(f"load {SAMPLE.name}", lambda: load(SAMPLE), lambda: json.loads(gzip.decompress(SAMPLE.read_bytes()))))
