"""`python -m forebay` is the command `forebay`."""

from forebay.cli import main

if __name__ == "__main__":
    main()
