#include "agent/world/worker_env.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/os/environment.h"
#include "agent/watch/python_stacks.h"
#include "agent/world/worker.h"

enum { N_OURS_MAX = 32, TEXT_BYTES = 16384, NUMBER_BYTES = 12 };

/* Our variables, one after another in `text`; names[i] points at "NAME=value". */
struct ours {
    char *names[N_OURS_MAX];
    int n;
    char *text;
    size_t used, size;
    bool full;
};

static __attribute__((format(printf, 2, 3))) void set(struct ours *ours, const char *format, ...)
{
    char *at = ours->text + ours->used;
    size_t left = ours->size - ours->used;
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(at, left, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= left || ours->n == N_OURS_MAX) {
        ours->full = true;
        return;
    }
    ours->names[ours->n++] = at;
    ours->used += (size_t)n + 1;
}

/*
 * Show the worker one device: entry number `local_rank` of the parent's list; if the list has no such entry,
 * device number `local_rank`.
 */
static void set_device(struct ours *ours, char *const *parent, int local_rank)
{
    const char *list = environment_find(parent, "CUDA_VISIBLE_DEVICES");

    for (int i = 0; list != NULL && i < local_rank; i++) {
        list = strchr(list, ',');
        list = list == NULL ? NULL : list + 1;
    }
    if (list == NULL || *list == '\0')
        set(ours, "CUDA_VISIBLE_DEVICES=%d", local_rank);
    else
        set(ours, "CUDA_VISIBLE_DEVICES=%.*s", (int)strcspn(list, ","), list);
}

/*
 * TORCH_ELASTIC_WORKER_IDENTICAL=1 promises PyTorch's agents that every node has the same number of workers,
 * all of one role. PyTorch then takes ranks in the world as ranks in the role, whatever the role is called,
 * and this agent does the same. The ranks in the world are right even if the promise is not kept, because our
 * agents tell each other their numbers of workers.
 */
static bool is_identical(char *const *parent)
{
    const char *word = environment_find(parent, "TORCH_ELASTIC_WORKER_IDENTICAL");

    return word != NULL && strcmp(word, "1") == 0;
}

/*
 * See agent/watch/python_stacks.h. The inode lets a process notice that it no longer has the descriptor open.
 * An empty PYTHONPATH adds nothing: an empty entry after a colon would be the working directory.
 */
static void set_stacks(struct ours *ours, char *const *parent, const struct worker_identity *id)
{
    const char *path = environment_find(parent, "PYTHONPATH");
    struct stat info = { 0 };

    (void)fstat(id->stacks_fd, &info);
    set(ours, "FSDPRUN_STACKS=%d:%llu:%d", id->stacks_fd, (unsigned long long)info.st_ino,
        python_stacks_signal());
    if (id->archive_fd > 0)
        set(ours, "PYTHONPATH=/proc/self/fd/%d%s%s", id->archive_fd, path != NULL && *path != '\0' ? ":" : "",
            path != NULL ? path : "");
}

