"""What is asked: the job specification (`job`), its loading and its errors (`load`)."""
