"""Server logs as sources: lines found by literal text, read by one file of rules an engine, given as samples."""