static void set_all(struct ours *ours, char *const *parent, const struct worker_identity *id)
{
    const struct agent_config *config = id->config;
    const struct world_plan *plan = id->plan;
    const int rank = plan->first_rank + id->local_rank;
    const bool identical = is_identical(parent), agent_store = config->job_json == NULL && !config->no_store;

    set(ours, "RANK=%d", rank);
    set(ours, "WORLD_SIZE=%d", plan->world_size);
    set(ours, "LOCAL_RANK=%d", config->virtual_local_rank ? 0 : id->local_rank);
    set(ours, "LOCAL_WORLD_SIZE=%d", config->n_workers);
    set(ours, "GROUP_RANK=%d", plan->node_rank);
    set(ours, "GROUP_WORLD_SIZE=%d", plan->n_nodes);
    set(ours, "ROLE_NAME=%s", config->role);
    set(ours, "ROLE_RANK=%d", identical ? rank : plan->role_rank + id->local_rank);
    set(ours, "ROLE_WORLD_SIZE=%d", identical ? plan->world_size : plan->role_world_size);
    set(ours, "MASTER_ADDR=%s", plan->master_address);
    set(ours, "MASTER_PORT=%d", plan->master_port);
    set(ours, "TORCHELASTIC_RUN_ID=%s", config->run_id);
    set(ours, "TORCHELASTIC_RESTART_COUNT=%d", plan->restart_count);
    set(ours, "TORCHELASTIC_MAX_RESTARTS=%d", config->max_restarts);
    set(ours, "TORCHELASTIC_SIGNALS_TO_HANDLE=%s", config->stop_signals_text);
    set(ours, "TORCHELASTIC_USE_AGENT_STORE=%s", agent_store ? "True" : "False");
    set(ours, "TORCHELASTIC_ERROR_FILE=%s", id->error_file == NULL ? "" : id->error_file);
    if (environment_find(parent, "TORCH_NCCL_ASYNC_ERROR_HANDLING") == NULL)
        set(ours, "TORCH_NCCL_ASYNC_ERROR_HANDLING=1");
    if (environment_find(parent, "OMP_NUM_THREADS") == NULL)
        set(ours, "OMP_NUM_THREADS=%d", id->threads < 1 ? 1 : id->threads);
    if (config->virtual_local_rank)
        set_device(ours, parent, id->local_rank);
    if (id->run_dir != NULL)
        set(ours, "FSDP_RUN_DIR=%s", id->run_dir);
    if (id->timer_file != NULL)
        set(ours, "TORCHELASTIC_TIMER_FILE=%s", id->timer_file);
    if (id->link_fd >= 0)
        set(ours, "FSDP_LINK_FD=%d", id->link_fd);
    if (plan->term > 0)
        set(ours, "FSDPRUN_TERM=%llu", (unsigned long long)plan->term);
    if (id->snapshots != NULL)
        set(ours, "FSDPRUN_SNAPSHOT_DIR=%s", id->snapshots);
    if (id->heart_fd > 0)
        set(ours, "FSDPRUN_HEARTBEAT_FD=%d", id->heart_fd);
    if (id->stacks_fd > 0)
        set_stacks(ours, parent, id);
}

/*
 * Variables that a worker does not inherit. If fsdprun itself is the worker of another fsdprun, its link and
 * run directory are not those of its workers. The job secret is for agents only: a process that knows it can
 * join the job as a node.
 */
static bool is_inherited(const char *variable)
{
    static const char *const withheld[] = {
        "FSDP_LINK_FD=",         "FSDP_RUN_DIR=",   "FSDPRUN_SECRET=", "FSDPRUN_SECRET_FILE=",
        "FSDPRUN_HEARTBEAT_FD=", "FSDPRUN_STACKS=", "FSDPRUN_TERM=",   "FSDPRUN_SNAPSHOT_DIR="
    };

    for (size_t i = 0; i < sizeof withheld / sizeof *withheld; i++)
        if (strncmp(variable, withheld[i], strlen(withheld[i])) == 0)
            return false;
    return true;
}

static bool is_ours(const struct ours *ours, const char *variable)
{
    size_t length = strcspn(variable, "=");

    for (int i = 0; i < ours->n; i++)
        if (strncmp(ours->names[i], variable, length) == 0 && ours->names[i][length] == '=')
            return true;
    return false;
}

/* Returns the most bytes that the texts of our variables can take. */
static size_t room_for(char *const *parent, const struct worker_identity *identity)
{
    const char *path = environment_find(parent, "PYTHONPATH");

    return TEXT_BYTES + (path == NULL ? 0 : strlen(path)) +
           (identity->run_dir == NULL ? 0 : strlen(identity->run_dir)) +
           (identity->error_file == NULL ? 0 : strlen(identity->error_file)) +
           (identity->timer_file == NULL ? 0 : strlen(identity->timer_file)) +
           strlen(identity->config->run_id) + strlen(identity->config->role) +
           strlen(identity->plan->master_address) + strlen(identity->config->stop_signals_text);
}

