"""What a benchmark found: quantities with errors, kept as JSON, compared, drawn, written as one HTML page."""
