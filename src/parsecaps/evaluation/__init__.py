"""How good and how fast: scores with intervals, comparisons, prediction sets, and the cost in time and memory."""
