/*
 * What a terminal shows: its size, and whether it has UTF-8. And a full screen that is drawn again and again,
 * with the keys that are pressed meanwhile.
 *
 * The screen is the terminal's second one (xterm's 1049), so that what stood in the terminal comes back at
 * the end. The terminal is restored when the screen is closed. The signals that would end or stop this
 * process are taken by screen_signal(), which restores the terminal before this process stops. One screen may
 * be open at a time: signals are the process's.
 */
#ifndef LAUNCHER_TERMINAL_H
#define LAUNCHER_TERMINAL_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <termios.h>

#include "launcher/table.h"

/**
 * How a table is shown on `fd`. The columns are COLUMNS, if that is a number above 0, else those of the
 * terminal. What is no terminal has no bound.
 */
struct table_look terminal_look(int fd);

/** Returns the lines of the terminal `fd`: LINES, or what it says; 24 if it says nothing. */
int terminal_lines(int fd);

/** Does the locale of the environment say UTF-8 (LC_ALL, LC_CTYPE, LANG: the first that is set)? */
bool terminal_has_utf8(void);

enum screen_key {
    SCREEN_NO_KEY,
    SCREEN_QUIT,
    SCREEN_UP,
    SCREEN_DOWN,
    SCREEN_PAGE_UP,
    SCREEN_PAGE_DOWN,
    SCREEN_SORT
};

struct screen {
    int in, out;   /* the terminal; in is -1 if it gives no keys */
    int signals;   /* a signalfd */
    sigset_t mask; /* of the process before */
    struct termios before;
    bool raw;      /* `before` is to be restored */
    char *drawn;   /* what stands there now; NULL: nothing */
    char keys[16]; /* bytes of keys that were not read as a key yet */
    int n_keys;
};

/**
 * Take over the terminal `out`, and the keys of `in` if that is a terminal whose foreground is this process's
 * group. The signals HUP, INT, QUIT, TERM, TSTP and WINCH are taken from here on. Returns false with errno if
 * the system refuses that.
 */
bool screen_open(struct screen *screen, int in, int out);

/** Show `text`, cut to the lines of the terminal. What stands there already is not written again. */
void screen_draw(struct screen *screen, const char *text);

/** Take one key, once `in` is readable, and as long as it returns one. */
enum screen_key screen_key(struct screen *screen);

/**
 * Take the signals that came, once `signals` is readable. Stops with the process. Returns the signal that
 * ends this process, or 0: it goes on, and is drawn again.
 */
int screen_signal(struct screen *screen);

/** Restore the terminal, and leave `text` there. */
void screen_close(struct screen *screen, const char *text);

#endif
