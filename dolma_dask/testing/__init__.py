"""What tests, plug-in authors and the demo share."""
