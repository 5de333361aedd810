"""The command line: one file per verb, arguments and printing only."""
