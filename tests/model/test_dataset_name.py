"""Names of datasets: letters of any script, and nothing that some system cannot have or show."""

from __future__ import annotations

import unicodedata

import pytest

from acqstream.model.dataset_name import MAX_BYTES, name_key, name_problem, normal_name

LONGEST_SUFFIX = len("_123456." + 32 * "m" + ".precomputed.view.new")


@pytest.mark.parametrize(
    "name",
    [
        "cells",
        "Zellen am Rand 細胞 é",
        "клетки 2",
        "خلايا",
        "कोशिका",
        "เซลล์",
        "세포",
        "_x",
        "9",
        "٣ خلايا",
        "a.b-c_d e",
        "con cells",
        "common",
        "com10",
        "x" * 100,
        "é" * 90,
        "細" * 60,
    ],
)
def test_letters_of_any_script(name: str) -> None:
    assert name_problem(normal_name(name)) == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "empty"),
        *[(f"a{character}b", "is not a letter") for character in '<>:"\\|?*\0\n\t\r\x1b\x7f\x85'],
        *[(f"a{character}b", "is not a letter") for character in "\u00a0\u2003\u3000\u2028\u2029\u1680\u202f"],
        *[(f"a{character}b", "is not a letter") for character in "\u202e\u2066\u200b\u200d\u200e\ufeff\u00ad\u2060"],
        *[(f"a{character}b", "is not a letter") for character in "\u3164\u115f\uffa0\ufe0f\u034f\U000e0101"],
        *[(f"a{character}b", "is not a letter") for character in "\ud800\ue000\uffff\u2215\u29f5$%#&'`~!;=@[]{}^+,()"],
        ("\u0301a", "begins with"),
        (" a", "begins with"),
        (".a", "begins with"),
        ("-a", "begins with"),
        ("a ", "ends with"),
        ("a.", "ends with"),
        ("a. .", "ends with"),
        *[(name, "device") for name in ("con", "NUL", "Aux.txt", "prn .tif", "com1", "LPT9.tar.gz", "COM¹", "lpt³.x")],
        ("x" * 101, "more than 100 characters"),
        ("a/", "no name before or behind a '/'"),
        ("/a", "no name before or behind a '/'"),
        ("a/../b", "in its part '..', it begins with '.'"),
        ("a/aux/b", "in its part 'aux', Windows keeps it"),
        ("a/b /c", "ends with"),
        (f"a/{'x' * 101}", "more than 100 characters"),
        ("a/b/c/d/e/f/g", "it names 6 folders, and 5 are possible"),
        ("day/full resolution", "NDTiff keeps it for a level"),
        ("Downsampled_x4", "NDTiff keeps it for a level"),
        ("細" * 61, "180 bytes"),
    ],
)
def test_what_no_dataset_is_called(name: str, why: str) -> None:
    assert why in name_problem(name)


def test_there_is_space_for_every_suffix() -> None:
    assert MAX_BYTES + LONGEST_SUFFIX <= 255


def test_both_forms_of_a_letter_are_one_name() -> None:
    apart = unicodedata.normalize("NFD", "Zellen é 세포")
    assert apart != "Zellen é 세포" == normal_name(apart)
    assert name_key(apart.upper()) == name_key("Zellen é 세포")
    assert name_key("a") != name_key("b")
