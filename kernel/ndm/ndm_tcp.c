// SPDX-License-Identifier: GPL-2.0
/* NDM-TCP as a module: the kernel's side of ndm_core.h, which has the algorithm
 *
 * Registers two congestion controls:
 *   ndm_tcp  the published profile (v1): its window grows whether it is used or
 *            not. For experiments; warns when first used.
 *   ndm2     the fixed profile (v2).
 *
 * Callback prototypes and helpers are the same from 6.1 to 7.3, so that nothing
 * here depends on the kernel's version.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/inet_diag.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <net/tcp.h>

#define NDM_DIV64(n, d) div_u64(n, d)
#include "ndm_core.h"

/* What ss and inet_diag see, in struct tcpvegas_info:
 *
 *   tcpv_rtt      smoothed RTT, us (ss prints it as the RTT)
 *   tcpv_minrtt   the minimum RTT the profile works with, us; 0x7fffffff = none yet
 *   tcpv_enabled  bit 0     always 1
 *                 bits 1-5  flags: 1 data, 2 slow start (v1), 4 congestion,
 *                           8 loss, 16 noise (v2)
 *   tcpv_rttcnt   bits 0-9    entropy, 0..1000
 *                 bits 10-19  plasticity, 0..1000
 *                 bits 20-30  network output + 1000; v1: 1000..2000 (its delta of
 *                             the last ACK), v2: 0..2000
 *
 * This departs from the published get_info, which put the entropy where ss expects
 * the minimum RTT, and milliseconds where it expects microseconds.
 */
static size_t ndm_info(struct sock *sk, u32 ext, int *attr, union tcp_cc_info *info,
		       u32 min_rtt_us, u8 flags, u16 entropy, u16 plast, s32 output)
{
	if (!(ext & (1 << (INET_DIAG_VEGASINFO - 1))))
		return 0;
	info->vegas.tcpv_enabled = 1 | (u32)flags << 1;
	info->vegas.tcpv_rttcnt = entropy | (u32)plast << 10 | (u32)(output + 1000) << 20;
	info->vegas.tcpv_rtt = tcp_sk(sk)->srtt_us >> 3;
	info->vegas.tcpv_minrtt = min_t(u32, min_rtt_us, 0x7fffffff);
	*attr = INET_DIAG_VEGASINFO;
	return sizeof(struct tcpvegas_info);
}

/* ---- ndm_tcp: the published profile --------------------------------------- */

static void ndm_v1_cc_init(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);

	pr_warn_once("published behaviour: window is not bounded by use; for experiments\n");
	ndm_v1_init(inet_csk_ca(sk), tcp_snd_cwnd(tp), tp->snd_ssthresh);
	tp->snd_ssthresh = TCP_INFINITE_SSTHRESH;
}

static void ndm_v1_cc_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct ndm_v1_growth growth;

	if (!acked)
		return;
	growth = ndm_v1_ack(inet_csk_ca(sk), tcp_snd_cwnd(tp), tp->srtt_us >> 3, acked);
	if (growth.how == NDM_V1_SLOW_START)
		tcp_slow_start(tp, growth.segments);
	else if (growth.how == NDM_V1_ADDITIVE)
		tcp_cong_avoid_ai(tp, tcp_snd_cwnd(tp), growth.segments);
	else
		tcp_reno_cong_avoid(sk, ack, growth.segments);
}

static u32 ndm_v1_cc_ssthresh(struct sock *sk)
{
	return ndm_v1_ssthresh(inet_csk_ca(sk), tcp_snd_cwnd(tcp_sk(sk)));
}

static u32 ndm_v1_cc_undo_cwnd(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = ndm_v1_undo_cwnd(inet_csk_ca(sk), tcp_snd_cwnd(tp));

	tcp_snd_cwnd_set(tp, cwnd);
	return cwnd;
}

static void ndm_v1_cc_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_LOSS)
		ndm_v1_loss_event(inet_csk_ca(sk));
	else if (event == CA_EVENT_CWND_RESTART)
		ndm_v1_restart(inet_csk_ca(sk));
}

static void ndm_v1_cc_set_state(struct sock *sk, u8 new_state)
{
	if (new_state == TCP_CA_Loss)
		ndm_v1_timeout(inet_csk_ca(sk));
}

static size_t ndm_v1_cc_get_info(struct sock *sk, u32 ext, int *attr, union tcp_cc_info *info)
{
	const struct ndm_v1 *st = inet_csk_ca(sk);

	return ndm_info(sk, ext, attr, info, st->min_rtt_us, st->flags, st->entropy, st->plast, st->delta);
}

static struct tcp_congestion_ops ndm_v1_cc __read_mostly = {
	.init		= ndm_v1_cc_init,
	.ssthresh	= ndm_v1_cc_ssthresh,
	.cong_avoid	= ndm_v1_cc_cong_avoid,
	.undo_cwnd	= ndm_v1_cc_undo_cwnd,
	.cwnd_event	= ndm_v1_cc_cwnd_event,
	.set_state	= ndm_v1_cc_set_state,
	.get_info	= ndm_v1_cc_get_info,
	.owner		= THIS_MODULE,
	.name		= "ndm_tcp",
};

