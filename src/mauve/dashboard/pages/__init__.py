"""The handlers of the pages, in modules named after what they show."""
