// SPDX-License-Identifier: GPL-2.0
/* ndm_core.h as a shared object: each inline function under a name that ctypes can
 * call. The arithmetic is the module's, character for character.
 */
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef unsigned long long u64;
typedef int16_t s16;
typedef int32_t s32;
typedef long long s64;

#include "ndm_core.h"

u32 h_v1_size(void) { return sizeof(struct ndm_v1); }
u32 h_v2_size(void) { return sizeof(struct ndm_v2); }

s64 h_sdiv(s64 n, u32 d) { return ndm_sdiv(n, d); }
s64 h_milli(s64 n) { return ndm_milli(n); }
u32 h_bit_length(u32 x) { return ndm_bit_length(x); }
void h_push(struct ndm_window *win, u32 sample) { ndm_window_push(win, sample); }

u32 h_window_at(const struct ndm_window *win, u32 age)
{
	u32 found = 0;

	for (u32 i = 0; i < NDM_SAMPLES; i++)
		if (i == age)
			found = ndm_window_at(win, i);
	return found;
}

s32 h_v1_act(s32 x) { return ndm_v1_act(x); }
s32 h_v1_squash(s32 x) { return ndm_v1_squash(x); }
u32 h_v1_entropy(const struct ndm_v1 *st) { return ndm_v1_entropy(st); }
u32 h_v1_network(struct ndm_v1 *st, u32 rtt_us) { return ndm_v1_network(st, rtt_us); }
void h_v1_init(struct ndm_v1 *st, u32 cwnd, u32 ssthresh) { ndm_v1_init(st, cwnd, ssthresh); }
u32 h_v1_ssthresh(struct ndm_v1 *st, u32 cwnd) { return ndm_v1_ssthresh(st, cwnd); }
u32 h_v1_undo_cwnd(struct ndm_v1 *st, u32 cwnd) { return ndm_v1_undo_cwnd(st, cwnd); }
void h_v1_loss_event(struct ndm_v1 *st) { ndm_v1_loss_event(st); }
void h_v1_restart(struct ndm_v1 *st) { ndm_v1_restart(st); }
void h_v1_timeout(struct ndm_v1 *st) { ndm_v1_timeout(st); }

u32 h_v1_ack(struct ndm_v1 *st, u32 cwnd, u32 srtt_us, u32 acked, u32 *how)
{
	struct ndm_v1_growth growth = ndm_v1_ack(st, cwnd, srtt_us, acked);

	*how = growth.how;
	return growth.segments;
}

s32 h_v2_act(s32 x) { return ndm_v2_act(x); }
s32 h_v2_weight(u32 i, u32 j) { return ndm_v2_weight[i][j]; }
s32 h_v2_tie(u32 i) { return ndm_v2_tie[i]; }
u32 h_v2_tie_sum(void) { return NDM_V2_TIE_SUM; }
u32 h_v2_clog2c(u32 c) { return ndm_v2_clog2c[c]; }
u32 h_v2_step_bin(u32 newer, u32 older, u32 unit) { return ndm_v2_step_bin(newer, older, unit); }
u32 h_v2_entropy(const struct ndm_window *win, u32 base) { return ndm_v2_entropy(win, base); }
s32 h_v2_network(struct ndm_v2 *st, const s32 *x) { return ndm_v2_network(st, x); }
void h_v2_init(struct ndm_v2 *st) { ndm_v2_init(st); }
void h_v2_sample(struct ndm_v2 *st, s32 rtt_us) { ndm_v2_sample(st, rtt_us); }
u32 h_v2_gain(const struct ndm_v2 *st, u32 slow_start) { return ndm_v2_gain(st, slow_start != 0); }
u32 h_v2_credit(struct ndm_v2 *st, u32 acked, u32 slow_start) { return ndm_v2_credit(st, acked, slow_start != 0); }
u32 h_v2_ssthresh(struct ndm_v2 *st, u32 cwnd) { return ndm_v2_ssthresh(st, cwnd); }
void h_v2_restart(struct ndm_v2 *st) { ndm_v2_restart(st); }
void h_v2_timeout(struct ndm_v2 *st) { ndm_v2_timeout(st); }

void h_v2_ack(struct ndm_v2 *st, u32 acked, u32 cwnd, u32 prior_cwnd, u32 min_rtt_us, u32 slow_start)
{
	const struct ndm_v2_path path = { cwnd, prior_cwnd, min_rtt_us, slow_start != 0 };

	ndm_v2_ack(st, acked, &path);
}
