/* SPDX-License-Identifier: GPL-2.0 */
/* What the module includes and calls, see ../kernel.h */
#include "../kernel.h"

struct tcpvegas_info { u32 tcpv_enabled, tcpv_rttcnt, tcpv_rtt, tcpv_minrtt; };
union tcp_cc_info { struct tcpvegas_info vegas; };

#define INET_DIAG_VEGASINFO	3
#define __read_mostly
#define __init
#define __exit
#define THIS_MODULE		NULL
#define EEXIST			17
#define BUILD_BUG_ON(wrong)	_Static_assert(!(wrong), #wrong)
#define min_t(type, a, b)	((type)(a) < (type)(b) ? (type)(a) : (type)(b))
#define div_u64(n, d)		((u64)(n) / (u32)(d))
#define pr_warn_once(...)	((void)0)
#define pr_info(...)		((void)0)
#define pr_err(...)		((void)0)
#define module_init(f)		int ndm_module_init(void) { return f(); }
#define module_exit(f)		void ndm_module_exit(void) { f(); }
#define MODULE_AUTHOR(x)	_Static_assert(1, "")
#define MODULE_LICENSE(x)	_Static_assert(1, "")
#define MODULE_DESCRIPTION(x)	_Static_assert(1, "")
#define MODULE_VERSION(x)	_Static_assert(1, "")
#define MODULE_ALIAS(x)		_Static_assert(1, "")

int tcp_register_congestion_control(struct tcp_congestion_ops *ops);
void tcp_unregister_congestion_control(struct tcp_congestion_ops *ops);

static inline struct tcp_sock *tcp_sk(const struct sock *sk) { return (struct tcp_sock *)sk; }
static inline void *inet_csk_ca(const struct sock *sk) { return ((struct inet_connection_sock *)sk)->icsk_ca_priv; }
static inline u32 tcp_snd_cwnd(const struct tcp_sock *tp) { return tp->snd_cwnd; }
static inline void tcp_snd_cwnd_set(struct tcp_sock *tp, u32 cwnd) { tp->snd_cwnd = cwnd; }
static inline u32 tcp_min_rtt(const struct tcp_sock *tp) { return tp->rtt_min.s[0].v; }
static inline bool tcp_in_slow_start(const struct tcp_sock *tp) { return tp->snd_cwnd < tp->snd_ssthresh; }

static inline bool tcp_is_cwnd_limited(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (tp->is_cwnd_limited)
		return true;
	return tcp_in_slow_start(tp) && tp->snd_cwnd < 2 * tp->max_packets_out;
}
