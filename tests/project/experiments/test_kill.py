"""A writer that is killed at any moment: every round that it said was committed is there, and the log always opens."""

from __future__ import annotations

from benchmarks.log.bench_kill import kill_writers


def test_sixty_kills_lose_no_committed_round(tmp_path):
    result = kill_writers(tmp_path, kills=60, seed=7)
    assert result.kills == 60
    assert result.lost == []
    assert result.committed > 0


def test_sixteen_writers_at_a_time_lose_no_committed_round_and_share_no_number(tmp_path):
    result = kill_writers(tmp_path, kills=48, writers=16, seed=11)
    assert result.lost == []
    assert result.twice == []
    assert result.committed > 0
