/*
 * A worker for the tests of the launcher: its arguments are done one after another, then it exits with 0.
 *   exit=N        exit with N                         signal=N     kill itself by signal N
 *   say=TEXT      a line on stdout                    err=TEXT     a line on stderr
 *   env=NAME      print NAME=value (or NAME unset)    env          print the whole environment
 *   fds           print the open descriptors          ids          pid, parent, group, session
 *   limits        print umask, soft and hard NOFILE, CORE          mask  blocked and ignored signals
 *   touch=FILE    append its rank and pid to FILE     wait=FILE    until FILE exists
 *   lines=N:FILE  until FILE has N lines
 *   ignore=N      ignore signal N                     catch=N:FILE on signal N append its rank to FILE
 *   onterm=N      on TERM exit with N                 sleep=S      for so long, in seconds
 *   hang          for ever                            stop         SIGSTOP to itself
 *   spin          for ever, never asleep              vfork        asleep in the kernel (state D), for ever
 *   child         leave a child running               daemon       leave a grandchild in a session of its own
 *   orphans=N     N daemons, each with a child        fork         a child that forks children for ever, one
 *                 a ms
 *   read          copy a line of stdin to stdout
 *   flood=BYTES   so many bytes of lines on stdout    now=FILE     append CLOCK_MONOTONIC in ns to FILE
 *   rank=R        the next action is done by rank R only           gen=G  in restart G only
 *   before=G      in restarts before G only
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static int exit_on_term;
static const char *caught_file;

static int number_of(const char *name)
{
    const char *value = getenv(name);

    return value == NULL ? 0 : atoi(value);
}

static void append(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);

    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        exit(99);
    close(fd);
}

static void pause_ms(long ms)
{
    struct timespec left = { ms / 1000, ms % 1000 * 1000000 };

    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}

static int lines_of(const char *path)
{
    FILE *file = fopen(path, "r");
    int c, n = 0;

    while (file != NULL && (c = getc(file)) != EOF)
        n += c == '\n';
    if (file != NULL)
        fclose(file);
    return n;
}

static void on_term(int signal)
{
    (void)signal;
    _exit(exit_on_term);
}

static void on_caught(int signal)
{
    char text[32];
    int fd = open(caught_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    int n = snprintf(text, sizeof text, "%d %d\n", number_of("RANK"), signal);

    if (fd >= 0 && write(fd, text, (size_t)n) < 0)
        _exit(98);
    close(fd);
}

static void show_fds(void)
{
    DIR *directory = opendir("/proc/self/fd");
    struct dirent *entry;

    while ((entry = readdir(directory)) != NULL)
        if (isdigit((unsigned char)entry->d_name[0]) && atoi(entry->d_name) != dirfd(directory))
            printf("fd=%s\n", entry->d_name);
    closedir(directory);
}

static void show_limits(void)
{
    struct rlimit files, core;
    mode_t mask = umask(0);

    umask(mask);
    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_CORE, &core);
    printf("umask=%03o nofile=%llu:%llu core=%llu:%llu\n", (unsigned)mask, (unsigned long long)files.rlim_cur,
           (unsigned long long)files.rlim_max, (unsigned long long)core.rlim_cur,
           (unsigned long long)core.rlim_max);
}

static void show_mask(void)
{
    struct sigaction action;
    sigset_t blocked;

    sigprocmask(SIG_SETMASK, NULL, &blocked);
    printf("blocked=");
    for (int i = 1; i < 32; i++)
        if (sigismember(&blocked, i) == 1)
            printf("%d,", i);
    printf(" ignored=");
    for (int i = 1; i < 32; i++)
        if (sigaction(i, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            printf("%d,", i);
    printf("\n");
}

static void become_daemon(bool with_child)
{
    pid_t pid = fork();

    if (pid == 0) {
        setsid();
        if (fork() != 0)
            _exit(0);
        setsid();
        signal(SIGTERM, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        if (with_child)
            (void)!fork();
        for (;;)
            pause();
    }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

static void fork_for_ever(void)
{
    if (fork() != 0)
        return;
    signal(SIGCHLD, SIG_IGN);
    for (;;) {
        if (fork() == 0) {
            pause_ms(300);
            _exit(0);
        }
        pause_ms(1);
    }
}

static void flood(long long bytes)
{
    static char line[100];

    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    for (long long n = 0; n < bytes; n += (long long)sizeof line)
        fwrite(line, 1, sizeof line, stdout);
    fflush(stdout);
}

static void do_simple(const char *action)
{
    char text[256];

    if (strcmp(action, "env") == 0) {
        for (char **at = environ; *at != NULL; at++)
            puts(*at);
    } else if (strcmp(action, "fds") == 0) {
        show_fds();
    } else if (strcmp(action, "ids") == 0) {
        printf("pid=%d ppid=%d pgid=%d sid=%d\n", getpid(), getppid(), getpgid(0), getsid(0));
    } else if (strcmp(action, "limits") == 0) {
        show_limits();
    } else if (strcmp(action, "mask") == 0) {
        show_mask();
    } else if (strcmp(action, "hang") == 0) {
        for (;;)
            pause();
    } else if (strcmp(action, "spin") == 0) {
        for (volatile unsigned n = 0;;)
            n++;
    } else if (strcmp(action, "vfork") == 0) {
        if (vfork() == 0) /* its parent sleeps until it is gone */
            for (;;)
                pause();
    } else if (strcmp(action, "stop") == 0) {
        raise(SIGSTOP);
    } else if (strcmp(action, "child") == 0) {
        if (fork() == 0)
            for (;;)
                pause();
    } else if (strcmp(action, "daemon") == 0) {
        become_daemon(false);
    } else if (strcmp(action, "fork") == 0) {
        fork_for_ever();
    } else if (strcmp(action, "read") == 0) {
        printf("read: %s", fgets(text, sizeof text, stdin) == NULL ? "nothing\n" : text);
    } else {
        fprintf(stderr, "toy: what is %s?\n", action);
        exit(97);
    }
    fflush(stdout);
}

