"""What the package costs in time and memory, measured on the machine at hand."""
