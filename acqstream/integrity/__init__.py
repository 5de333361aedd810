"""Facts of a dataset (pages, entries, records), and four verdicts on them: check, recover, repair, verify.

The check of the format is `formats.ndtiff.check`; the journal is read by `log.journal_file`.
"""
