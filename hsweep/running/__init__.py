"""Runs studies: new ones, edited ones and ones that go on."""
