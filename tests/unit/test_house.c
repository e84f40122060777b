/*
 * The house: which folder may include which. docs/architecture.md gives the reason for each wall; this table
 * is the wall. Every #include "..." of a header of ours is checked against it. Pure files include no library
 * of loops, GPUs or networks. No room of the agent grows beyond its limits.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define A "agent/"
#define R "shard_runtime/"

/* What each folder may include in addition to itself and shard_runtime/include (as <fsdp/...>). */
enum { MOST_ARROWS = 16 };
static const struct room {
    const char *name, *to[MOST_ARROWS];
} rooms[] = {
    { "launcher",
      { A "daemon", A "run", A "doctor", A "desk", A "arbiter", A "output", A "record", A "placement",
        A "snapshot", A "wire", A "os", "agent", R "ckpt", R "shardfile", R "job", R "core" } },
    { A "daemon", { A "wire", A "os", "agent", R "core" } },
    { A "run",
      { A "desk", A "rendezvous", A "cluster", A "arbiter", A "members", A "world", A "output", A "record",
        A "wire", A "placement", A "snapshot", A "os", "agent", R "shardfile", R "core" } },
    { A "desk", { A "record", R "core" } },
    { A "doctor", { A "desk", A "wire", A "placement", A "os", R "core" } },
    { A "rendezvous", { A "cluster", A "members", A "output", A "wire", A "os", "agent", R "core" } },
    { A "cluster",
      { A "arbiter", A "members", A "world", A "watch", A "output", A "wire", A "record", A "tcpstore",
        A "link", A "snapshot", A "save", A "os", "agent", R "shardfile", R "core" } },
    { A "arbiter", { A "wire", A "os", R "shardfile", R "objectstore", R "core" } },
    { A "members", { A "world", A "watch", A "wire", A "record", A "snapshot", A "os", "agent", R "core" } },
    { A "world",
      { A "watch", A "output", A "record", A "placement", A "snapshot", A "link", A "os", "agent",
        R "core" } },
    { A "watch", { A "record", A "os", R "shardfile", R "core" } },
    { A "output", { A "record", A "os", "agent", R "shardfile", R "core" } },
    { A "record", { A "os", R "shardfile", R "core" } },
    { A "save", { R "shardfile", R "core" } },
    { A "placement", { A "os", "agent", R "core" } },
    { A "snapshot", { A "wire", A "link", R "shardfile", R "core" } },
    { A "wire", { A "record", R "core" } },
    { A "tcpstore", { R "core" } },
    { A "link", { A "os", R "core" } },
    { A "os", { R "core" } },
    { R "trainer", { R "state", R "engine", R "shardfile", R "job", R "comm", R "data", R "core" } },
    { R "state", { R "engine", R "checkpoint", R "shardfile", R "core" } },
    { R "engine",
      { R "shardfile", R "nn", R "optim", R "shard", R "plan", R "numerics", R "device", R "comm",
        R "core" } },
    { R "checkpoint", { R "shardfile", R "shard", R "comm", R "core" } },
    { R "shard", { R "plan", R "comm", R "device", R "core" } },
    { R "nn", { R "numerics", R "device", R "plan", R "core" } },
    { R "optim", { R "shardfile", R "numerics", R "device", R "core" } },
    { R "ckpt", { R "shardfile", R "core" } },
    { R "plan", { R "core" } },
    { R "shardfile", { R "objectstore", R "core" } },
    { R "objectstore", { R "core" } },
    { R "job", { R "core" } },
    { R "numerics", { R "core" } },
    { R "device", { R "core" } },
    { R "comm", { R "device", R "core" } },
    { R "data", { R "core" } },
    { R "cuda", { R "numerics", R "device", R "comm", R "core" } },
};
enum { N_ROOMS = sizeof rooms / sizeof *rooms };
static bool used[N_ROOMS][MOST_ARROWS];

/* A room of the agent is not larger than this: a newcomer can read it. */
enum { MOST_FILES = 30, MOST_LINES = 5000 };
static struct size {
    int files, lines;
} sizes[N_ROOMS];

/*
 * A pure file includes no library of loops, GPUs or networks. All files of these folders are pure, and so is
 * every module whose header says "Pure" in its first comment.
 */
static const char *const pure[] = { A "members/", R "plan/", R "core/", R "job/" };
static const char *const impure_headers[] = { "uv.h", "cuda", "nccl", "openssl/", "curl/", "dnnl" };

static int n_files, n_pure, n_violations, n_tables;

