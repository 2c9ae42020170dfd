"""Frame features of other programs, read in place: pfiles, Kaldi archives, PDNN's pickles, HTK features; and their writers."""
