"""What will hurt on this PC, and how to mend it. One check a module: facts, how they are gathered, and the verdict."""
