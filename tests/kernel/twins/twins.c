// SPDX-License-Identifier: GPL-2.0
/* twins SEED STEPS: drives the module's and the BPF program's callbacks with the same
 * events on two equal connections, and fails at the first difference in anything that
 * either may write: window, counter, ssthresh, private state, return value.
 */
#include <stdlib.h>
#include <string.h>

#include "net/tcp.h"

extern struct tcp_congestion_ops bpf_ndm, bpf_ndm2;
int ndm_module_init(void);
void ndm_module_exit(void);

static struct tcp_congestion_ops *registered[2];
static int registrations;

int tcp_register_congestion_control(struct tcp_congestion_ops *ops)
{
	registered[registrations++] = ops;
	return 0;
}

void tcp_unregister_congestion_control(struct tcp_congestion_ops *ops)
{
	registered[--registrations] = NULL;
	(void)ops;
}

/* ---- the kernel's helpers ---- */

/* Grow by what was acked, up to ssthresh; return what is left */
u32 tcp_slow_start(struct tcp_sock *tp, u32 acked)
{
	u64 wanted = (u64)tp->snd_cwnd + acked;
	u32 cwnd = wanted < tp->snd_ssthresh ? (u32)wanted : tp->snd_ssthresh;

	acked -= cwnd - tp->snd_cwnd;
	tp->snd_cwnd = cwnd;
	return acked;
}

/* One segment more for each w that were acked */
void tcp_cong_avoid_ai(struct tcp_sock *tp, u32 w, u32 acked)
{
	if (tp->snd_cwnd_cnt >= w) {
		tp->snd_cwnd_cnt = 0;
		tp->snd_cwnd++;
	}
	tp->snd_cwnd_cnt += acked;
	if (tp->snd_cwnd_cnt >= w) {
		tp->snd_cwnd += tp->snd_cwnd_cnt / w;
		tp->snd_cwnd_cnt %= w;
	}
}

void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);

	(void)ack;
	if (!tcp_is_cwnd_limited(sk))
		return;
	if (tcp_in_slow_start(tp))
		acked = tcp_slow_start(tp, acked);
	if (acked)
		tcp_cong_avoid_ai(tp, tp->snd_cwnd, acked);
}

u32 tcp_reno_undo_cwnd(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return tp->snd_cwnd > tp->prior_cwnd ? tp->snd_cwnd : tp->prior_cwnd;
}

/* ---- a path that a connection may have: clear, queueing, noisy, by turns ---- */

static u64 seed;

static u32 below(u32 limit)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (u32)((seed >> 16) % limit);
}

struct event {
	enum { ACK, LOSS, TIMEOUT, RESTART, UNDO, CA_LOSS, NEW, EXTREME } what;
	u32 acked, srtt_us, max_packets_out, prior_cwnd, cwnd, min_rtt_us;
	s32 rtt_us;
	u8 limited;
};

static struct event next_event(long step, u32 cwnd)
{
	static const u32 edges[] = { 0, 1, 2, 7, 8, 65535, 1U << 20, 1U << 21, 0x7ffffffe };
	u32 dice = below(1000), phase = (u32)(step / 700) % 3;
	struct event event = { .what = ACK };

	if (dice < 8)
		event.what = LOSS;
	else if (dice < 16)
		event.what = (int)(TIMEOUT + dice % 4);
	else if (dice == 16 && below(8) == 0)
		event.what = NEW;
	else if (dice == 17)
		event.what = EXTREME;
	event.acked = below(10) ? 1 + below(3) : below(70);
	event.min_rtt_us = 20000 + below(3);
	event.rtt_us = (s32)(20000 + (phase == 1 ? below(200) + 15 * (u32)(step % 700) : phase == 2 ? below(12000) : below(90)));
	if (below(50) == 0)
		event.rtt_us = -1;	/* an ACK without a sample */
	event.srtt_us = 8 * (20000 + below(phase == 2 ? 9000 : 500));
	event.limited = below(4) != 0;
	event.max_packets_out = below(2 * cwnd % 100000 + 1);
	event.cwnd = edges[below(9)];
	event.prior_cwnd = edges[below(9)];
	return event;
}

