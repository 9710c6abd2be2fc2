"""The experiments of the literature: settings -> problems -> runs -> tables -> claims."""
