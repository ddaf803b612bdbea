// SPDX-License-Identifier: GPL-2.0
/* fuzz SEED STEPS: extreme values through every entry point of ndm_core.h, for
 * builds with address and undefined-behaviour sanitizers. Prints the steps done;
 * fails on a broken bound.
 */
#include "harness.c"

#include <stdio.h>
#include <stdlib.h>

static u64 seed;

static u32 any(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (u32)(seed >> 16);
}

static u32 extreme(void)
{
	static const u32 edges[] = { 0, 1, 2, 31, 32, 999, 1000, 65535, 65536, 1U << 20, 1U << 21,
				     0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff };
	u32 kind = any() % 4;

	if (kind == 0)
		return edges[any() % (sizeof(edges) / sizeof(edges[0]))];
	return kind == 1 ? any() : any() % 300000;
}

static void require(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "broken bound: %s\n", what);
	exit(1);
}

static void within(const s16 *values, s32 limit, const char *what)
{
	for (int i = 0; i < NDM_UNITS; i++)
		require(values[i] >= -limit && values[i] <= limit, what);
}

static void step_v1(struct ndm_v1 *st)
{
	u32 what = any() % 64, acked = extreme(), how;

	if (what == 0)
		require(h_v1_ssthresh(st, extreme()) >= 2, "v1 ssthresh");
	else if (what == 1)
		h_v1_undo_cwnd(st, extreme());
	else if (what == 2)
		h_v1_loss_event(st);
	else if (what == 3)
		h_v1_restart(st);
	else if (what == 4)
		h_v1_timeout(st);
	else if (what == 5 && any() % 8 == 0)
		h_v1_init(st, extreme(), extreme());
	else if (acked)
		h_v1_ack(st, extreme(), extreme(), acked, &how);
	require(st->entropy <= 1000, "v1 entropy");
	require(st->plast >= 100 && st->plast <= 1000, "v1 plasticity");
	require(st->delta <= 1000 && st->n <= 16, "v1 output, samples");
	within(st->hid, 6000, "v1 hidden");
}

static void step_v2(struct ndm_v2 *st)
{
	u32 what = any() % 64, acked = extreme();

	if (what == 0)
		require(h_v2_ssthresh(st, extreme()) >= 2, "v2 ssthresh");
	else if (what == 1)
		h_v2_timeout(st);
	else if (what == 2)
		h_v2_restart(st);
	else if (what == 3 && any() % 8 == 0)
		h_v2_init(st);
	for (u32 i = any() % 4; i; i--)
		h_v2_sample(st, (s32)extreme());
	h_v2_ack(st, acked, extreme(), extreme(), extreme(), any() & 1);
	require(h_v2_credit(st, acked, any() & 1) <= 65535U * 3 / 2 + 1, "v2 growth");
	require(st->entropy <= 1000, "v2 entropy");
	require(st->plast >= 100 && st->plast <= 1000, "v2 plasticity");
	require(st->y >= -1000 && st->y <= 1000 && st->n <= 16, "v2 output, samples");
	require(st->credit < 1000, "v2 credit");
	within(st->hid, 1000, "v2 hidden");
	within(st->rd, 1000, "v2 readout");
}

int main(int argc, char **argv)
{
	long steps = argc > 2 ? atol(argv[2]) : 100000;
	struct ndm_v1 *v1 = malloc(sizeof(*v1));	/* on the heap: ASan sees both ends */
	struct ndm_v2 *v2 = malloc(sizeof(*v2));

	seed = argc > 1 ? strtoull(argv[1], NULL, 10) * 2 + 1 : 1;
	h_v1_init(v1, 10, 0x7fffffff);
	h_v2_init(v2);
	for (long i = 0; i < steps; i++) {
		step_v1(v1);
		step_v2(v2);
		h_sdiv((s64)((u64)any() << 32 | any()), any() | 1);
		h_v1_act((s32)extreme());
		h_v1_squash((s32)extreme());
		h_v2_act((s32)extreme());
	}
	free(v1);
	free(v2);
	printf("%ld\n", steps);
	return 0;
}
