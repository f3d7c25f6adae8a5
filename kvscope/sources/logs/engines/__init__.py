"""What one engine writes into its log, one engine a file, found by file name."""
