"""Claims of the tuning guides, each computed anew: reproduced, explained or contradicted, and of a plan where it has the data."""

from perfkit.predict.studies.claims.claim import Claim as Claim
from perfkit.predict.studies.claims.table import claims as claims
from perfkit.predict.studies.claims.table import claims_table as claims_table
