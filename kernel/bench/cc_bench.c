// SPDX-License-Identifier: GPL-2.0
/* What an ACK costs in the callbacks of each congestion control of a lab kernel.
 *
 *   insmod cc_bench.ko names=reno,cubic,bbr; dmesg | grep cc_bench
 *
 * One socket that is never connected gets each algorithm in turn, the state of a
 * connection in congestion avoidance, and then ACKs: of two segments each, with an
 * RTT of 40 ms and some jitter. Timed is what TCP calls for an ACK: pkts_acked and
 * cong_avoid, or cong_control. The same loop without the calls is taken off. Prints,
 * per algorithm, the least of ROUNDS, in thousandths of a TSC cycle per ACK.
 *
 * Caches are warm, nothing competes, and jiffies stand still on the virtual clock, so
 * that CUBIC takes its short way, as it does for all but the first ACK of a jiffy.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/math64.h>
#include <linux/module.h>
#include <linux/net.h>
#include <net/tcp.h>

#define ROUNDS	15
#define ACKS	50000
#define ACKED	2		/* segments per ACK: delayed ACKs */
#define CWND	100

static char *names[16];
static int count;
module_param_array(names, charp, &count, 0);
MODULE_PARM_DESC(names, "the algorithms");

static u64 tsc(void)
{
	u32 low, high;

	asm volatile("lfence; rdtsc; lfence" : "=a"(low), "=d"(high) : : "memory");
	return (u64)high << 32 | low;
}

/* What TCP has done to the connection before it calls the algorithm */
static void before_ack(struct tcp_sock *tp, struct ack_sample *sample, struct rate_sample *rs, u32 number)
{
	u32 rtt_us = 40000 + (number * 2654435761U >> 22);	/* up to 1 ms of jitter */

	tcp_snd_cwnd_set(tp, CWND);
	tp->snd_ssthresh = CWND / 2;
	tp->tcp_mstamp += 800;
	tp->delivered += ACKED;
	tp->delivered_mstamp = tp->tcp_mstamp;
	tp->srtt_us = rtt_us << 3;
	sample->rtt_us = rtt_us;
	rs->rtt_us = rtt_us;
	rs->prior_delivered = tp->delivered - CWND;
	rs->prior_mstamp = tp->tcp_mstamp - rtt_us;
	rs->interval_us = rtt_us;
}

static void acks(struct sock *sk, const struct tcp_congestion_ops *ops)
{
	struct ack_sample sample = { .pkts_acked = ACKED, .in_flight = CWND };
	struct rate_sample rs = { .delivered = CWND, .acked_sacked = ACKED, .prior_in_flight = CWND };
	struct tcp_sock *tp = tcp_sk(sk);

	for (u32 number = 0; number < ACKS; number++) {
		before_ack(tp, &sample, &rs, number);
		if (!ops)
			continue;
		if (ops->pkts_acked)
			ops->pkts_acked(sk, &sample);
		if (ops->cong_control)
			ops->cong_control(sk, 0, 0, &rs);
		else
			ops->cong_avoid(sk, 0, ACKED);
	}
}

static u64 least_cycles(struct sock *sk, const struct tcp_congestion_ops *ops)
{
	u64 least = U64_MAX;

	for (int round = 0; round < ROUNDS; round++) {
		u64 began = tsc();

		acks(sk, ops);
		least = min(least, tsc() - began);
	}
	return least;
}

static int measure(struct socket *sock, char *name)
{
	struct sock *sk = sock->sk;
	struct tcp_sock *tp = tcp_sk(sk);
	const struct tcp_congestion_ops *ops;
	u64 with, without;
	int err;

	err = sock->ops->setsockopt(sock, SOL_TCP, TCP_CONGESTION, KERNEL_SOCKPTR(name), strlen(name));
	if (err)
		return err;
	lock_sock(sk);
	ops = inet_csk(sk)->icsk_ca_ops;
	memset(inet_csk_ca(sk), 0, ICSK_CA_PRIV_SIZE);
	tp->packets_out = CWND;
	tp->max_packets_out = CWND;
	tp->mss_cache = 1448;
	tp->is_cwnd_limited = 1;
	minmax_reset(&tp->rtt_min, tcp_jiffies32, 40000);
	if (ops->init)
		ops->init(sk);
	without = least_cycles(sk, NULL);
	with = least_cycles(sk, ops);
	tp->packets_out = 0;
	release_sock(sk);
	with = with > without ? with - without : 0;
	pr_info("%s %llu\n", name, div_u64(with * 1000, ACKS));
	return 0;
}

static int __init cc_bench_init(void)
{
	struct socket *sock;
	int err;

	for (int index = 0; index < count; index++) {
		err = sock_create_kern(&init_net, AF_INET, SOCK_STREAM, IPPROTO_TCP, &sock);
		if (err)
			return err;
		err = measure(sock, names[index]);
		sock_release(sock);
		if (err)
			pr_info("%s error %d\n", names[index], err);
	}
	return 0;
}

static void __exit cc_bench_exit(void)
{
}

module_init(cc_bench_init);
module_exit(cc_bench_exit);
MODULE_AUTHOR("The Fairbed authors");
MODULE_DESCRIPTION("Cost of an ACK in each congestion control");
MODULE_LICENSE("GPL");
