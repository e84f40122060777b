#include "agent/daemon/control_proto.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/version.h"

enum { CONFIG_BYTES = 368 };  /* sizeof(struct agent_config) where pointers have 8 bytes */
enum { CONTROL_N_LISTS = 4 }; /* argv, environment and the two of filters */

/* --- writing ------------------------------------------------------------------------------------------------------ */

struct writer {
    unsigned char *bytes;
    size_t n, capacity;
    bool failed;
};

static void put(struct writer *writer, const void *bytes, size_t n)
{
    if (writer->failed || n > CONTROL_MAX_BYTES - writer->n) {
        writer->failed = true;
        return;
    }
    if (writer->n + n > writer->capacity) {
        const size_t capacity = 2 * (writer->n + n);
        unsigned char *grown = realloc(writer->bytes, capacity);

        if (grown == NULL) {
            writer->failed = true;
            return;
        }
        writer->bytes = grown;
        writer->capacity = capacity;
    }
    if (n > 0)
        memcpy(writer->bytes + writer->n, bytes, n);
    writer->n += n;
}

static void put_number(struct writer *writer, uint64_t number)
{
    unsigned char bytes[8];

    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(number >> 8 * i);
    put(writer, bytes, sizeof bytes);
}

static void put_bytes(struct writer *writer, const void *bytes, size_t n)
{
    put_number(writer, n);
    put(writer, bytes, n);
    put(writer, "", 1);
}

/* A text that may be missing: a flag first. */
static void put_text(struct writer *writer, const char *text)
{
    put_number(writer, text != NULL);
    if (text != NULL)
        put_bytes(writer, text, strlen(text));
}

static void put_list(struct writer *writer, char *const *list)
{
    size_t n = 0;

    while (list != NULL && list[n] != NULL)
        n++;
    put_number(writer, n);
    for (size_t i = 0; i < n; i++)
        put_bytes(writer, list[i], strlen(list[i]));
}

/* A list that may be missing. */
static void put_filters(struct writer *writer, char *const *list)
{
    put_number(writer, list != NULL);
    if (list != NULL)
        put_list(writer, list);
}

