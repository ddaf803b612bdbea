/* SPDX-License-Identifier: GPL-2.0 */
/* As much of a kernel as ndm_tcp.c and ndm_bpf.c touch, in user space: both files are
 * compiled against it unchanged, so that they can be driven side by side (twins.c).
 * The rules of the TCP helpers are the ones that net/tcp.h and tcp_cong.c document.
 */
#ifndef TWINS_KERNEL_H
#define TWINS_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef unsigned long long u64;
typedef int16_t s16;
typedef int32_t s32;
typedef long long s64;

#define TCP_INFINITE_SSTHRESH	0x7fffffff
#define ICSK_CA_PRIV_SIZE	104
#define TCP_CA_Loss		4

enum tcp_ca_event { CA_EVENT_TX_START, CA_EVENT_CWND_RESTART, CA_EVENT_COMPLETE_CWR, CA_EVENT_LOSS };

struct sock { int unused; };

struct inet_connection_sock {
	struct sock sk;
	u64 icsk_ca_priv[ICSK_CA_PRIV_SIZE / sizeof(u64)];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 snd_cwnd, snd_cwnd_cnt, snd_ssthresh, prior_cwnd, srtt_us, max_packets_out;
	struct { struct { u32 t, v; } s[3]; } rtt_min;
	u8 is_cwnd_limited : 1;
};

struct ack_sample {
	u32 pkts_acked;
	s32 rtt_us;
	u32 in_flight;
};

union tcp_cc_info;

struct tcp_congestion_ops {
	void (*init)(struct sock *sk);
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	u32 (*undo_cwnd)(struct sock *sk);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event event);
	void (*set_state)(struct sock *sk, u8 new_state);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	size_t (*get_info)(struct sock *sk, u32 ext, int *attr, union tcp_cc_info *info);
	void *owner;
	char name[16];
};

u32 tcp_slow_start(struct tcp_sock *tp, u32 acked);
void tcp_cong_avoid_ai(struct tcp_sock *tp, u32 w, u32 acked);
void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked);
u32 tcp_reno_undo_cwnd(struct sock *sk);

#endif