static const char *folder_of(const char *path, char out[256])
{
    /* launcher is one folder, agent and shard_runtime have rooms; config.h stands in agent itself. */
    const char *end = strchr(path, '/'),
               *below = end != NULL && strncmp(path, "launcher/", 9) != 0 ? strchr(end + 1, '/') : NULL;

    if (below != NULL || strncmp(path, R, strlen(R)) == 0)
        end = below;
    snprintf(out, 256, "%.*s", end == NULL ? 0 : (int)(end - path), path);
    return out;
}

static bool allowed(const char *from, const char *to)
{
    if (strcmp(from, to) == 0 || strcmp(to, R "include") == 0)
        return true;
    for (int i = 0; i < N_ROOMS; i++)
        for (int k = 0; strcmp(rooms[i].name, from) == 0 && k < MOST_ARROWS && rooms[i].to[k] != NULL; k++)
            if (strcmp(rooms[i].to[k], to) == 0)
                return used[i][k] = true;
    return false;
}

/* Take away, again and again, the rooms that no longer lead to another one; what stays leads in a circle. */
static bool has_circle(const struct room *table, int n)
{
    bool gone[N_ROOMS] = { false };
    int n_left = n;

    for (int before = n + 1; n_left < before;) {
        before = n_left;
        for (int i = 0; i < n; i++) {
            bool leads_on = false;

            for (int k = 0; k < MOST_ARROWS && table[i].to[k] != NULL; k++)
                for (int other = 0; other < n; other++)
                    leads_on |= !gone[other] && strcmp(table[other].name, table[i].to[k]) == 0;
            n_left -= !gone[i] && !leads_on;
            gone[i] |= !leads_on;
        }
    }
    return n_left > 0;
}

/* Pure by its folder, or because the first comment of the module's header has the word "Pure". */
static bool is_pure(const char *path)
{
    char full[4096], text[4096] = "";
    FILE *file;

    for (size_t i = 0; i < sizeof pure / sizeof *pure; i++)
        if (strncmp(path, pure[i], strlen(pure[i])) == 0)
            return true;
    snprintf(full, sizeof full, "%s/%.*s.h", SOURCE_DIR, (int)strcspn(path, "."), path);
    file = fopen(full, "r");
    if (file == NULL)
        return false;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    if (strstr(text, "*/") != NULL)
        *strstr(text, "*/") = '\0';
    return strstr(text, "Pure") != NULL;
}

static void violation(const char *path, int line, const char *what)
{
    n_violations++;
    fprintf(stderr, "%s:%d: %s\n", path, line, what);
}

static void check_include(const char *path, int line, const char *header, bool quoted)
{
    char from[256], to[256], words[700];

    if (quoted) {
        folder_of(path, from);
        folder_of(header, to);
        if (to[0] == '\0')
            snprintf(words, sizeof words, "include \"%s\" by its path from the top of the tree", header);
        else if (!allowed(from, to))
            snprintf(words, sizeof words, "no arrow from %s to %s (%s)", from, to, header);
        else if (strcmp(from, to) != 0 && strstr(header, "_impl.h") != NULL)
            snprintf(words, sizeof words, "%s is for its own room only", header);
        else
            return;
        violation(path, line, words);
        return;
    }
    for (size_t i = 0; i < sizeof impure_headers / sizeof *impure_headers; i++) {
        if (strncmp(header, impure_headers[i], strlen(impure_headers[i])) != 0)
            continue;
        if (is_pure(path))
            violation(path, line, "a pure file includes a library of loops, GPUs or networks");
        if (strncmp(header, "cuda", 4) == 0 && strncmp(path, R "cuda/", strlen(R "cuda/")) != 0)
            violation(path, line, "CUDA outside shard_runtime/cuda");
    }
}

/* A row of a table or a case of a switch that turns a status into an exit code, on one line or two. */
static void check_exit_code(const char *path, int line, const char *text, const char *before)
{
    const bool row = strstr(text, "[FSDP_ERR_") != NULL || strstr(text, "case FSDP_ERR_") != NULL ||
                     strstr(before, "case FSDP_ERR_") != NULL;

    if (!row || strstr(text, "FSDP_EXIT_") == NULL || strcmp(path, R "core/exit_status.c") == 0)
        return;
    n_tables++;
    fprintf(stderr, "%s:%d: a second table of exit codes: use exit_status_of()\n", path, line);
}

static void count(const char *path, int lines)
{
    char folder[256];

    for (int i = 0; i < N_ROOMS; i++)
        if (strcmp(rooms[i].name, folder_of(path, folder)) == 0)
            sizes[i] = (struct size){ sizes[i].files + 1, sizes[i].lines + lines };
}

static bool is_too_large(struct size size)
{
    return size.files > MOST_FILES || size.lines > MOST_LINES;
}