/* ---- ndm2: the fixed profile ----------------------------------------------- */

static void ndm_v2_cc_init(struct sock *sk)
{
	ndm_v2_init(inet_csk_ca(sk));
}

static void ndm_v2_cc_pkts_acked(struct sock *sk, const struct ack_sample *sample)
{
	ndm_v2_sample(inet_csk_ca(sk), sample->rtt_us);
}

static void ndm_v2_cc_look(struct sock *sk, u32 acked)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	const struct ndm_v2_path path = {
		.cwnd		= tcp_snd_cwnd(tp),
		.prior_cwnd	= tp->prior_cwnd,
		.min_rtt_us	= tcp_min_rtt(tp),
		.slow_start	= tcp_in_slow_start(tp),
	};

	ndm_v2_ack(inet_csk_ca(sk), acked, &path);
}

static void ndm_v2_cc_grow(struct tcp_sock *tp, struct ndm_v2 *st, u32 acked)
{
	acked = ndm_v2_credit(st, acked, tcp_in_slow_start(tp));
	if (acked && tcp_in_slow_start(tp))
		acked = tcp_slow_start(tp, acked);
	if (acked)
		tcp_cong_avoid_ai(tp, tcp_snd_cwnd(tp), acked);
}

static void ndm_v2_cc_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct ndm_v2 *st = inet_csk_ca(sk);

	ndm_v2_cc_look(sk, acked);
	if (!tcp_is_cwnd_limited(sk) || tcp_snd_cwnd(tp) >= NDM_V2_CWND_MAX)
		return;
	/* Slow start ends at a standing queue. */
	if (tcp_in_slow_start(tp) && (st->flags & NDM_CONG))
		tp->snd_ssthresh = tcp_snd_cwnd(tp);
	ndm_v2_cc_grow(tp, st, acked);
}

static u32 ndm_v2_cc_ssthresh(struct sock *sk)
{
	return ndm_v2_ssthresh(inet_csk_ca(sk), tcp_snd_cwnd(tcp_sk(sk)));
}

static void ndm_v2_cc_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_CWND_RESTART)
		ndm_v2_restart(inet_csk_ca(sk));
}

static void ndm_v2_cc_set_state(struct sock *sk, u8 new_state)
{
	if (new_state == TCP_CA_Loss)
		ndm_v2_timeout(inet_csk_ca(sk));
}

static size_t ndm_v2_cc_get_info(struct sock *sk, u32 ext, int *attr, union tcp_cc_info *info)
{
	const struct ndm_v2 *st = inet_csk_ca(sk);

	return ndm_info(sk, ext, attr, info, tcp_min_rtt(tcp_sk(sk)), st->flags, st->entropy, st->plast, st->y);
}

static struct tcp_congestion_ops ndm_v2_cc __read_mostly = {
	.init		= ndm_v2_cc_init,
	.ssthresh	= ndm_v2_cc_ssthresh,
	.cong_avoid	= ndm_v2_cc_cong_avoid,
	.pkts_acked	= ndm_v2_cc_pkts_acked,
	.undo_cwnd	= tcp_reno_undo_cwnd,
	.cwnd_event	= ndm_v2_cc_cwnd_event,
	.set_state	= ndm_v2_cc_set_state,
	.get_info	= ndm_v2_cc_get_info,
	.owner		= THIS_MODULE,
	.name		= "ndm2",
};

/* ---- registration ----------------------------------------------------------- */

static int __init ndm_register_one(struct tcp_congestion_ops *ops)
{
	int err = tcp_register_congestion_control(ops);

	if (err)
		pr_err("%s can't be registered (%d)%s\n", ops->name, err,
		       err == -EEXIST ? ": the name is taken; unload what has it first" : "");
	return err;
}

static int __init ndm_register(void)
{
	int err;

	BUILD_BUG_ON(sizeof(struct ndm_v1) > ICSK_CA_PRIV_SIZE);
	BUILD_BUG_ON(sizeof(struct ndm_v2) > ICSK_CA_PRIV_SIZE);
	err = ndm_register_one(&ndm_v1_cc);
	if (err)
		return err;
	err = ndm_register_one(&ndm_v2_cc);
	if (err) {
		tcp_unregister_congestion_control(&ndm_v1_cc);
		return err;
	}
	pr_info("state of a connection: ndm_tcp %zu, ndm2 %zu of at most %zu bytes\n",
		sizeof(struct ndm_v1), sizeof(struct ndm_v2), (size_t)ICSK_CA_PRIV_SIZE);
	return 0;
}

static void __exit ndm_unregister(void)
{
	tcp_unregister_congestion_control(&ndm_v2_cc);
	tcp_unregister_congestion_control(&ndm_v1_cc);
}

module_init(ndm_register);
module_exit(ndm_unregister);

MODULE_AUTHOR("The Fairbed authors");
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("NDM-TCP congestion control, published (ndm_tcp) and fixed (ndm2) profiles");
MODULE_VERSION("0.1.0");
MODULE_ALIAS("tcp_ndm_tcp");
MODULE_ALIAS("tcp_ndm2");