char *worker_env_own(char *const *parent, const struct worker_identity *identity, size_t *n_bytes)
{
    struct ours ours = { .size = room_for(parent, identity) };

    ours.text = malloc(ours.size);
    if (ours.text == NULL)
        return NULL;
    set_all(&ours, parent, identity);
    if (ours.full) {
        free(ours.text);
        return NULL;
    }
    *n_bytes = ours.used;
    return ours.text;
}

char **worker_env_build(char *const *parent, const struct worker_identity *identity)
{
    const size_t text_bytes = room_for(parent, identity);
    struct ours ours = { .size = text_bytes };
    size_t n_parent = 0, n = 0;
    char **out;

    while (parent[n_parent] != NULL)
        n_parent++;
    /* One block: the pointers, then the text of our variables. The strings of `parent` are not copied. */
    out = malloc((n_parent + N_OURS_MAX + 1) * sizeof *out + text_bytes);
    if (out == NULL)
        return NULL;
    ours.text = (char *)(out + n_parent + N_OURS_MAX + 1);
    set_all(&ours, parent, identity);
    if (ours.full) {
        free(out);
        return NULL;
    }
    for (size_t i = 0; i < n_parent; i++)
        if (!is_ours(&ours, parent[i]) && is_inherited(parent[i]))
            out[n++] = parent[i];
    for (int i = 0; i < ours.n; i++)
        out[n++] = ours.names[i];
    out[n] = NULL;
    return out;
}

/* Returns the length of the name at `text`: an identifier as in Python, of ASCII characters. */
static size_t name_length(const char *text)
{
    size_t n = 0;

    while (text[n] == '_' || isalpha((unsigned char)text[n]) || (n > 0 && isdigit((unsigned char)text[n])))
        n++;
    return n;
}

/*
 * Substitute what begins at the dollar of *from, as Python's string.Template.safe_substitute() does. "$$"
 * becomes a dollar, "$local_rank" and "${local_rank}" become the rank. Any other text stays. Writes the
 * result to `to`, moves *from past the text that was read, and returns the end of the result.
 */
static char *substitute(char *to, const char **from, int local_rank)
{
    static const char name[] = "local_rank";
    const char *at = *from + 1;
    bool braces = *at == '{';
    size_t n = name_length(at + braces);

    if (*at == '$') {
        *from += 2;
        *to = '$';
        return to + 1;
    }
    if (n == sizeof name - 1 && memcmp(at + braces, name, n) == 0 && (!braces || at[1 + n] == '}')) {
        *from = at + n + (braces ? 2 : 0);
        return to + snprintf(to, NUMBER_BYTES, "%d", local_rank);
    }
    *to = *(*from)++;
    return to + 1;
}

char **worker_env_args(char *const *argv, int local_rank)
{
    size_t n = 0, bytes = 0;
    char **out, *text;

    for (; argv[n] != NULL; n++)
        /* enough, because "$local_rank" is longer than the number that replaces it */
        bytes += strlen(argv[n]) + 1;
    /*
     * NUMBER_BYTES more than the text, because substitute() passes that size to snprintf() even at the end of
     * the block
     */
    out = malloc((n + 1) * sizeof *out + bytes + NUMBER_BYTES);
    if (out == NULL)
        return NULL;
    text = (char *)(out + n + 1);
    for (size_t i = 0; i < n; i++) {
        const char *from = argv[i];

        out[i] = text;
        while (*from != '\0') {
            if (i > 0 && *from == '$')
                text = substitute(text, &from, local_rank);
            else
                *text++ = *from++;
        }
        *text++ = '\0';
    }
    out[n] = NULL;
    return out;
}
