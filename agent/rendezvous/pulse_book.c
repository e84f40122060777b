#include "agent/rendezvous/pulse_book.h"

#include <string.h>

#include "agent/os/deadlines.h"
#include "agent/wire/little_endian.h"

void pulse_book_init(struct pulse_book *book, int64_t lease_ms, int64_t now_ns)
{
    *book = (struct pulse_book){ .lease_ms = lease_ms, .turned_ns = now_ns, .away_ns = INT64_MAX };
}

void pulse_book_free(struct pulse_book *book)
{
    (void)table_empty(&book->members);
}

/* The name of a session is random. */
static uint64_t hash_of(const unsigned char session[SESSION_IDENTITY_BYTES])
{
    return get_le(session, 8);
}

void pulse_book_add(struct pulse_book *book, struct pulse_member *member,
                    const unsigned char session[SESSION_IDENTITY_BYTES])
{
    *member = (struct pulse_member){ .is_in = true };
    memcpy(member->session, session, sizeof member->session);
    if (table_add(&book->members, &member->at, hash_of(session)))
        return;
    member->is_in = false;
    book->misses = true;
}

/* Until the loop turns, an agent that was removed counts as one that is away, but may still live. */
void pulse_book_remove(struct pulse_book *book, struct pulse_member *member)
{
    if (!member->is_in)
        return;
    table_remove(&book->members, &member->at);
    member->is_in = false;
    if (member->told.heard_ns < book->away_ns)
        book->away_ns = member->told.heard_ns;
}

void pulse_book_heard(struct pulse_member *member, int64_t heard_ns)
{
    if (heard_ns > member->told.heard_ns)
        member->told.heard_ns = heard_ns;
}

void pulse_book_turned(struct pulse_book *book, int64_t away_ns, int64_t now_ns)
{
    book->away_ns = away_ns;
    book->turned_ns = now_ns;
}

bool pulse_book_turns(const struct pulse_book *book, int64_t now_ns)
{
    return now_ns - book->turned_ns <= PULSE_LEASES * book->lease_ms * 1000000;
}

static struct pulse_member *find(const struct pulse_book *book,
                                 const unsigned char session[SESSION_IDENTITY_BYTES])
{
    struct table_entry *at = table_first(&book->members, hash_of(session));

    for (; at != NULL; at = table_next(at)) {
        struct pulse_member *member = TABLE_OWNER(at, struct pulse_member, at);

        if (memcmp(member->session, session, sizeof member->session) == 0)
            return member;
    }
    return NULL;
}

bool pulse_book_take(struct pulse_book *book, const struct pulse *question, bool holds, int64_t now_ns,
                     struct pulse *answer)
{
    struct pulse_member *member = find(book, question->session);

    if (member == NULL || question->sent_ns <= member->asked_ns || !pulse_book_turns(book, now_ns))
        return false;
    member->asked_ns = question->sent_ns;
    member->told.came_ns = now_ns;
    pulse_book_heard(member, question->answered_ns);
    if (!holds)
        return false;
    member->told.answered_ns = now_ns;
    *answer = *question;
    answer->is_answer = true;
    answer->answered_ns = now_ns;
    answer->lease_ms = LEASE_RANKS_MS(book->lease_ms);
    return true;
}

int64_t pulse_book_contact_until_ns(const struct pulse_book *book, int64_t now_ns)
{
    int64_t first_ns = book->away_ns < now_ns ? book->away_ns : now_ns;

    if (book->misses || !pulse_book_turns(book, now_ns))
        return 0;
    for (size_t i = 0; i < book->members.n_slots; i++)
        for (const struct table_entry *at = book->members.slots[i]; at != NULL; at = at->next) {
            const struct pulse_member *member = TABLE_OWNER(at, const struct pulse_member, at);

            if (member->told.heard_ns < first_ns)
                first_ns = member->told.heard_ns;
        }
    return first_ns <= 0 ? 0 : first_ns + book->lease_ms * 1000000;
}
