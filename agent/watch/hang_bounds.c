#include "agent/watch/hang_bounds.h"

#include <stddef.h>

enum { STEPS_TO_LEARN = 20, SAVES_TO_LEARN = 3, STEPS_IN_WINDOW = 500, SAVES_IN_WINDOW = 8, TIMES = 5 };
static const int64_t SHORT_NS = 10000000000, LONG_NS = 30000000000;

/* When a class is learned. */
enum learned_by { BY_NOTHING, BY_GENERATION, BY_STEPS, BY_SAVES };

static const struct {
    const char *name;
    enum learned_by by;
    bool is_long; /* disks or drivers are waited for */
    bool has_files;
} classes[HANG_CLASSES] = {
    [HANG_START] = { "start", BY_GENERATION, true, true },
    [HANG_OPEN] = { "open", BY_GENERATION, true, false },
    [HANG_LOAD] = { "load", BY_GENERATION, true, true },
    [HANG_FIRST] = { "first", BY_GENERATION, true, true },
    [HANG_DATA] = { "data", BY_STEPS, false, true },
    [HANG_FORWARD] = { "forward", BY_STEPS, false, false },
    [HANG_BACKWARD] = { "backward", BY_STEPS, false, false },
    [HANG_OPTIMIZER] = { "optimizer", BY_STEPS, false, false },
    [HANG_COLLECTIVE] = { "collective", BY_STEPS, false, false },
    [HANG_SAVE] = { "save", BY_SAVES, true, true },
    [HANG_OTHER] = { NULL, BY_NOTHING, true, false },
};

const char *hang_class_name(enum hang_class class)
{
    return classes[class].name;
}

static enum hang_class class_in_step(const struct hang_sign *sign, enum hang_class class)
{
    if (sign->first_step)
        return HANG_FIRST;
    return sign->phase == FSDP_PHASE_COLLECTIVE ? HANG_COLLECTIVE : class;
}

enum hang_class hang_class_of(const struct hang_sign *sign)
{
    if (!sign->begun)
        return HANG_START;
    if (sign->phase == FSDP_PHASE_WAIT)
        return sign->pass == FSDP_PHASE_OPEN ? HANG_OPEN : HANG_OTHER;
    switch (sign->phase == FSDP_PHASE_COLLECTIVE ? sign->pass : sign->phase) {
    case FSDP_PHASE_OPEN:
        return HANG_OPEN;
    case FSDP_PHASE_LOAD:
        return HANG_LOAD;
    case FSDP_PHASE_DATA:
        return class_in_step(sign, HANG_DATA);
    case FSDP_PHASE_FORWARD:
        return class_in_step(sign, HANG_FORWARD);
    case FSDP_PHASE_BACKWARD:
        return class_in_step(sign, HANG_BACKWARD);
    case FSDP_PHASE_OPTIMIZER:
        return class_in_step(sign, HANG_OPTIMIZER);
    case FSDP_PHASE_SAVE:
        return HANG_SAVE;
    default:
        return HANG_OTHER;
    }
}

/* Ends the current window of all classes that are learned in this way, and begins the next one. */
static void turn(struct hang_bounds *bounds, enum learned_by by)
{
    for (int i = 0; i < HANG_CLASSES; i++) {
        if (classes[i].by != by)
            continue;
        bounds->seen[i].slowest_ns[1] = bounds->seen[i].slowest_ns[0];
        bounds->seen[i].slowest_ns[0] = 0;
    }
}

void hang_bounds_begin(struct hang_bounds *bounds, int64_t limit_ns, int world_size, bool loads)
{
    bounds->limit_ns = limit_ns;
    if (bounds->stepped) {
        turn(bounds, BY_GENERATION);
        bounds->seen[HANG_START].learned = bounds->seen[HANG_OPEN].learned = true;
        bounds->seen[HANG_FIRST].learned = true;
        bounds->seen[HANG_LOAD].learned |= bounds->loads;
    }
    if (world_size != bounds->world_size) {
        turn(bounds, BY_STEPS);
        turn(bounds, BY_STEPS);
        bounds->n_steps = 0;
        for (int i = 0; i < HANG_CLASSES; i++)
            bounds->seen[i].learned = false;
    }
    bounds->world_size = world_size;
    bounds->loads = loads;
    bounds->stepped = false;
}

