"""The facts that recover, verify and repair judge: stack files and their pages, index entries and what confirms them.

The journal's records, the third kind of facts, are read by `acqstream.log.journal_file`.
"""
