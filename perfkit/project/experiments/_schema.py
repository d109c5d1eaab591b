"""Schema: the tables of perfkit.sqlite, and the words and units that their columns take.

Times are INTEGER ns since the epoch, UTC. Unknown is NULL, never 0. JSON columns are checked. Nothing is ever deleted: triggers
refuse it. A change of the schema is a new entry of MIGRATIONS; old entries are never edited.
"""

from __future__ import annotations

from collections.abc import Mapping

STATES = ("goal", "strategy", "memory", "predict", "measure", "analyse", "align", "decide", "done")
VERDICTS = ("keep", "revert", "repeat", "stop")
ACCURACY = ("pass", "fail", "not_checked")
RUN_KINDS = ("measured", "simulated", "reported")
ARTEFACT_KINDS = ("config", "log", "trace", "ir", "report", "chart")
OWN_ACTIONS = frozenset(
    ("set_project", "start", "attach", "run", "measure", "predict", "accuracy", "decide", "skip", "findings", "finding")
)
"""Events that the log writes beside its rows."""
FINDING_STATES = ("open", "planned", "done", "dismissed")

METRIC_UNITS: Mapping[str, str] = {
    "step_time_ns": "ns",
    "tokens_per_s_per_device": "tokens/s/device",
    "samples_per_s_per_device": "samples/s/device",
    "mfu": "ratio",
    "hfu": "ratio",
    "peak_memory_bytes": "bytes",
    "exposed_communication_ns": "ns",
    "bubble_ns": "ns",
    "free_ns": "ns",
    "loss": "",
}


def unknown_metric(metric: str) -> str:
    """What is wrong with a metric that is none, in words."""
    return f"metric {metric!r} is unknown; metrics are {', '.join(METRIC_UNITS)}"


def _one_of(column: str, words: tuple[str, ...]) -> str:
    return f"{column} TEXT NOT NULL CHECK ({column} IN ({', '.join(repr(word) for word in words)}))"


