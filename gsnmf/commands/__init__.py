"""The commands of `gsnmf`, one file each: options, validation, printed output."""