static void check_file(const char *path)
{
    char full[4096], text[2048], before[2048] = "", header[512];
    FILE *file;
    int line = 0;

    snprintf(full, sizeof full, "%s/%s", SOURCE_DIR, path);
    file = fopen(full, "r");
    cr_assert_not_null(file, "%s", full);
    n_files++;
    n_pure += is_pure(path);
    while (fgets(text, sizeof text, file) != NULL) {
        line++;
        if (sscanf(text, " # include \"%511[^\"]\"", header) == 1)
            check_include(path, line, header, true);
        else if (sscanf(text, " # include <%511[^>]>", header) == 1)
            check_include(path, line, header, false);
        check_exit_code(path, line, text, before);
        memcpy(before, text, sizeof before);
    }
    fclose(file);
    count(path, line);
}

static void walk(const char *path)
{
    char full[4096], child[2048];
    struct dirent *entry;
    DIR *dir;

    snprintf(full, sizeof full, "%s/%s", SOURCE_DIR, path);
    dir = opendir(full);
    if (dir == NULL)
        return; /* a part that is not there yet; the count of files read says whether anything was */
    while ((entry = readdir(dir)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');

        if (entry->d_name[0] == '.')
            continue;
        snprintf(child, sizeof child, "%s/%s", path, entry->d_name);
        if (entry->d_type == DT_DIR)
            walk(child);
        else if (dot != NULL && (strcmp(dot, ".c") == 0 || strcmp(dot, ".h") == 0 || strcmp(dot, ".cu") == 0))
            check_file(child);
    }
    closedir(dir);
}

Test(house, every_include_follows_an_arrow_every_arrow_is_used_and_rooms_stay_small)
{
    walk("launcher");
    walk("agent");
    walk("shard_runtime");

    cr_assert(n_files > 10, "only %d files were read", n_files);
    cr_assert(n_pure > 100, "only %d of %d files are pure", n_pure, n_files);
    for (int i = 0; i < N_ROOMS; i++)
        for (int k = 0; k < MOST_ARROWS && rooms[i].to[k] != NULL; k++)
            if (!used[i][k]) {
                n_violations++;
                fprintf(stderr, "no file uses the arrow from %s to %s\n", rooms[i].name, rooms[i].to[k]);
            }
    for (int i = 0; i < N_ROOMS; i++)
        if (strncmp(rooms[i].name, A, strlen(A)) == 0)
            cr_assert(!is_too_large(sizes[i]), "%s has %d files of %d lines", rooms[i].name, sizes[i].files,
                      sizes[i].lines);
    cr_assert(n_violations == 0, "%d violations", n_violations);
    cr_assert(n_tables == 0, "%d rows that turn a status into an exit code elsewhere", n_tables);
}

Test(house, no_arrows_lead_in_a_circle)
{
    const struct room planted[] = {
        { "a", { "x", "b" } }, { "b", { "c" } }, { "c", { "a" } }, { "d", { "a" } }
    };

    cr_assert(!has_circle(rooms, N_ROOMS));
    cr_assert(has_circle(planted, 4));
    cr_assert(!has_circle(planted, 2));
}

Test(house, a_planted_violation_is_seen)
{
    check_exit_code("agent/x.c", 1, "    [FSDP_ERR_NOMEM] = FSDP_EXIT_BUG,\n", "");
    check_exit_code("agent/x.c", 1, "        return FSDP_EXIT_IO;\n", "    case FSDP_ERR_IO:\n");
    cr_assert(n_tables == 2, "%d of 2 planted rows seen", n_tables);
    cr_assert(is_too_large((struct size){ MOST_FILES + 1, 1 }));
    cr_assert(is_too_large((struct size){ 1, MOST_LINES + 1 }));

    check_include("shard_runtime/core/tensor.c", 1, "agent/world/world.h", true);
    check_include("shard_runtime/plan/memory.c", 1, "uv.h", false);
    check_include("agent/world/world_fsm.c", 1, "uv.h", false);
    check_include("agent/world/world.c", 1, "uv.h", false); /* it is not pure: allowed */
    check_include("agent/world/world.c", 1, "cuda_runtime.h", false);
    check_include("agent/world/world.c", 1, "shard_runtime/comm/shm.h", true);
    check_include("agent/world/world.c", 1, "frame.h", true);
    check_include("shard_runtime/engine/run.c", 1, "shard_runtime/comm/comm_impl.h", true);
    check_include("shard_runtime/comm/cpu.c", 1, "shard_runtime/comm/comm_impl.h",
                  true); /* its own: allowed */

    cr_assert(n_violations == 7, "%d of 7 seen", n_violations);
}
