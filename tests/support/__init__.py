"""What tests share: real engines under control, models to compare with, a service to talk to."""