void hang_bounds_steps(struct hang_bounds *bounds, uint64_t n)
{
    if (n == 0)
        return;
    bounds->stepped = true;
    if ((bounds->n_steps + n) / STEPS_IN_WINDOW != bounds->n_steps / STEPS_IN_WINDOW)
        turn(bounds, BY_STEPS);
    bounds->n_steps += n;
}

void hang_bounds_saved(struct hang_bounds *bounds)
{
    if (++bounds->n_saves % SAVES_IN_WINDOW == 0)
        turn(bounds, BY_SAVES);
}

void hang_bounds_saw(struct hang_bounds *bounds, enum hang_class class, int64_t silent_ns)
{
    if (silent_ns > bounds->seen[class].slowest_ns[0])
        bounds->seen[class].slowest_ns[0] = silent_ns;
}

bool hang_bounds_learned(const struct hang_bounds *bounds, enum hang_class class)
{
    switch (classes[class].by) {
    case BY_STEPS:
        return bounds->n_steps >= STEPS_TO_LEARN;
    case BY_SAVES:
        return bounds->n_saves >= SAVES_TO_LEARN;
    case BY_GENERATION:
        return bounds->seen[class].learned;
    case BY_NOTHING:
        break;
    }
    return false;
}

int64_t hang_bounds_of(const struct hang_bounds *bounds, enum hang_class class)
{
    const int64_t *slowest = bounds->seen[class].slowest_ns;
    int64_t bound = slowest[0] > slowest[1] ? slowest[0] : slowest[1];
    const int64_t floor = classes[class].is_long ? LONG_NS : SHORT_NS;

    if (bounds->limit_ns <= 0)
        return 0;
    if (!hang_bounds_learned(bounds, class) || bound >= bounds->limit_ns / TIMES)
        return bounds->limit_ns;
    bound = bound * TIMES > floor ? bound * TIMES : floor;
    return bound < bounds->limit_ns ? bound : bounds->limit_ns;
}

void hang_excuse(struct hang_patience *patience, int64_t now_ns, const struct process_toll *toll)
{
    const int64_t passed_ns = now_ns - patience->asked_ns;
    const uint64_t delay_ns = process_toll_delay(&patience->toll, toll);
    const struct process_held *held = process_toll_held(&patience->toll, toll);

    if (patience->asked_ns != 0 && passed_ns > 0) {
        if (toll->blocked)
            patience->blocked_ns += passed_ns;
        else
            patience->starved_ns += delay_ns < (uint64_t)passed_ns ? (int64_t)delay_ns : passed_ns;
        patience->still_ns += passed_ns;
        if (toll->used_ns == 0 || toll->used_ns != patience->toll.used_ns)
            patience->still_ns = 0;
    }
    patience->held = held != NULL ? *held : (struct process_held){ 0 };
    patience->asked_ns = now_ns;
    patience->toll = *toll;
}

int64_t hang_bounds_excuse(const struct hang_bounds *bounds, enum hang_class class)
{
    const int64_t bound_ns = hang_bounds_of(bounds, class), left_ns = bounds->limit_ns - bound_ns;

    return classes[class].has_files && left_ns / HANG_EXCUSED_BOUNDS > bound_ns
               ? left_ns
               : HANG_EXCUSED_BOUNDS * bound_ns;
}

int64_t hang_silence(int64_t since_ns, int64_t now_ns, int64_t bound_ns, int64_t blocked_ns,
                     const struct hang_patience *patience)
{
    int64_t excused_ns = patience->starved_ns;

    if (excused_ns / HANG_EXCUSED_BOUNDS > bound_ns)
        excused_ns = HANG_EXCUSED_BOUNDS * bound_ns;
    excused_ns += patience->blocked_ns;
    if (excused_ns > blocked_ns)
        excused_ns = blocked_ns;
    return excused_ns < now_ns - since_ns ? now_ns - since_ns - excused_ns : 0;
}
