# What make prints, as progress: make | awk -v total=N -f build-progress.awk, where N is the number of files to compile. A line
# for every tenth of them: "compiled 21 of 210 files (10 %)". version.o counts in neither: make -n does not know whether it is compiled.
/ -c / && / -o / && !/core\/version\.o/ && n < total {
  n++
  tenth = int(10 * n / total)
  if (tenth > told) {
    told = tenth
    printf "compiled %d of %d files (%d %%)\n", n, total, 10 * tenth
    fflush()
  }
}
