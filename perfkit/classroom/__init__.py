"""Classroom: exercises with numbers of one's own, their marking, a fault game, and what an instructor sees of all that.

`question(name, class_seed, student)` is one exercise for one student, `mark` judges what was typed, `Store` keeps it. Texts and
draws are data (data/class), formulas call perfkit's calculators; nothing here draws or knows a page.
"""

from perfkit.classroom import report as report
from perfkit.classroom._catalogue import Exercise as Exercise
from perfkit.classroom._catalogue import Question as Question
from perfkit.classroom._catalogue import answers as answers
from perfkit.classroom._catalogue import exercise_named as exercise_named
from perfkit.classroom._catalogue import exercises as exercises
from perfkit.classroom._catalogue import groups as groups
from perfkit.classroom._catalogue import question as question
from perfkit.classroom._database import class_files as class_files
from perfkit.classroom._draw import student_name as student_name
from perfkit.classroom._mark import Mark as Mark
from perfkit.classroom._mark import mark as mark
from perfkit.classroom._store import PRACTICE_SEED as PRACTICE_SEED
from perfkit.classroom._store import Standing as Standing
from perfkit.classroom._store import Store as Store
from perfkit.classroom._store import class_store as class_store
from perfkit.classroom._store import memory_store as memory_store
from perfkit.classroom._store import practice_store as practice_store
from perfkit.classroom._store import purge as purge
from perfkit.classroom._store import standing as standing