static void do_action(const char *name, size_t length, const char *value)
{
    char text[128];
    struct timespec now;

#define IS(word) (length == strlen(word) && strncmp(name, word, length) == 0)
    if (IS("exit")) {
        exit(atoi(value));
    } else if (IS("signal")) {
        signal(atoi(value), SIG_DFL);
        raise(atoi(value));
    } else if (IS("say")) {
        puts(value);
        fflush(stdout);
    } else if (IS("err")) {
        fprintf(stderr, "%s\n", value);
    } else if (IS("env")) {
        const char *found = getenv(value);

        printf("%s%s%s\n", value, found == NULL ? " unset" : "=", found == NULL ? "" : found);
        fflush(stdout);
    } else if (IS("touch")) {
        snprintf(text, sizeof text, "%d %d\n", number_of("RANK"), getpid());
        append(value, text);
    } else if (IS("wait")) {
        while (access(value, F_OK) != 0)
            pause_ms(5);
    } else if (IS("lines")) {
        while (lines_of(strchr(value, ':') + 1) < atoi(value))
            pause_ms(5);
    } else if (IS("ignore")) {
        signal(atoi(value), SIG_IGN);
    } else if (IS("catch")) {
        caught_file = strchr(value, ':') + 1;
        signal(atoi(value), on_caught);
    } else if (IS("onterm")) {
        exit_on_term = atoi(value);
        signal(SIGTERM, on_term);
    } else if (IS("sleep")) {
        pause_ms((long)(atof(value) * 1000));
    } else if (IS("orphans")) {
        for (int i = 0; i < atoi(value); i++)
            become_daemon(true);
    } else if (IS("flood")) {
        flood(atoll(value));
    } else if (IS("now")) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        snprintf(text, sizeof text, "%lld\n", (long long)now.tv_sec * 1000000000 + now.tv_nsec);
        append(value, text);
    } else {
        fprintf(stderr, "toy: what is %s?\n", name);
        exit(97);
    }
#undef IS
}

/* A condition on the action after it: true when `action` is one; *met is cleared when it does not hold. */
static bool is_condition(const char *action, bool *met)
{
    const int rank = number_of("RANK"), restart = number_of("TORCHELASTIC_RESTART_COUNT");

    if (strncmp(action, "rank=", 5) == 0)
        *met = *met && atoi(action + 5) == rank;
    else if (strncmp(action, "gen=", 4) == 0)
        *met = *met && atoi(action + 4) == restart;
    else if (strncmp(action, "before=", 7) == 0)
        *met = *met && restart < atoi(action + 7);
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    bool met = true;

    for (int i = 1; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');

        if (is_condition(argv[i], &met))
            continue;
        if (met && equals == NULL)
            do_simple(argv[i]);
        else if (met)
            do_action(argv[i], (size_t)(equals - argv[i]), equals + 1);
        met = true;
    }
    return 0;
}
