"""Mirrors in chunk formats: frames collected into chunks, with resolution levels. It knows no format."""
