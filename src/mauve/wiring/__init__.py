"""Which engine stands behind which seam. The only package that names one; a file for each thing that is wired."""
