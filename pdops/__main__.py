"""Run the command line as `python -m pdops`."""

from pdops.cli import main

if __name__ == "__main__":
    main()
