"""Name every signal and every cause once; map them to what engines export, with units normalised here."""
