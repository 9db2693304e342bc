"""What is asked: the job specification, its loading and its errors."""