static void put_array(struct writer *writer, const void *array, int n)
{
    put_number(writer, array != NULL);
    if (array != NULL)
        put_bytes(writer, array, (size_t)n);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

struct reader {
    char *bytes; /* our copy: texts are pointed at where they stand */
    size_t n, at;
    char **lists[CONTROL_N_LISTS]; /* memory of the lists, freed with the job */
    int n_lists;
    const char *wrong; /* what was wrong first; NULL: nothing */
};

static void wrong(struct reader *reader, const char *what)
{
    if (reader->wrong == NULL)
        reader->wrong = what;
}

static uint64_t get_number(struct reader *reader, uint64_t low, uint64_t high, const char *what)
{
    uint64_t number = 0;

    if (reader->wrong != NULL || reader->n - reader->at < 8) {
        wrong(reader, what);
        return low;
    }
    for (int i = 0; i < 8; i++)
        number |= (uint64_t)(unsigned char)reader->bytes[reader->at + (size_t)i] << 8 * i;
    reader->at += 8;
    if (number < low || number > high) {
        wrong(reader, what);
        return low;
    }
    return number;
}

static char *get_bytes(struct reader *reader, size_t *n_bytes, const char *what)
{
    const uint64_t n = get_number(reader, 0, CONTROL_MAX_BYTES, what);
    char *bytes = reader->bytes + reader->at;

    *n_bytes = 0;
    if (reader->wrong != NULL || reader->n - reader->at < n + 1 || bytes[n] != '\0') {
        wrong(reader, what);
        return NULL;
    }
    reader->at += n + 1;
    *n_bytes = n;
    return bytes;
}

static char *get_text(struct reader *reader, bool required, const char *what)
{
    const bool there = get_number(reader, required, 1, what) != 0;
    size_t n;
    char *text;

    if (!there || reader->wrong != NULL)
        return NULL;
    text = get_bytes(reader, &n, what);
    if (text != NULL && strlen(text) != n) {
        wrong(reader, what);
        return NULL;
    }
    return text;
}

static char **get_list(struct reader *reader, uint64_t at_least, const char *what)
{
    const uint64_t n = get_number(reader, at_least, CONTROL_MAX_TEXTS, what);
    char **list;

    if (reader->wrong != NULL)
        return NULL;
    list = calloc(n + 1, sizeof *list);
    if (list == NULL) {
        wrong(reader, "no memory");
        return NULL;
    }
    reader->lists[reader->n_lists++] = list;
    for (uint64_t i = 0; i < n; i++) {
        size_t length;

        list[i] = get_bytes(reader, &length, what);
        if (list[i] == NULL || strlen(list[i]) != length) {
            wrong(reader, what);
            return NULL;
        }
    }
    return list;
}

static char **get_filters(struct reader *reader, const char *what)
{
    return get_number(reader, 0, 1, what) != 0 ? get_list(reader, 0, what) : NULL;
}

static void *get_array(struct reader *reader, int n, unsigned char highest, const char *what)
{
    size_t n_bytes;
    char *bytes;

    if (get_number(reader, 0, 1, what) == 0)
        return NULL;
    bytes = get_bytes(reader, &n_bytes, what);
    if (bytes == NULL || n_bytes != (size_t)n) {
        wrong(reader, what);
        return NULL;
    }
    for (size_t i = 0; i < n_bytes; i++)
        if ((unsigned char)bytes[i] > highest)
            wrong(reader, what);
    return bytes;
}

/* --- the job ------------------------------------------------------------------------------------------------------ */

/* Every member of struct agent_config but stdio and the observer; whoever adds one adds it here, in both. */
_Static_assert(
    sizeof(void *) != 8 || sizeof(struct agent_config) == CONFIG_BYTES,
    "struct agent_config has changed: does put_config() send what is new, and get_config() read it?");

static void put_config(struct writer *writer, const struct agent_config *config)
{
    put_list(writer, config->argv);
    put_number(writer, (uint64_t)config->script);
    put_list(writer, config->environment);
    put_text(writer, config->directory);
    put_text(writer, config->job_json);
    put_text(writer, config->deciding_json);
    put_number(writer, config->total_steps);
    put_number(writer, config->resume_never);
    put_number(writer, config->exports);
    put_text(writer, config->run_id);
    put_text(writer, config->role);
    put_number(writer, (uint64_t)config->n_workers);
    put_number(writer, (uint64_t)config->n_nodes);
    put_number(writer, (uint64_t)((int64_t)config->node_rank + 1)); /* -1: any */
    put_number(writer, (uint64_t)config->min_nodes);
    put_number(writer, (uint64_t)config->join_timeout_ms);
    put_number(writer, (uint64_t)config->last_call_timeout_ms);
    put_number(writer, (uint64_t)config->threads);
    put_number(writer, (uint64_t)config->max_restarts);
    put_number(writer, (uint64_t)config->grace_ms);
    put_number(writer, (uint64_t)config->hang_timeout_ms);
    put_number(writer, config->save_on_signal);
    put_number(writer, config->virtual_local_rank);
    put_number(writer, config->numa);
    put_number(writer, config->stop_signals);
    put_number(writer, config->forward_signals);
    put_text(writer, config->stop_signals_text);
    put_text(writer, config->rendezvous_host);
    put_number(writer, (uint64_t)config->rendezvous_port);
    put_number(writer, config->hosting);
    put_array(writer, config->secret, (int)config->secret_bytes);
    put_text(writer, config->master_address);
    put_number(writer, (uint64_t)config->master_port);
    put_number(writer, config->no_store);
    put_text(writer, config->local_address);
    put_text(writer, config->run_dir);
    put_number(writer, config->run_dir_named);
    put_number(writer, config->run_dir_temporary);
    put_array(writer, config->output.redirects, config->n_workers);
    put_array(writer, config->output.tees, config->n_workers);
    put_array(writer, config->output.shown, config->n_workers);
    put_number(writer, config->output.prefix);
    put_number(writer, config->output.direct);
    put_number(writer, config->output.color);
    put_number(writer, config->output.bar);
    put_text(writer, config->output.prefix_template);
    put_number(writer, config->output.no_files);
    put_filters(writer, config->output.stdout_filters);
    put_filters(writer, config->output.stderr_filters);
    put_number(writer, config->output.file_limit_bytes);
    put_number(writer, (uint64_t)config->output.n_rotated);
    put_number(writer, config->quiet);
}

/* An index in argv, which may be missing where the message was wrong before. */
static int get_script(struct reader *reader, char *const *argv)
{
    size_t n = 0;

    while (argv != NULL && argv[n] != NULL)
        n++;
    return (int)get_number(reader, 0, n == 0 ? 0 : n - 1, "script");
}

static void get_config(struct reader *reader, struct agent_config *config)
{
    size_t n_secret = 0;

    agent_config_init(config);
    config->argv = get_list(reader, 1, "argv");
    config->script = get_script(reader, config->argv);
    config->environment = get_list(reader, 0, "environment");
    config->directory = get_text(reader, true, "directory");
    config->job_json = get_text(reader, false, "job");
    config->deciding_json = get_text(reader, false, "deciding");
    config->total_steps = get_number(reader, 0, UINT64_MAX, "total_steps");
    config->resume_never = get_number(reader, 0, 1, "resume_never") != 0;
    config->exports = get_number(reader, 0, 1, "exports") != 0;
    config->run_id = get_text(reader, true, "run_id");
    config->role = get_text(reader, true, "role");
    config->n_workers = (int)get_number(reader, 1, CONTROL_MAX_WORKERS, "n_workers");
    config->n_nodes = (int)get_number(reader, 1, INT_MAX, "n_nodes");
    config->node_rank = (int)get_number(reader, 0, INT_MAX, "node_rank") - 1;
    config->min_nodes = (int)get_number(reader, 1, (uint64_t)config->n_nodes, "min_nodes");
    config->join_timeout_ms = (int64_t)get_number(reader, 0, INT64_MAX / 2000000, "join_timeout_ms");
    config->last_call_timeout_ms =
        (int64_t)get_number(reader, 0, INT64_MAX / 2000000, "last_call_timeout_ms");
    config->threads = (int)get_number(reader, 0, INT_MAX, "threads");
    config->max_restarts = (int)get_number(reader, 0, INT_MAX, "max_restarts");
    config->grace_ms = (int64_t)get_number(reader, 0, INT64_MAX / 2000000, "grace_ms");
    config->hang_timeout_ms = (int64_t)get_number(reader, 0, INT64_MAX / 2000000, "hang_timeout_ms");
    config->save_on_signal =
        (unsigned)get_number(reader, 0, AGENT_SAVE_TERM | AGENT_SAVE_USR1, "save_on_signal");
    config->virtual_local_rank = get_number(reader, 0, 1, "virtual_local_rank") != 0;
    config->numa = (enum agent_numa)get_number(reader, 0, AGENT_NUMA_CORE_COMPLEX, "numa");
    config->stop_signals = get_number(reader, 0, UINT64_MAX, "stop_signals");
    config->forward_signals = get_number(reader, 0, UINT64_MAX, "forward_signals");
    config->stop_signals_text = get_text(reader, false, "stop_signals_text");
    config->rendezvous_host = get_text(reader, false, "rendezvous_host");
    config->rendezvous_port = (int)get_number(reader, 0, 65535, "rendezvous_port");
    config->hosting = (enum agent_hosting)get_number(reader, 0, AGENT_HOST_NO, "hosting");
    if (get_number(reader, 0, 1, "secret") != 0)
        config->secret = get_bytes(reader, &n_secret, "secret");
    config->secret_bytes = n_secret;
    config->master_address = get_text(reader, false, "master_address");
    config->master_port = (int)get_number(reader, 0, 65535, "master_port");
    config->no_store = get_number(reader, 0, 1, "no_store") != 0;
    config->local_address = get_text(reader, false, "local_address");
    config->run_dir = get_text(reader, false, "run_dir");
    config->run_dir_named = get_number(reader, 0, 1, "run_dir_named") != 0;
    config->run_dir_temporary = get_number(reader, 0, 1, "run_dir_temporary") != 0;
    config->output.redirects = get_array(reader, config->n_workers, AGENT_STDOUT | AGENT_STDERR, "redirects");
    config->output.tees = get_array(reader, config->n_workers, AGENT_STDOUT | AGENT_STDERR, "tees");
    config->output.shown = get_array(reader, config->n_workers, 1, "shown");
    config->output.prefix = get_number(reader, 0, 1, "prefix") != 0;
    config->output.direct = get_number(reader, 0, 1, "direct") != 0;
    config->output.color = get_number(reader, 0, 1, "color") != 0;
    config->output.bar = get_number(reader, 0, 1, "bar") != 0;
    config->output.prefix_template = get_text(reader, false, "prefix_template");
    config->output.no_files = get_number(reader, 0, 1, "no_files") != 0;
    config->output.stdout_filters = get_filters(reader, "stdout_filters");
    config->output.stderr_filters = get_filters(reader, "stderr_filters");
    config->output.file_limit_bytes = get_number(reader, 0, INT64_MAX, "file_limit_bytes");
    config->output.n_rotated = (int)get_number(reader, 0, 1000, "n_rotated");
    config->quiet = get_number(reader, 0, 1, "quiet") != 0;
    if (config->node_rank >= config->n_nodes)
        wrong(reader, "node_rank");
    if (config->run_dir != NULL && config->run_dir[0] != '/')
        wrong(reader, "run_dir");
    if (config->directory != NULL && config->directory[0] != '/')
        wrong(reader, "directory");
}

enum fsdp_status control_encode_job(const struct control_job *job, unsigned char **payload, size_t *n_bytes,
                                    struct fsdp_err *err)
{
    struct writer writer = { 0 };

    *payload = NULL;
    *n_bytes = 0;
    if (job->config.argv == NULL || job->config.argv[0] == NULL || job->config.environment == NULL ||
        job->config.directory == NULL || job->config.run_id == NULL || job->config.role == NULL)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "a job needs a program, an environment, a directory, an id and a role");
    put_text(&writer, version_number());
    put_text(&writer, version_commit());
    put_config(&writer, &job->config);
    put_number(&writer, job->detach);
    put_number(&writer, job->umask);
    put_number(&writer, job->ignored);
    put_number(&writer, job->blocked);
    for (int i = 0; i < CONTROL_N_LIMITS; i++)
        put_number(&writer, job->limits[i]);
    put_bytes(&writer, &job->cpus, sizeof job->cpus);
    if (writer.failed) {
        free(writer.bytes);
        return fsdp_fail(err, FSDP_ERR_ARG, "the job and its environment are larger than %d bytes",
                         CONTROL_MAX_BYTES);
    }
    *payload = writer.bytes;
    *n_bytes = writer.n;
    return FSDP_OK;
}

