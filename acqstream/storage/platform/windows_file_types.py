"""Constants and structures of the file functions of Windows, as in Microsoft's documentation."""

from __future__ import annotations

import ctypes
from ctypes import c_int64, c_uint8, c_uint32, c_uint64, c_void_p, c_wchar

GENERIC_READ, GENERIC_WRITE, DELETE = 0x8000_0000, 0x4000_0000, 0x0001_0000
FILE_READ_ATTRIBUTES = 0x80
SHARE_ALL = 1 | 2 | 4  # reading, writing, and deleting or renaming, by others meanwhile
CREATE_NEW, OPEN_EXISTING, OPEN_ALWAYS = 1, 3, 4
ATTRIBUTE_READ_ONLY, ATTRIBUTE_DIRECTORY, ATTRIBUTE_NORMAL, ATTRIBUTE_REPARSE_POINT = 0x1, 0x10, 0x80, 0x400
NO_ATTRIBUTES = 0xFFFF_FFFF
FLAG_NO_BUFFERING, FLAG_BACKUP_SEMANTICS, FLAG_OPEN_REPARSE_POINT = 0x2000_0000, 0x0200_0000, 0x0020_0000
TYPE_UNKNOWN = 0
TYPE_DISK = 1
MOVE_REPLACE_EXISTING, MOVE_WRITE_THROUGH = 1, 8
LOCK_FAIL_IMMEDIATELY, LOCK_EXCLUSIVE = 1, 2
# FILE_INFO_BY_HANDLE_CLASS
FILE_STANDARD, FILE_ALLOCATION, FILE_END_OF_FILE, FILE_STORAGE, FILE_ID = 1, 5, 6, 16, 18
FILE_DISPOSITION_EX, FILE_RENAME_EX = 21, 22
FSCTL_SET_SPARSE, FSCTL_QUERY_ALLOCATED_RANGES = 0x900C4, 0x940CF


class Overlapped(ctypes.Structure):
    """OVERLAPPED: the place in the file of one call, so that threads share a handle without a common position."""

    _fields_ = (
        ("internal", c_void_p),
        ("internal_high", c_void_p),
        ("offset", c_uint32),
        ("offset_high", c_uint32),
        ("event", c_void_p),
    )


class FileStandardInformation(ctypes.Structure):
    """FILE_STANDARD_INFO. allocated counts the space of a sparse file without its holes."""

    _fields_ = (
        ("allocated", c_int64),
        ("end_of_file", c_int64),
        ("links", c_uint32),
        ("is_delete_pending", c_uint8),
        ("is_directory", c_uint8),
    )


class FileInformation(ctypes.Structure):
    """BY_HANDLE_FILE_INFORMATION, with pairs of 32 bits as in the header: low and high where it says so."""

    _fields_ = (
        ("attributes", c_uint32),
        ("creation_low", c_uint32),
        ("creation_high", c_uint32),
        ("access_low", c_uint32),
        ("access_high", c_uint32),
        ("write_low", c_uint32),
        ("write_high", c_uint32),
        ("volume", c_uint32),
        ("size_high", c_uint32),
        ("size_low", c_uint32),
        ("links", c_uint32),
        ("index_high", c_uint32),
        ("index_low", c_uint32),
    )


class FileIdentity(ctypes.Structure):
    """FILE_ID_INFO: 128 bits, of which ReFS uses all."""

    _fields_ = (("volume", c_uint64), ("low", c_uint64), ("high", c_uint64))


class StorageInformation(ctypes.Structure):
    """FILE_STORAGE_INFO: sector sizes in bytes."""

    _fields_ = (
        ("logical", c_uint32),
        ("physical_atomic", c_uint32),
        ("physical_performance", c_uint32),
        ("effective_atomic", c_uint32),
        ("flags", c_uint32),
        ("sector_offset", c_uint32),
        ("partition_offset", c_uint32),
    )


class AllocatedRange(ctypes.Structure):
    """FILE_ALLOCATED_RANGE_BUFFER, bytes."""

    _fields_ = (("offset", c_int64), ("length", c_int64))


def rename_information(target: str, flags: int) -> ctypes.Structure:
    """FILE_RENAME_INFO for an absolute extended path; flags: 1 replaces, 2 for POSIX semantics."""

    class RenameInformation(ctypes.Structure):
        _fields_ = (
            ("flags", c_uint32),
            ("root", c_void_p),
            ("name_bytes", c_uint32),
            ("name", c_wchar * (len(target) + 1)),
        )

    # c_wchar has 2 bytes on Windows, where alone this is sent.
    return RenameInformation(flags, None, len(target) * ctypes.sizeof(c_wchar), target)
