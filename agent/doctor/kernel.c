#include <errno.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "agent/desk/registry.h"
#include "agent/doctor/checks.h"
#include "agent/os/os.h"

static void look_at_registry(struct kernel_facts *kernel)
{
    struct registry_list list;
    struct fsdp_err err = { 0 };

    if (registry_read(&list, &err) != FSDP_OK)
        snprintf(kernel->commands_error, sizeof kernel->commands_error, "%.159s", err.message);
    else
        kernel->n_jobs = (int)list.n;
    registry_list_fini(&list);
}

void kernel_probe(struct doctor_facts *facts, const struct doctor_host *host)
{
    struct kernel_facts *kernel = &facts->kernel;
    struct fsdp_err err = { 0 };
    struct utsname name;
    int fd;

    (void)host;
    if (uname(&name) == 0)
        snprintf(kernel->release, sizeof kernel->release, "%.63s", name.release);
    if (os_check_kernel(&err) != FSDP_OK)
        snprintf(kernel->lacks, sizeof kernel->lacks, "%.159s", err.message);
    kernel->close_range = os_has_close_range();
    kernel->subreaper = prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
    fd = inotify_init1(IN_CLOEXEC);
    kernel->inotify_error = fd < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    look_at_registry(kernel);
}

static enum doctor_state supervision(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct kernel_facts *kernel = &facts->kernel;

    if (kernel->lacks[0] != '\0')
        return doctor_say(DOCTOR_FAIL, value, "%s", kernel->lacks);
    return kernel->subreaper
               ? doctor_say(DOCTOR_OK, value, "Linux %s: pidfd and subreaper work", kernel->release)
               : doctor_say(DOCTOR_FAIL, value, "Linux %s: no process may adopt orphans", kernel->release);
}

static enum doctor_state close_range_works(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    return facts->kernel.close_range
               ? doctor_say(DOCTOR_OK, value, "close_range works")
               : doctor_say(DOCTOR_WARN, value, "no close_range: workers inherit open descriptors");
}

static enum doctor_state inotify(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    return facts->kernel.inotify_error == 0
               ? doctor_say(DOCTOR_OK, value, "files can be watched")
               : doctor_say(DOCTOR_WARN, value, "inotify: %s", strerror(facts->kernel.inotify_error));
}

static enum doctor_state commands(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct kernel_facts *kernel = &facts->kernel;

    return kernel->commands_error[0] == '\0'
               ? doctor_say(DOCTOR_OK, value, "%d job%s of this user run%s here", kernel->n_jobs,
                            kernel->n_jobs == 1 ? "" : "s", kernel->n_jobs == 1 ? "s" : "")
               : doctor_say(DOCTOR_WARN, value, "%s", kernel->commands_error);
}

const struct doctor_check kernel_checks[] = {
    { "kernel.supervision", supervision, "Linux 5.4 or newer, and a container that allows these calls" },
    { "kernel.close_range", close_range_works, "Linux 5.11 or newer" },
    { "kernel.inotify", inotify, "raise fs.inotify.max_user_instances: logs -f and events -f need one each" },
    { "kernel.registry", commands, "ps, status and stop find no job: look at that folder, or remove it" },
    { 0 },
};
