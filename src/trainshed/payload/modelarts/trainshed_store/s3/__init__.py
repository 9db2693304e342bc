"""The S3 protocol: requests, signatures, documents."""
