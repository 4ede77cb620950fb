"""What is done with definitions and images: build, run, launch, gate."""
