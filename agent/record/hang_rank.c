#include "agent/record/hang_rank.h"

#include <inttypes.h>

#include "agent/record/errors_impl.h"

const char *hang_kind_name(enum hang_kind kind)
{
    static const char *const names[] = {
        [HANG_NONE] = "none", [HANG_STUCK] = "stuck", [HANG_LINK] = "link", [HANG_MISMATCH] = "mismatch"
    };

    return (size_t)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

int hang_rank_phase(const struct hang_rank *rank)
{
    if (rank->group >= 0 && !rank->queued)
        return FSDP_PHASE_COLLECTIVE;
    if (rank->program)
        return rank->pass;
    return rank->waits ? FSDP_PHASE_WAIT : rank->pass;
}

/* Adds "reduce_scatter #912 of world (layers.6)". */
static void add_collective(struct cut_text *out, const struct hang_rank *row)
{
    cut_add(out, "%s #%" PRIu64 " of %s", row->kind[0] != '\0' ? row->kind : "collective", row->sequence,
            row->groups[row->group].name);
    if (row->layer[0] != '\0')
        cut_add(out, " (%s)", row->layer);
}

/* Appends where the rank stands, if that is known. */
static void add_place(struct cut_text *out, const struct hang_rank *row)
{
    if (row->group >= 0 && !row->queued) {
        cut_add(out, " in ");
        add_collective(out, row);
    } else if (row->layer[0] != '\0') {
        cut_add(out, " in %s", row->layer);
    }
}

const char *hang_words(const struct hang_verdict *verdict, const struct hang_rank *rows, char *out)
{
    const struct hang_rank *row = &rows[verdict->ranks[0]];
    const struct hang_rank *other = verdict->n_ranks > 1 ? &rows[verdict->ranks[1]] : NULL;
    struct cut_text words = { out, HANG_WORDS_BYTES, 0 };

    out[0] = '\0';
    cut_add(&words, "no progress for %" PRId64 " s", row->bound_ns / 1000000000);
    add_place(&words, row);
    if (verdict->kind == HANG_LINK && other != NULL) {
        cut_add(&words, "; no data comes between ranks %d and %d", row->rank, other->rank);
    } else if (verdict->kind == HANG_MISMATCH && other != NULL) {
        cut_add(&words, ", while rank %d is", other->rank);
        add_place(&words, other);
    } else if (verdict->n_waiters > 0) {
        cut_add(&words, "; %d rank%s for it in ", verdict->n_waiters,
                verdict->n_waiters == 1 ? " waits" : "s wait");
        add_collective(&words, &rows[verdict->waiter]);
    }
    return out;
}
