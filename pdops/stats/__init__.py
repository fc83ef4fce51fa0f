"""Pure maths on samples: counter increases, histogram quantiles, robust centres. No clock, no I/O."""