TABLES = f"""
CREATE TABLE project (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    name TEXT NOT NULL,
    created_ns INTEGER NOT NULL,
    goal_metric TEXT NOT NULL,
    goal_value REAL,
    goal_op TEXT NOT NULL CHECK (goal_op IN ('>=', '<=')),
    peak_flops_per_s REAL CHECK (peak_flops_per_s > 0),
    device_memory_bytes INTEGER CHECK (device_memory_bytes > 0),
    accuracy_rule TEXT CHECK (accuracy_rule IS NULL OR json_valid(accuracy_rule))
) STRICT;

CREATE TABLE round (
    id INTEGER PRIMARY KEY,
    number INTEGER NOT NULL UNIQUE CHECK (number >= 0),
    parent_id INTEGER REFERENCES round (id),
    title TEXT NOT NULL,
    {_one_of("state", STATES)},
    hypothesis TEXT NOT NULL,
    change_text TEXT NOT NULL,
    author TEXT NOT NULL,
    started_ns INTEGER NOT NULL,
    closed_ns INTEGER
) STRICT;

CREATE TABLE artefact (
    id INTEGER PRIMARY KEY,
    round_id INTEGER NOT NULL REFERENCES round (id),
    {_one_of("kind", ARTEFACT_KINDS)},
    path TEXT NOT NULL,
    bytes INTEGER NOT NULL CHECK (bytes >= 0),
    sha256 TEXT NOT NULL,
    stored INTEGER NOT NULL CHECK (stored IN (0, 1)),
    added_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE config (
    id INTEGER PRIMARY KEY,
    round_id INTEGER NOT NULL REFERENCES round (id),
    role TEXT NOT NULL CHECK (role IN ('plan', 'as_run')),
    dialect TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    artefact_id INTEGER NOT NULL REFERENCES artefact (id),
    devices INTEGER NOT NULL CHECK (devices > 0),
    UNIQUE (round_id, role)
) STRICT;

CREATE TABLE config_key (
    config_id INTEGER NOT NULL REFERENCES config (id),
    key TEXT NOT NULL,
    value_json TEXT NOT NULL CHECK (json_valid(value_json)),
    PRIMARY KEY (config_id, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    round_id INTEGER NOT NULL REFERENCES round (id),
    {_one_of("kind", RUN_KINDS)},
    format TEXT NOT NULL,
    artefact_id INTEGER REFERENCES artefact (id),
    ranks_found INTEGER CHECK (ranks_found >= 0),
    ranks_expected INTEGER CHECK (ranks_expected >= 0),
    first_step INTEGER,
    last_step INTEGER,
    dropped_json TEXT NOT NULL CHECK (json_valid(dropped_json)),
    attached_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE prediction (
    id INTEGER PRIMARY KEY,
    round_id INTEGER NOT NULL REFERENCES round (id),
    metric TEXT NOT NULL,
    value REAL NOT NULL,
    low REAL CHECK (low <= value),
    high REAL CHECK (high >= value),
    unit TEXT NOT NULL,
    method TEXT NOT NULL,
    based_on_run_id INTEGER REFERENCES run (id),
    created_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE measurement (
    run_id INTEGER NOT NULL REFERENCES run (id),
    metric TEXT NOT NULL,
    value REAL,
    n INTEGER NOT NULL CHECK (n >= 0),
    median_abs_dev REAL CHECK (median_abs_dev >= 0),
    unit TEXT NOT NULL,
    source TEXT NOT NULL,
    PRIMARY KEY (run_id, metric)
) STRICT, WITHOUT ROWID;

CREATE TABLE finding (
    id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES run (id),
    rule TEXT NOT NULL,
    severity TEXT NOT NULL CHECK (severity IN ('high', 'medium', 'low')),
    subject_json TEXT NOT NULL CHECK (json_valid(subject_json)),
    evidence_json TEXT NOT NULL CHECK (json_valid(evidence_json)),
    cost_ns INTEGER CHECK (cost_ns >= 0),
    {_one_of("status", FINDING_STATES)},
    reason TEXT NOT NULL
) STRICT;

CREATE TABLE accuracy (
    id INTEGER PRIMARY KEY,
    round_id INTEGER NOT NULL REFERENCES round (id),
    reference_run_id INTEGER REFERENCES run (id),
    run_id INTEGER REFERENCES run (id),
    steps INTEGER CHECK (steps >= 0),
    max_rel REAL,
    mean_rel REAL,
    norm_max_rel REAL,
    {_one_of("verdict", ACCURACY)},
    limit_json TEXT NOT NULL CHECK (json_valid(limit_json)),
    note TEXT NOT NULL
) STRICT;

CREATE TABLE decision (
    id INTEGER PRIMARY KEY,
    round_id INTEGER NOT NULL UNIQUE REFERENCES round (id),
    {_one_of("verdict", VERDICTS)},
    reason TEXT NOT NULL,
    next_step TEXT NOT NULL,
    author TEXT NOT NULL,
    decided_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE event (
    id INTEGER PRIMARY KEY,
    at_ns INTEGER NOT NULL,
    author TEXT NOT NULL,
    page TEXT NOT NULL,
    round_id INTEGER REFERENCES round (id),
    action TEXT NOT NULL,
    detail_json TEXT NOT NULL CHECK (json_valid(detail_json))
) STRICT;

CREATE TABLE attempt (
    id INTEGER PRIMARY KEY,
    at_ns INTEGER NOT NULL,
    class_seed INTEGER NOT NULL,
    student TEXT NOT NULL,
    exercise TEXT NOT NULL,
    params_json TEXT NOT NULL CHECK (json_valid(params_json)),
    answer TEXT NOT NULL,
    correct INTEGER NOT NULL CHECK (correct IN (0, 1)),
    matched_wrong TEXT,
    hints INTEGER NOT NULL CHECK (hints >= 0),
    revealed INTEGER NOT NULL CHECK (revealed IN (0, 1)),
    seconds REAL NOT NULL CHECK (seconds >= 0),
    points REAL NOT NULL
) STRICT;

CREATE INDEX artefact_by_round ON artefact (round_id);
CREATE INDEX run_by_round ON run (round_id);
CREATE INDEX prediction_by_round ON prediction (round_id, metric);
CREATE INDEX finding_by_run ON finding (run_id);
CREATE INDEX accuracy_by_round ON accuracy (round_id);
CREATE INDEX attempt_by_student ON attempt (student, exercise);
"""

TABLE_NAMES = (
    "project",
    "round",
    "artefact",
    "config",
    "config_key",
    "run",
    "prediction",
    "measurement",
    "finding",
    "accuracy",
    "decision",
    "event",
    "attempt",
)

NO_DELETE = "\n".join(
    f"CREATE TRIGGER {name}_is_never_deleted BEFORE DELETE ON {name} BEGIN "
    f"SELECT RAISE(ABORT, 'rows of {name} are never deleted'); END;"
    for name in TABLE_NAMES
)

MIGRATIONS: tuple[str, ...] = (TABLES + NO_DELETE,)
"""SQL that leads from version i to i + 1; the version is `PRAGMA user_version`."""
