"""The shims of the bench, as far as they are text."""

from __future__ import annotations

import pytest

import windows_shims
from steps import StepFailed

LISTING = """\
The Export Tables (interpreted .rdata section contents)

[Ordinal/Name Pointer] Table
\t[   0] PyAIter_Check
\t[   1] +base[   2] 0001 PyErr_Clear
\t[   2] _Py_Dealloc
\t[   3] init_something

PE File Base Relocations
\t[   4] PyNot_AnExport
"""


def test_the_forwarder_leads_every_name_of_python_to_the_library():
    names = windows_shims.exported_names(LISTING)
    assert names == ["PyAIter_Check", "PyErr_Clear", "_Py_Dealloc"]
    assert windows_shims.forwarder("python311", names[:2]) == (
        "LIBRARY python3\nEXPORTS\nPyAIter_Check=python311.PyAIter_Check\nPyErr_Clear=python311.PyErr_Clear\n"
    )


def test_pyzmq_ignores_the_option_that_wine_lacks():
    source = "    def __setattr__(self, key, value):\n        upper_key = key.upper()\n        try:\n            pass\n"
    assert windows_shims.without_maxrt(source) == (
        "    def __setattr__(self, key, value):\n        upper_key = key.upper()\n"
        '        if upper_key == "TCP_MAXRT":\n            return\n        try:\n            pass\n'
    )


def test_another_pyzmq_is_refused():
    with pytest.raises(StepFailed, match="looks different"):
        windows_shims.without_maxrt("upper = key.upper()\n")
