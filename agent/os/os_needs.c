#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/os/os.h"

enum { CLOEXEC_OF_RANGE = 4 }; /* CLOSE_RANGE_CLOEXEC of Linux 5.11's linux/close_range.h */

/*
 * Tries the calls on this process itself: signal 0, and a wait, which a kernel with pidfds refuses with
 * ECHILD. Returns the name of the call that is missing, or NULL.
 */
static const char *use_pidfd(int pidfd, const char **since)
{
    siginfo_t info;

    *since = "5.1";
    if (syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) < 0)
        return "pidfd_send_signal";
    *since = "5.4";
    return waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG) < 0 && errno != ECHILD ? "waitid on a pidfd"
                                                                                         : NULL;
}

enum fsdp_status os_check_kernel(struct fsdp_err *err)
{
    const int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    const char *since = "5.3", *lacks = pidfd < 0 ? "pidfd_open" : use_pidfd(pidfd, &since);
    const int error = errno;

    if (pidfd >= 0)
        close(pidfd);
    return lacks == NULL
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                           "this system lacks %s (%s): Linux %s or newer is needed, and a container "
                           "that allows the call",
                           lacks, strerror(error), since);
}

bool os_has_close_range(void)
{
    return syscall(SYS_close_range, ~0U, ~0U, CLOEXEC_OF_RANGE) == 0; /* no descriptor is in this range */
}
