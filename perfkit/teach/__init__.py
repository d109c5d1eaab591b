"""Classroom: exercises with numbers of one's own, their marking, a fault game, and what an instructor sees of all that.

`question(name, class_seed, student)` is one exercise for one student, `mark` judges what was typed, `Store` keeps it. Texts and
draws are data (data/class), formulas call perfkit's calculators; nothing here draws or knows a page.
"""

from perfkit.teach import report as report
from perfkit.teach._catalogue import Exercise as Exercise
from perfkit.teach._catalogue import Question as Question
from perfkit.teach._catalogue import answers as answers
from perfkit.teach._catalogue import exercise_named as exercise_named
from perfkit.teach._catalogue import exercises as exercises
from perfkit.teach._catalogue import groups as groups
from perfkit.teach._catalogue import question as question
from perfkit.teach._codes import class_codes as class_codes
from perfkit.teach._codes import digest_of as digest_of
from perfkit.teach._codes import new_codes as new_codes
from perfkit.teach._database import class_files as class_files
from perfkit.teach._draw import student_name as student_name
from perfkit.teach._mark import Mark as Mark
from perfkit.teach._mark import mark as mark
from perfkit.teach._store import PRACTICE_SEED as PRACTICE_SEED
from perfkit.teach._store import Standing as Standing
from perfkit.teach._store import Store as Store
from perfkit.teach._store import class_store as class_store
from perfkit.teach._store import memory_store as memory_store
from perfkit.teach._store import practice_store as practice_store
from perfkit.teach._store import purge as purge
from perfkit.teach._store import standing as standing
