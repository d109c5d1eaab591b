"""Names as they are written for machines; expected of C++ is what `c++filt -p` of binutils says, with its arguments folded."""

from __future__ import annotations

import pytest

from perfkit.core.demangled import demangled

KNOWN = {
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEENS_6detail5ArrayIPcLi1EEEEEviT0_T1_": (
        "at::native::vectorized_elementwise_kernel<…>"
    ),
    "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastINS0_11FillFunctorIfEEEEvRNS_18TensorIteratorBaseE"
    "RKT_EUliE_EEviT1_": "at::native::elementwise_kernel<…>",
    "_ZN12_GLOBAL__N_13fooEv": "(anonymous namespace)::foo",
    "_ZNSt6vectorIiSaIiEE9push_backEOi": "std::vector<…>::push_back",
    "_Z9my_kernelIfLb1EEvPT_": "my_kernel<…>",
    "_Z3addPfS_i": "add",
    "aclnnInplaceCopy_TensorMoveAiCore_TensorMove": "InplaceCopy: TensorMove",
    "aclnnAdd_AddAiCore_Add": "Add",
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_kernel_is_called_by_what_a_person_reads_of_it(name: str):
    assert demangled(name) == KNOWN[name]


@pytest.mark.parametrize(
    "name",
    [
        "aten::mm",
        "aclnnMm_MatMulV2",
        "aclnnMm_MatMulCommon_MatMulV2_1",
        "_Z",
        "_Zoops",
        "_ZN2at",
        "_Z1aIIIIIIII",
        "_Z" + "9" * 5000,
        "_ZN1a" + "I" * 5000,
        "",
    ],
)
def test_what_is_no_such_name_or_is_cut_off_stays_as_it_is(name: str):
    assert demangled(name) == name


def test_no_beginning_of_a_name_is_an_error():
    for name in KNOWN:
        assert all(isinstance(demangled(name[:length]), str) for length in range(len(name)))
