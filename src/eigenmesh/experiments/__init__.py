"""Experiments of published papers, and our own: settings -> problems -> runs -> tables -> claims."""
