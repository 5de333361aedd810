"""`python -m acqstream` is the same as `acqstream`."""

from acqstream.cli.main import main

if __name__ == "__main__":
    main()
