"""AlexNet from a file, through an engine, to inferencers: the picture of a system for inference, part by part."""
