"""What acquisition software uses to send frames."""
