/*
 * busy_loop PID SECONDS: the first thread of a process, on which its loop runs, stands still for so long, as
 * if it were busy. Its other threads go on. Ends with 77 if the system does not let this process do that.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>

int main(int argc, char **argv)
{
    const pid_t thread = argc == 3 ? (pid_t)strtol(argv[1], NULL, 10) : 0;
    const double seconds = argc == 3 ? strtod(argv[2], NULL) : 0;
    const struct timespec length = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };
    int status;

    if (thread <= 0 || seconds <= 0)
        return 2;
    if (ptrace(PTRACE_SEIZE, thread, NULL, NULL) < 0)
        return errno == EPERM ? 77 : 1;
    if (ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) < 0 || waitpid(thread, &status, __WALL) != thread)
        return 1;
    nanosleep(&length, NULL);
    return ptrace(PTRACE_DETACH, thread, NULL, NULL) < 0;
}
