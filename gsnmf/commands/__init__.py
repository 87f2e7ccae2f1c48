"""The commands of `gsnmf`, one file each: options, what is checked first, what is printed."""