/* What TCP does around the callbacks; returns what the last one returned */
static u32 apply(const struct tcp_congestion_ops *ops, struct tcp_sock *tp, const struct event *event)
{
	struct sock *sk = (struct sock *)tp;
	struct ack_sample sample = { .pkts_acked = event->acked, .rtt_us = event->rtt_us };

	tp->srtt_us = event->srtt_us;
	tp->rtt_min.s[0].v = event->min_rtt_us;
	tp->max_packets_out = event->max_packets_out;
	tp->is_cwnd_limited = event->limited;
	switch (event->what) {
	case EXTREME:
		tp->snd_cwnd = event->cwnd ? event->cwnd : 1;
		tp->prior_cwnd = event->prior_cwnd;
		/* fall through */
	case ACK:
		if (ops->pkts_acked)
			ops->pkts_acked(sk, &sample);
		ops->cong_avoid(sk, 0, event->acked);
		if (tp->snd_cwnd > 1U << 22)
			tp->snd_cwnd = 1U << 22;	/* as a send buffer would */
		return 0;
	case LOSS:
		tp->prior_cwnd = tp->snd_cwnd;
		tp->snd_ssthresh = ops->ssthresh(sk);
		tp->snd_cwnd = tp->snd_ssthresh;
		return tp->snd_ssthresh;
	case TIMEOUT:
		tp->prior_cwnd = tp->snd_cwnd;
		tp->snd_ssthresh = ops->ssthresh(sk);
		ops->cwnd_event(sk, CA_EVENT_LOSS);
		ops->set_state(sk, TCP_CA_Loss);
		tp->snd_cwnd = 1;
		return tp->snd_ssthresh;
	case RESTART:
		ops->cwnd_event(sk, CA_EVENT_CWND_RESTART);
		tp->snd_cwnd = tp->snd_cwnd > 10 ? 10 : tp->snd_cwnd;
		return 0;
	case UNDO:
		tp->snd_cwnd = ops->undo_cwnd(sk);
		return tp->snd_cwnd;
	case CA_LOSS:
		ops->cwnd_event(sk, (enum tcp_ca_event)(event->acked % 4));
		ops->set_state(sk, event->acked % 5);
		return 0;
	case NEW:
		tp->snd_cwnd = 10;
		tp->snd_ssthresh = event->acked > 1 ? TCP_INFINITE_SSTHRESH : 20;	/* or from the route */
		ops->init(sk);
		return 0;
	}
	return 0;
}

static long drive(const struct tcp_congestion_ops *module, const struct tcp_congestion_ops *bpf, long steps)
{
	struct tcp_sock a, b;
	long grown = 0;

	memset(&a, 0, sizeof(a));
	a.snd_cwnd = 10;
	a.snd_ssthresh = TCP_INFINITE_SSTHRESH;
	b = a;
	module->init((struct sock *)&a);
	bpf->init((struct sock *)&b);
	for (long step = 0; step < steps; step++) {
		struct event event = next_event(step, a.snd_cwnd);
		u32 before = a.snd_cwnd;
		u32 got = apply(module, &a, &event), twin = apply(bpf, &b, &event);

		if (got != twin || memcmp(&a, &b, sizeof(a))) {
			fprintf(stderr, "%s and %s differ at step %ld, event %d: cwnd %u %u, ssthresh %u %u\n", module->name,
				bpf->name, step, event.what, a.snd_cwnd, b.snd_cwnd, a.snd_ssthresh, b.snd_ssthresh);
			exit(1);
		}
		grown += a.snd_cwnd > before;
	}
	return grown;
}

int main(int argc, char **argv)
{
	long steps = argc > 2 ? atol(argv[2]) : 100000;

	seed = argc > 1 ? strtoull(argv[1], NULL, 10) * 2 + 1 : 1;
	if (ndm_module_init())
		return 1;
	printf("%s %ld\n", registered[0]->name, drive(registered[0], &bpf_ndm, steps));
	printf("%s %ld\n", registered[1]->name, drive(registered[1], &bpf_ndm2, steps));
	ndm_module_exit();
	return registrations;
}
