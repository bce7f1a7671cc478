"""Numbers over time: periods, series, and the SVG that draws them."""
