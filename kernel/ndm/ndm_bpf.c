// SPDX-License-Identifier: GPL-2.0
/* NDM-TCP as BPF struct_ops: the same arithmetic (ndm_core.h) where no module may
 * be loaded. Registers bpf_ndm (published profile) and bpf_ndm2 (fixed profile).
 *
 * What differs from ndm_tcp.c is what BPF can't do: no get_info (the state is not
 * visible in ss), no warning at first use, and the rules of inline kernel helpers
 * are stated again below.
 */
#define BPF_NO_KFUNC_PROTOTYPES	/* newer bpftool declares them differently */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "ndm_core.h"

char _license[] SEC("license") = "GPL";

#define TCP_INFINITE_SSTHRESH	0x7fffffff

extern u32 tcp_slow_start(struct tcp_sock *tp, u32 acked) __ksym;
extern void tcp_cong_avoid_ai(struct tcp_sock *tp, u32 w, u32 acked) __ksym;
extern void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked) __ksym;
extern u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;

/* Members of icsk_ca_priv are ours: no relocation may touch their offsets. */
_Static_assert(sizeof(struct ndm_v1) <= sizeof(((struct inet_connection_sock *)0)->icsk_ca_priv),
	       "published state");
_Static_assert(sizeof(struct ndm_v2) <= sizeof(((struct inet_connection_sock *)0)->icsk_ca_priv),
	       "fixed state");

