/* Checks of doctor about the installation of fsdprun, and about what Slurm and systemd do with this shell. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/doctor/checks.h"
#include "agent/os/small_file.h"
#include "shard_runtime/core/version.h"

enum { PROGRAM_WITHIN_MS = 2000 };

/* The first two words of `NAME --version`: "fsdp-train 0.1.0". */
static void ask_version(const struct doctor_host *host, const char *folder, const char *name,
                        char out[DOCTOR_TEXT_BYTES])
{
    char path[PATH_MAX + 32], text[4096], program[64] = "", version[64] = "";
    const char *const argv[] = { path, "--version", NULL };
    int status;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (access(path, X_OK) < 0) {
        snprintf(out, DOCTOR_TEXT_BYTES, "%s: %s", name, strerror(errno));
        return;
    }
    status = host->run(argv, PROGRAM_WITHIN_MS, text, sizeof text);
    if (status == 0 && sscanf(text, "%63s %63s", program, version) == 2)
        snprintf(out, DOCTOR_TEXT_BYTES, "%s", version);
    else
        snprintf(out, DOCTOR_TEXT_BYTES, "%s --version: %s", name,
                 status == DOCTOR_RUN_LATE ? "no answer" : "fails");
}

/* The fsdprun that a shell would run. */
static void look_on_path(struct install_facts *install, const struct doctor_host *host)
{
    const char *path = doctor_env(host, "PATH");
    struct stat here, there;
    char file[PATH_MAX];

    while (path != NULL && *path != '\0') {
        const int length = (int)strcspn(path, ":");

        if (length > 0 && snprintf(file, sizeof file, "%.*s/fsdprun", length, path) < (int)sizeof file &&
            access(file, X_OK) == 0) {
            snprintf(install->on_path, sizeof install->on_path, "%.255s", file);
            install->on_path_is_this = stat(file, &there) == 0 && stat(host->own_path, &here) == 0 &&
                                       here.st_dev == there.st_dev && here.st_ino == there.st_ino;
            return;
        }
        path += length + (path[length] == ':');
    }
}

/* logind.conf(5): KillUserProcesses ends what a session's scope holds. --detach and nohup do not leave it. */
static bool ends_at_logout(const struct doctor_host *host)
{
    char group[4096], conf[8192], *at = conf;

    if (!small_file_read(group, sizeof group, "%s/proc/self/cgroup", host->root) ||
        strstr(group, "/session-") == NULL ||
        !small_file_read(conf, sizeof conf, "%s/etc/systemd/logind.conf", host->root))
        return false;
    for (char *line; (line = strsep(&at, "\n")) != NULL;)
        if (strncmp(line, "KillUserProcesses=", 18) == 0)
            return strcmp(line + 18, "yes") == 0 || strcmp(line + 18, "true") == 0 ||
                   strcmp(line + 18, "1") == 0;
    return false;
}

void install_probe(struct doctor_facts *facts, const struct doctor_host *host)
{
    struct install_facts *install = &facts->install;
    const char *slash = strrchr(host->own_path, '/'), *job = doctor_env(host, "SLURM_JOB_ID"),
               *nodes = doctor_env(host, "SLURM_JOB_NUM_NODES"), *suffix;
    char folder[PATH_MAX], file[PATH_MAX + 32], real[PATH_MAX];

    snprintf(install->version, sizeof install->version, "%s", version_number());
    snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash - host->own_path) : 1,
             slash != NULL ? host->own_path : ".");
    ask_version(host, folder, "fsdp-agent", install->agent);
    ask_version(host, folder, "fsdp-train", install->trainer);
    snprintf(file, sizeof file, "%s/../lib/libfsdp.so", folder);
    if (realpath(file, real) != NULL && (suffix = strstr(real, "libfsdp.so.")) != NULL)
        snprintf(install->library, sizeof install->library, "%s", suffix + strlen("libfsdp.so."));
    look_on_path(install, host);
    snprintf(install->slurm_job, sizeof install->slurm_job, "%s", job != NULL ? job : "");
    install->slurm_step = doctor_env(host, "SLURM_STEP_NODELIST") != NULL;
    install->slurm_nodes = nodes != NULL ? atoi(nodes) : 0;
    install->killed_at_logout = ends_at_logout(host);
}

static enum doctor_state say_version(const char *what, const char *found, const char *wanted,
                                     char value[DOCTOR_VALUE_BYTES])
{
    if (strcmp(found, wanted) == 0)
        return doctor_say(DOCTOR_OK, value, "%s %s", what, found);
    return strchr(found, ' ') != NULL
               ? doctor_say(DOCTOR_FAIL, value, "%s", found)
               : doctor_say(DOCTOR_FAIL, value, "%s %s beside fsdprun %s", what, found, wanted);
}

static enum doctor_state trainer(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    return say_version("fsdp-train", facts->install.trainer, facts->install.version, value);
}

static enum doctor_state agent(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const enum doctor_state state =
        say_version("fsdp-agent", facts->install.agent, facts->install.version, value);

    return state == DOCTOR_FAIL ? DOCTOR_WARN : state; /* only jobs of a daemon need it */
}

static enum doctor_state library(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct install_facts *install = &facts->install;

    if (install->library[0] == '\0')
        return DOCTOR_NOTHING;
    return doctor_say(strcmp(install->library, install->version) == 0 ? DOCTOR_OK : DOCTOR_WARN, value,
                      "libfsdp %s beside fsdprun %s", install->library, install->version);
}

static enum doctor_state on_path(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct install_facts *install = &facts->install;

    if (install->on_path[0] == '\0')
        return doctor_say(DOCTOR_WARN, value, "fsdprun is not on PATH");
    return doctor_say(install->on_path_is_this ? DOCTOR_OK : DOCTOR_WARN, value, "%s%s", install->on_path,
                      install->on_path_is_this ? "" : " is another fsdprun than this one");
}

static enum doctor_state slurm(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct install_facts *install = &facts->install;

    if (install->slurm_job[0] == '\0')
        return DOCTOR_NOTHING;
    if (!install->slurm_step && install->slurm_nodes > 1)
        return doctor_say(DOCTOR_WARN, value, "job %s has %d nodes, and this is no step of srun",
                          install->slurm_job, install->slurm_nodes);
    return doctor_say(DOCTOR_OK, value, "job %s of Slurm%s", install->slurm_job,
                      install->slurm_step ? ", in a step" : "");
}

static enum doctor_state logout(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    return facts->install.killed_at_logout
               ? doctor_say(DOCTOR_WARN, value, "what runs in this session is killed at its end")
               : DOCTOR_NOTHING;
}

const struct doctor_check install_checks[] = {
    { "install.trainer", trainer, "job files need it: install all of one build (make install)" },
    { "install.agent", agent, "jobs of a daemon need it: install all of one build (make install)" },
    { "install.library", library, "C programs would run with another version: install all of one build" },
    { "install.path", on_path,
      "put the folder of fsdprun first on PATH: srun and scripts run what is there" },
    { "slurm.step", slurm, "in a batch script, write: srun fsdprun ..." },
    { "systemd.logout", logout,
      "loginctl enable-linger and systemd-run --user --scope fsdprun ..., or KillUserProcesses=no" },
    { 0 },
};
