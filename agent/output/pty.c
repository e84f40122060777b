#include "agent/output/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

/*
 * Copy the modes of the terminal, but without output processing: the real terminal does that, and it must not
 * be done twice.
 */
static void pass_everything(int slave, int terminal)
{
    struct termios modes;

    if (tcgetattr(terminal, &modes) != 0 && tcgetattr(slave, &modes) != 0)
        return;
    modes.c_oflag &= ~(tcflag_t)OPOST;
    modes.c_lflag &= ~(tcflag_t)(ECHO | ECHONL);
    tcsetattr(slave, TCSANOW, &modes);
}

/*
 * Open the slave by ioctl, because its name works only if /dev/pts is the right one. Kernels before 4.13 can
 * open it only by name.
 */
static int open_slave(int master)
{
    char name[64];
    const int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);

    if (slave >= 0 || ptsname_r(master, name, sizeof name) != 0)
        return slave;
    return open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
}

int pty_open(struct pty *pty, int terminal)
{
    int error;

    memset(pty, 0, sizeof *pty);
    pty->slave = -1;
    pty->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (pty->master < 0)
        return errno;
    if (grantpt(pty->master) == 0 && unlockpt(pty->master) == 0)
        pty->slave = open_slave(pty->master);
    if (pty->slave < 0) {
        error = errno;
        close(pty->master);
        pty->master = -1;
        return error;
    }
    pass_everything(pty->slave, terminal);
    pty_resize(pty, terminal);
    return 0;
}

void pty_resize(struct pty *pty, int terminal)
{
    struct winsize size;

    if (ioctl(terminal, TIOCGWINSZ, &size) != 0 || memcmp(&size, &pty->size, sizeof size) == 0)
        return;
    pty->size = size;
    ioctl(pty->master, TIOCSWINSZ, &size);
}