struct owned {
    char *bytes;
    char **lists[CONTROL_N_LISTS];
};

static void free_reader(struct reader *reader)
{
    for (int i = 0; i < reader->n_lists; i++)
        free(reader->lists[i]);
    free(reader->bytes);
}

enum fsdp_status control_decode_job(struct control_job *job, const unsigned char *payload, size_t n_bytes,
                                    struct fsdp_err *err)
{
    struct reader reader = { .bytes = malloc(n_bytes + 1), .n = n_bytes };
    struct owned *owned = malloc(sizeof *owned);
    const char *number, *commit, *cpus;
    size_t n_cpus;

    memset(job, 0, sizeof *job);
    if (reader.bytes == NULL || owned == NULL) {
        free(owned);
        free_reader(&reader);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a job of %zu bytes", n_bytes);
    }
    memcpy(reader.bytes, payload, n_bytes);
    number = get_text(&reader, true, "version");
    commit = get_text(&reader, true, "version");
    if (reader.wrong == NULL &&
        (strcmp(number, version_number()) != 0 || strcmp(commit, version_commit()) != 0)) {
        fsdp_fail(err, FSDP_ERR_MISMATCH, "the agent is version %s (%s), this fsdprun %.40s (%.40s)",
                  version_number(), version_commit(), number, commit);
        free(owned);
        free_reader(&reader);
        return FSDP_ERR_MISMATCH;
    }
    get_config(&reader, &job->config);
    job->detach = get_number(&reader, 0, 1, "detach") != 0;
    job->umask = (unsigned)get_number(&reader, 0, 0777, "umask");
    job->ignored = get_number(&reader, 0, UINT64_MAX, "ignored");
    job->blocked = get_number(&reader, 0, UINT64_MAX, "blocked");
    for (int i = 0; i < CONTROL_N_LIMITS; i++)
        job->limits[i] = get_number(&reader, 0, UINT64_MAX, "limits");
    cpus = get_bytes(&reader, &n_cpus, "cpus");
    if (cpus == NULL || n_cpus != sizeof job->cpus)
        wrong(&reader, "cpus");
    else
        memcpy(&job->cpus, cpus, sizeof job->cpus);
    if (reader.wrong == NULL && reader.at != reader.n)
        wrong(&reader, "what follows the job");
    if (reader.wrong != NULL) {
        free(owned);
        free_reader(&reader);
        memset(job, 0, sizeof *job);
        return fsdp_fail(err, FSDP_ERR_FORMAT, "the request is damaged: %s", reader.wrong);
    }
    owned->bytes = reader.bytes;
    memcpy(owned->lists, reader.lists, sizeof owned->lists);
    job->owned = owned;
    return FSDP_OK;
}

