#include "launcher/terminal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { MOST = 10000 };

/* Returns the number in a variable, if it is from 1 to MOST, and otherwise 0. */
static int environment_number(const char *name)
{
    const char *text = getenv(name);
    char *end = NULL;
    const long number = text == NULL ? 0 : strtol(text, &end, 10);

    return number > 0 && number <= MOST && *end == '\0' ? (int)number : 0;
}

bool terminal_has_utf8(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);

        if (value != NULL && value[0] != '\0')
            return strcasestr(value, "utf-8") != NULL || strcasestr(value, "utf8") != NULL;
    }
    return false;
}

struct table_look terminal_look(int fd)
{
    struct table_look look = { .columns = environment_number("COLUMNS"), .ascii = !terminal_has_utf8() };
    struct winsize size;

    if (look.columns == 0 && isatty(fd))
        look.columns = ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
    return look;
}

int terminal_lines(int fd)
{
    const int lines = environment_number("LINES");
    struct winsize size;

    if (lines > 0)
        return lines;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

/* Writes all bytes. If the terminal is gone, it gives up: a HUP will end the screen. */
static void put(const struct screen *screen, const char *bytes, size_t n)
{
    while (n > 0) {
        const ssize_t written = write(screen->out, bytes, n);

        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return;
        bytes += written;
        n -= (size_t)written;
    }
}

static void put_text(const struct screen *screen, const char *text)
{
    put(screen, text, strlen(text));
}

static void enter(struct screen *screen)
{
    struct termios raw;

    screen->raw = screen->in >= 0 && tcgetattr(screen->in, &screen->before) == 0;
    if (screen->raw) {
        raw = screen->before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_cc[VMIN] = 0; /* a read returns at once, even if no key was pressed */
        raw.c_cc[VTIME] = 0;
        tcsetattr(screen->in, TCSADRAIN, &raw);
    }
    put_text(screen, "\033[?1049h\033[?25l\033[H\033[2J");
    free(screen->drawn);
    screen->drawn = NULL;
}

static void leave(struct screen *screen)
{
    put_text(screen, "\033[?25h\033[?1049l");
    if (screen->raw)
        tcsetattr(screen->in, TCSADRAIN, &screen->before);
    screen->raw = false;
}

bool screen_open(struct screen *screen, int in, int out)
{
    static const int taken[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH };
    sigset_t set;

    /* keys are not read in the background: to change the terminal would stop this process there */
    *screen = (struct screen){ .in = isatty(in) && tcgetpgrp(in) == getpgrp() ? in : -1, .out = out };
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        sigaddset(&set, taken[i]);
    sigprocmask(SIG_BLOCK, &set, &screen->mask);
    screen->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (screen->signals < 0) {
        sigprocmask(SIG_SETMASK, &screen->mask, NULL);
        return false;
    }
    enter(screen);
    return true;
}

void screen_draw(struct screen *screen, const char *text)
{
    char *bytes = NULL;
    size_t size;
    FILE *out;

    if (screen->drawn != NULL && strcmp(screen->drawn, text) == 0)
        return;
    free(screen->drawn);
    screen->drawn = strdup(text);
    out = open_memstream(&bytes, &size);
    if (out == NULL)
        return;
    fputs("\033[H", out);
    for (int line = terminal_lines(screen->out); line > 0 && *text != '\0'; line--) {
        const size_t n = strcspn(text, "\n");

        /* no line end after the last line: it would scroll the screen */
        fprintf(out, "%.*s\033[K%s", (int)n, text, line > 1 ? "\r\n" : "");
        text += n + (text[n] == '\n');
    }
    fputs("\033[J", out);
    if (fclose(out) == 0)
        put(screen, bytes, size);
    free(bytes);
}

enum screen_key screen_key(struct screen *screen)
{
    static const struct {
        const char *bytes;
        enum screen_key key;
    } keys[] = { { "q", SCREEN_QUIT },
                 { "s", SCREEN_SORT },
                 { "\033[A", SCREEN_UP },
                 { "\033[B", SCREEN_DOWN },
                 { "\033OA", SCREEN_UP },
                 { "\033OB", SCREEN_DOWN },
                 { "\033[5~", SCREEN_PAGE_UP },
                 { "\033[6~", SCREEN_PAGE_DOWN },
                 { "k", SCREEN_UP },
                 { "j", SCREEN_DOWN } };
    ssize_t n = 0;

    if (screen->n_keys < (int)sizeof screen->keys)
        n = read(screen->in, screen->keys + screen->n_keys, sizeof screen->keys - (size_t)screen->n_keys);
    if (n > 0)
        screen->n_keys += (int)n;
    while (screen->n_keys > 0) {
        bool begins = false;

        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            const int length = (int)strlen(keys[i].bytes);
            const int have = length < screen->n_keys ? length : screen->n_keys;

            if (memcmp(screen->keys, keys[i].bytes, (size_t)have) != 0)
                continue;
            begins |= have < length;
            if (have < length)
                continue;
            screen->n_keys -= length;
            memmove(screen->keys, screen->keys + length, (size_t)screen->n_keys);
            return keys[i].key;
        }
        if (begins && screen->n_keys < (int)sizeof screen->keys)
            return SCREEN_NO_KEY; /* the first bytes of a key; the others will follow */
        screen->n_keys--;         /* the byte begins no key that we know */
        memmove(screen->keys, screen->keys + 1, (size_t)screen->n_keys);
    }
    return SCREEN_NO_KEY;
}

int screen_signal(struct screen *screen)
{
    struct signalfd_siginfo info;
    int ends = 0;

    while (read(screen->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGTSTP) {
            leave(screen);
            raise(SIGSTOP); /* the shell's fg sends SIGCONT, which ends the stop */
            enter(screen);
        } else if (info.ssi_signo != SIGWINCH) {
            ends = (int)info.ssi_signo;
        }
        free(screen->drawn);
        screen->drawn = NULL;
    }
    return ends;
}

void screen_close(struct screen *screen, const char *text)
{
    leave(screen);
    put_text(screen, text);
    close(screen->signals);
    free(screen->drawn);
    sigprocmask(SIG_SETMASK, &screen->mask, NULL);
}
