"""Pure judgement: a View in, a Report out. Same View, same Report, byte for byte."""
