"""Homes of each format, with what every later version must make of them."""
