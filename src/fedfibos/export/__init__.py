"""The submodel of a device class as a file that other programs load."""
