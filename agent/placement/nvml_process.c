#include "agent/placement/nvml_process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/placement/nvml_impl.h"
#include "shard_runtime/core/self_process.h"

/*
 * The process recognises its role by its argv[0]. A user would not start our program by one of these names.
 */
static const char *const names[] = { [NVML_ASK] = "fsdp-gpu-ask", [NVML_WATCH] = "fsdp-gpu-watch" };

enum fsdp_status nvml_process_start(enum nvml_role role, const char *library, pid_t *pid, int *fd,
                                    struct fsdp_err *err)
{
    enum fsdp_status status;
    int ends[2];

    *pid = -1;
    *fd = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "socketpair: %s", strerror(errno));
    status = self_process_start(names[role], library != NULL ? library : "libnvidia-ml.so.1", ends[1],
                                ends[1], pid, err);
    close(ends[1]);
    if (status == FSDP_OK) {
        *fd = ends[0];
        return FSDP_OK;
    }
    close(ends[0]);
    fsdp_wrap(err, "no process to ask NVML in");
    return status;
}

/*
 * Does the child's work. It ends by _exit(), because the library's exit handlers may block like all of its
 * calls.
 */
void nvml_process_main(int argc, char **argv)
{
    const bool asks = argc == 3 && strcmp(argv[0], names[NVML_ASK]) == 0;
    const bool watches = argc == 3 && strcmp(argv[0], names[NVML_WATCH]) == 0;

    if (!asks && !watches)
        return;
    self_process_begin(argv[0], argv[2]);
    _exit(asks ? nvml_ask_here(argv[1]) : nvml_watch_here(argv[1]));
}
