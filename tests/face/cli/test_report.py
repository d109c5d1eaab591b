"""`perfkit report`."""

from __future__ import annotations

from pathlib import Path

from perfkit.face.cli import main

LOG = Path(__file__).resolve().parents[3] / "data" / "traces" / "logs" / "llama2_13b_8card_worker_0.log"


def test_a_report_is_written_and_its_size_told(tmp_path, capsys):
    out = tmp_path / "report.html"
    assert main(["report", str(LOG), "--out", str(out)]) == 0
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert str(out) in capsys.readouterr().out


def test_a_source_that_nobody_can_read_is_told_without_traceback(tmp_path, capsys):
    (tmp_path / "x.bin").write_bytes(b"\0" * 64)
    assert main(["report", str(tmp_path / "x.bin"), "--out", str(tmp_path / "r.html")]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()
