# launch_worker.c in Python: nothing is imported but what the interpreter has built in.
import posix, sys, time
now = time.monotonic_ns()
posix.write(posix.open(sys.argv[1], posix.O_WRONLY), b"%20d %10d\n" % (now, posix.getpid()))