void control_job_free(struct control_job *job)
{
    struct owned *owned = job->owned;

    if (owned != NULL) {
        for (int i = 0; i < CONTROL_N_LISTS; i++)
            free(owned->lists[i]);
        free(owned->bytes);
        free(owned);
    }
    memset(job, 0, sizeof *job);
}

/* --- the small messages ------------------------------------------------------------------------------------------- */

size_t control_encode_number(unsigned char out[4], uint32_t number)
{
    for (int i = 0; i < 4; i++)
        out[i] = (unsigned char)(number >> 8 * i);
    return 4;
}

size_t control_encode_words(unsigned char *out, size_t size, uint32_t number, const char *words)
{
    const size_t n = strnlen(words, size - 4); /* no zero at the end: the frame has its size */

    control_encode_number(out, number);
    memcpy(out + 4, words, n);
    return 4 + n;
}

bool control_decode_number(const unsigned char *payload, size_t n_bytes, uint32_t *number)
{
    if (n_bytes != 4)
        return false;
    *number = (uint32_t)payload[0] | (uint32_t)payload[1] << 8 | (uint32_t)payload[2] << 16 |
              (uint32_t)payload[3] << 24;
    return true;
}

bool control_decode_words(const unsigned char *payload, size_t n_bytes, uint32_t *number, char *words,
                          size_t size)
{
    if (n_bytes < 4 || n_bytes - 4 > CONTROL_WORDS_BYTES || !control_decode_number(payload, 4, number))
        return false;
    snprintf(words, size, "%.*s", (int)(n_bytes - 4), (const char *)payload + 4);
    for (char *c = words; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20)
            *c = ' ';
    return true;
}

bool control_signal_allowed(uint32_t number)
{
    return number > 0 && number < 64 && number != SIGKILL && number != SIGSTOP && number != SIGCHLD;
}

bool control_default_socket(char *out, size_t size, const char *runtime_dir, unsigned uid)
{
    int n;

    if (runtime_dir != NULL && runtime_dir[0] == '/')
        n = snprintf(out, size, "%s/fsdp/agent.sock", runtime_dir);
    else
        n = snprintf(out, size, "/tmp/fsdp-%u/agent.sock", uid);
    return n > 0 && (size_t)n < size;
}
