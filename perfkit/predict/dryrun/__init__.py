"""DryRun: commands that simulate ranks on one machine, what their logs say, and a substitute where no MindSpore is installed.

from perfkit import read_config
from perfkit.predict import dryrun
plan = read_config("config.yaml")
print(dryrun.commands(plan, "2.7")[0].text)                     # first and last rank of every stage
peaks = dryrun.read_peaks(perfkit.load("output_dryrun"))
likely = dryrun.substitute(plan, peaks)                         # all ranks, corrected by those that were logged
dryrun.table(peaks, likely)
print(*dryrun.judge(perfkit.load("output_dryrun"), plan).told())     # both, against the limit, and what to do
"""

from perfkit.predict.dryrun._advice import Advice, Step, advise, freed_told
from perfkit.predict.dryrun._commands import TRAIN, commands
from perfkit.predict.dryrun._decompose import Decomposition, StagePeak, decompose
from perfkit.predict.dryrun._judge import Judged, correction_table, correction_told, judge, steps_table
from perfkit.predict.dryrun._parts import Parts, parts_of, ranks_of_interest, stage_of, stage_parts
from perfkit.predict.dryrun._peaks import LoggedPeak, Meaning, has_several, read_peaks
from perfkit.predict.dryrun._substitute import Calibration, Predicted, Substitute, calibrate, substitute
from perfkit.predict.dryrun._table import Row, fullest, rank_rows, table

__all__ = [
    "TRAIN",
    "Advice",
    "Calibration",
    "Decomposition",
    "Judged",
    "LoggedPeak",
    "Meaning",
    "Parts",
    "Predicted",
    "Row",
    "StagePeak",
    "Step",
    "Substitute",
    "advise",
    "calibrate",
    "commands",
    "correction_table",
    "correction_told",
    "decompose",
    "freed_told",
    "fullest",
    "has_several",
    "judge",
    "parts_of",
    "rank_rows",
    "ranks_of_interest",
    "read_peaks",
    "stage_of",
    "stage_parts",
    "steps_table",
    "substitute",
    "table",
]
