"""Soak of the app: visitors who come and leave for minutes, while kernels are killed, descriptors run out and the log is locked.

example: python -m benchmarks.server.bench_soak --visitors 20 --minutes 10

Prints what was answered, what was broken, and the server before and after. Fails if descriptors do not come back to the start
+ 30, the server's memory moves by more than 5 % after the warm-up, more kernels run than limit + warm + 2, or a request is neither
answered nor refused in words. Everything runs under a guard with hard limits on processes and memory (--max-gb), which ends it all.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.browser.app_server import start, stop
from tests.face.app.soak import soak

WARM = 2


def main() -> int:
    """Print one line for each thing that was counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visitors", type=int, default=6)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--max-gb", type=float, default=3.0, help="private memory of all processes together")
    arguments = parser.parse_args()
    limit = max(2, arguments.visitors * 3 // 4)  # fewer places than visitors: some are refused all the time
    with tempfile.TemporaryDirectory() as temporary:
        project = Path(temporary) / "demo"
        subprocess.run([sys.executable, "-m", "perfkit", "demo", str(project)], check=True, capture_output=True)
        limits = {"PERFKIT_MAX_KERNELS": str(limit), "PERFKIT_WARM_KERNELS": str(WARM), "PERFKIT_KERNEL_MEMORY": "1GiB"}
        server = start(project, Path(temporary) / "server.log", **limits)
        try:
            result = soak(
                server, num_visitors=arguments.visitors, seconds=60 * arguments.minutes, max_bytes=int(arguments.max_gb * 1e9)
            )
        finally:
            stop(server)
        problems = result.problems(limit=limit, warm=WARM)
        print(f"answers: {dict(result.answers)}; sockets cut: {dict(result.cut)}; faults: {dict(result.faults)}")
        print(f"kernels at once: {result.guard.num_kernels}, allowed {limit + WARM + 2}; server's memory {result.growth():+.1%}")
        print(f"before: {result.start}\nafter:  {result.end}")
        print("\n".join(problems) or "held")
        if problems:
            print(
                "\n".join(line for line in server.log.read_text().splitlines() if "refused" not in line and "503" not in line)[
                    -3000:
                ]
            )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
