"""Run the command line as `python -m pdops.cli`."""

from pdops.cli import main

if __name__ == "__main__":
    main()
