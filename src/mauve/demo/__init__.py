"""Sample data for the demo: generated from a seed and stored through the product's own interfaces."""