/* The kernel hands every sk to struct_ops programs as the tcp_sock that it is. */
static __always_inline struct tcp_sock *tcp_sk(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static __always_inline void *ndm_state(struct sock *sk)
{
	return ((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

static __always_inline bool ndm_in_slow_start(const struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

/* tcp_is_cwnd_limited() of net/tcp.h: in slow start the window may double what is used */
static __always_inline bool ndm_is_cwnd_limited(const struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return true;
	return ndm_in_slow_start(tp) && tp->snd_cwnd < 2 * tp->max_packets_out;
}

/* ---- bpf_ndm: the published profile ---------------------------------------- */

SEC("struct_ops/ndm_v1_cc_init")
void BPF_PROG(ndm_v1_cc_init, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);

	ndm_v1_init(ndm_state(sk), tp->snd_cwnd, tp->snd_ssthresh);
	tp->snd_ssthresh = TCP_INFINITE_SSTHRESH;
}

SEC("struct_ops/ndm_v1_cc_cong_avoid")
void BPF_PROG(ndm_v1_cc_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct ndm_v1_growth growth;

	if (!acked)
		return;
	growth = ndm_v1_ack(ndm_state(sk), tp->snd_cwnd, tp->srtt_us >> 3, acked);
	if (growth.how == NDM_V1_SLOW_START)
		tcp_slow_start(tp, growth.segments);
	else if (growth.how == NDM_V1_ADDITIVE)
		tcp_cong_avoid_ai(tp, tp->snd_cwnd, growth.segments);
	else
		tcp_reno_cong_avoid(sk, ack, growth.segments);
}

SEC("struct_ops/ndm_v1_cc_ssthresh")
u32 BPF_PROG(ndm_v1_cc_ssthresh, struct sock *sk)
{
	return ndm_v1_ssthresh(ndm_state(sk), tcp_sk(sk)->snd_cwnd);
}

SEC("struct_ops/ndm_v1_cc_undo_cwnd")
u32 BPF_PROG(ndm_v1_cc_undo_cwnd, struct sock *sk)
{
	u32 cwnd = ndm_v1_undo_cwnd(ndm_state(sk), tcp_sk(sk)->snd_cwnd);

	tcp_sk(sk)->snd_cwnd = cwnd;
	return cwnd;
}

SEC("struct_ops/ndm_v1_cc_cwnd_event")
void BPF_PROG(ndm_v1_cc_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_LOSS)
		ndm_v1_loss_event(ndm_state(sk));
	else if (event == CA_EVENT_CWND_RESTART)
		ndm_v1_restart(ndm_state(sk));
}

SEC("struct_ops/ndm_v1_cc_set_state")
void BPF_PROG(ndm_v1_cc_set_state, struct sock *sk, u8 new_state)
{
	if (new_state == TCP_CA_Loss)
		ndm_v1_timeout(ndm_state(sk));
}

SEC(".struct_ops")
struct tcp_congestion_ops bpf_ndm = {
	.init		= (void *)ndm_v1_cc_init,
	.ssthresh	= (void *)ndm_v1_cc_ssthresh,
	.cong_avoid	= (void *)ndm_v1_cc_cong_avoid,
	.undo_cwnd	= (void *)ndm_v1_cc_undo_cwnd,
	.cwnd_event	= (void *)ndm_v1_cc_cwnd_event,
	.set_state	= (void *)ndm_v1_cc_set_state,
	.name		= "bpf_ndm",
};

/* ---- bpf_ndm2: the fixed profile -------------------------------------------- */

SEC("struct_ops/ndm_v2_cc_init")
void BPF_PROG(ndm_v2_cc_init, struct sock *sk)
{
	ndm_v2_init(ndm_state(sk));
}

SEC("struct_ops/ndm_v2_cc_pkts_acked")
void BPF_PROG(ndm_v2_cc_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	ndm_v2_sample(ndm_state(sk), sample->rtt_us);
}

static __always_inline void ndm_v2_cc_look(struct sock *sk, u32 acked)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	const struct ndm_v2_path path = {
		.cwnd		= tp->snd_cwnd,
		.prior_cwnd	= tp->prior_cwnd,
		.min_rtt_us	= tp->rtt_min.s[0].v,	/* tcp_min_rtt() */
		.slow_start	= ndm_in_slow_start(tp),
	};

	ndm_v2_ack(ndm_state(sk), acked, &path);
}

static __always_inline void ndm_v2_cc_grow(struct tcp_sock *tp, struct ndm_v2 *st, u32 acked)
{
	acked = ndm_v2_credit(st, acked, ndm_in_slow_start(tp));
	if (acked && ndm_in_slow_start(tp))
		acked = tcp_slow_start(tp, acked);
	if (acked)
		tcp_cong_avoid_ai(tp, tp->snd_cwnd, acked);
}

SEC("struct_ops/ndm_v2_cc_cong_avoid")
void BPF_PROG(ndm_v2_cc_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct ndm_v2 *st = ndm_state(sk);

	ndm_v2_cc_look(sk, acked);
	if (!ndm_is_cwnd_limited(tp) || tp->snd_cwnd >= NDM_V2_CWND_MAX)
		return;
	/* Slow start ends at a standing queue. */
	if (ndm_in_slow_start(tp) && (st->flags & NDM_CONG))
		tp->snd_ssthresh = tp->snd_cwnd;
	ndm_v2_cc_grow(tp, st, acked);
}

SEC("struct_ops/ndm_v2_cc_ssthresh")
u32 BPF_PROG(ndm_v2_cc_ssthresh, struct sock *sk)
{
	return ndm_v2_ssthresh(ndm_state(sk), tcp_sk(sk)->snd_cwnd);
}

SEC("struct_ops/ndm_v2_cc_undo_cwnd")
u32 BPF_PROG(ndm_v2_cc_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SEC("struct_ops/ndm_v2_cc_cwnd_event")
void BPF_PROG(ndm_v2_cc_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_CWND_RESTART)
		ndm_v2_restart(ndm_state(sk));
}

SEC("struct_ops/ndm_v2_cc_set_state")
void BPF_PROG(ndm_v2_cc_set_state, struct sock *sk, u8 new_state)
{
	if (new_state == TCP_CA_Loss)
		ndm_v2_timeout(ndm_state(sk));
}

SEC(".struct_ops")
struct tcp_congestion_ops bpf_ndm2 = {
	.init		= (void *)ndm_v2_cc_init,
	.ssthresh	= (void *)ndm_v2_cc_ssthresh,
	.cong_avoid	= (void *)ndm_v2_cc_cong_avoid,
	.pkts_acked	= (void *)ndm_v2_cc_pkts_acked,
	.undo_cwnd	= (void *)ndm_v2_cc_undo_cwnd,
	.cwnd_event	= (void *)ndm_v2_cc_cwnd_event,
	.set_state	= (void *)ndm_v2_cc_set_state,
	.name		= "bpf_ndm2",
};
