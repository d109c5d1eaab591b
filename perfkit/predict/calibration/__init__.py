"""Calibrations: the efficiencies of devices, software stacks and networks, read from files and fitted to measured runs."""

from perfkit.predict.calibration._interval import coverage as coverage
from perfkit.predict.calibration._interval import interval as interval
from perfkit.predict.calibration._measured import Measured as Measured
from perfkit.predict.calibration._measured import read_measured as read_measured
from perfkit.predict.calibration.file import Calibration as Calibration
from perfkit.predict.calibration.file import bundled as bundled
from perfkit.predict.calibration.file import calibration as calibration
from perfkit.predict.calibration.fit import CrossValidation as CrossValidation
from perfkit.predict.calibration.fit import calibrate as calibrate
from perfkit.predict.calibration.fit import cross_validate as cross_validate

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
