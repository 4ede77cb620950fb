"""What predictions are worth: scores, intervals, calibration, boxes, and what was published."""
