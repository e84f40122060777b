#include "agent/members/budget.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

static const int64_t ns_per_ms = 1000000, ns_per_s = 1000000000;

void budget_init(struct budget *budget, const struct agent_config *config)
{
    assert(config->restart_window_ms == 0 || config->max_restarts <= AGENT_RESTARTS_IN_WINDOW);
    *budget =
        (struct budget){ .most = config->max_restarts, .window_ns = config->restart_window_ms * ns_per_ms };
}

void budget_take(struct budget *budget, int64_t now_ns)
{
    if (budget->window_ns != 0 && budget->most > 0)
        budget->stamps[budget->n_restarts % budget->most] = now_ns;
    budget->n_restarts++;
}

void budget_continue(struct budget *budget, int n_restarts, int n_left, const uint32_t *ages_s, int n_ages,
                     int64_t now_ns)
{
    const int most_used = n_left < budget->most ? budget->most - n_left : 0;
    const int used = most_used < n_restarts ? most_used : n_restarts;

    for (int i = 0; i < AGENT_RESTARTS_IN_WINDOW; i++)
        budget->stamps[i] = INT64_MIN / 2; /* a time so long ago that it counts in no window */
    budget->n_restarts = n_restarts - used;
    for (int i = used - 1; i >= 0; i--)
        budget_take(budget, now_ns - ages_s[i < n_ages ? i : n_ages - 1] * ns_per_s);
}

static int n_kept(const struct budget *budget)
{
    return budget->n_restarts < budget->most ? budget->n_restarts : budget->most;
}

void budget_ages(const struct budget *budget, uint32_t *ages_s, int n_ages, int64_t now_ns)
{
    const int n = budget->window_ns == 0 ? 0 : n_kept(budget);

    for (int i = 0; i < n_ages; i++) {
        const int64_t at_ns = i < n ? budget->stamps[(budget->n_restarts - 1 - i) % budget->most] : now_ns;
        const int64_t age_s = (now_ns - at_ns) / ns_per_s;

        ages_s[i] = age_s < UINT32_MAX ? (uint32_t)age_s : UINT32_MAX;
    }
}

int budget_used(const struct budget *budget, int64_t now_ns)
{
    const int kept = n_kept(budget);
    int n = 0;

    if (budget->window_ns == 0)
        return budget->n_restarts;
    for (int i = 0; i < kept; i++)
        n += now_ns - budget->stamps[i] < budget->window_ns;
    return n;
}

bool budget_spent(const struct budget *budget, int64_t now_ns)
{
    return budget_used(budget, now_ns) >= budget->most;
}

const char *budget_words(const struct budget *budget, int64_t now_ns, char out[BUDGET_WORDS_BYTES])
{
    const int used = budget_used(budget, now_ns);

    if (budget->window_ns == 0)
        snprintf(out, BUDGET_WORDS_BYTES, "%d of %d", used, budget->most);
    else
        snprintf(out, BUDGET_WORDS_BYTES, "%d of %d within %" PRId64 " s", used, budget->most,
                 budget->window_ns / ns_per_s);
    return out;
}
