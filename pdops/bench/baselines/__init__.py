"""What pdops is compared with, each made as well as it can be from the same table of metrics."""
