"""Calibrations: the efficiencies of devices, software stacks and networks, read from files and fitted to measured runs."""

from perfkit.calibration._file import Calibration as Calibration
from perfkit.calibration._file import bundled as bundled
from perfkit.calibration._file import calibration as calibration
from perfkit.calibration._fit import CrossValidation as CrossValidation
from perfkit.calibration._fit import calibrate as calibrate
from perfkit.calibration._fit import cross_validate as cross_validate
from perfkit.calibration._interval import coverage as coverage
from perfkit.calibration._interval import interval as interval
from perfkit.calibration._measured import Measured as Measured
from perfkit.calibration._measured import read_measured as read_measured

__all__ = [
    "Calibration",
    "CrossValidation",
    "Measured",
    "bundled",
    "calibrate",
    "calibration",
    "coverage",
    "cross_validate",
    "interval",
    "read_measured",
]
