// SPDX-License-Identifier: GPL-2.0
/* ndm_core.h compiled for BPF, one program per call, so that the golden vectors run
 * through the arithmetic of the BPF build. Arguments, state and result are in the
 * one variable `call`, which user space reads and writes as a map.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "ndm_core.h"

char _license[] SEC("license") = "GPL";

struct call {
	struct ndm_v1 v1;
	struct ndm_v2 v2;
	struct ndm_window win;
	u32 arg[6];
	s32 result;
	u32 how;
} call;

#define CALL(name) SEC("syscall") int name(void *unused)

CALL(c_v1_act)
{
	call.result = ndm_v1_act((s32)call.arg[0]);
	return 0;
}

CALL(c_v1_squash)
{
	call.result = ndm_v1_squash((s32)call.arg[0]);
	return 0;
}

CALL(c_v1_network)
{
	call.result = ndm_v1_network(&call.v1, call.arg[0]);
	return 0;
}

CALL(c_v1_ack)
{
	struct ndm_v1_growth growth = ndm_v1_ack(&call.v1, call.arg[0], call.arg[1], call.arg[2]);

	call.result = (s32)growth.segments;
	call.how = growth.how;
	return 0;
}

CALL(c_v1_ssthresh)
{
	call.result = (s32)ndm_v1_ssthresh(&call.v1, call.arg[0]);
	return 0;
}

CALL(c_v2_act)
{
	call.result = ndm_v2_act((s32)call.arg[0]);
	return 0;
}

CALL(c_v2_entropy)
{
	call.result = (s32)ndm_v2_entropy(&call.win, call.arg[0]);
	return 0;
}

CALL(c_v2_ssthresh)
{
	call.result = (s32)ndm_v2_ssthresh(&call.v2, call.arg[0]);
	return 0;
}

CALL(c_v2_timeout)
{
	ndm_v2_timeout(&call.v2);
	return 0;
}

/* A trace row without its event: RTT sample, ACK, credit */
CALL(c_v2_row)
{
	const struct ndm_v2_path path = { call.arg[2], call.arg[3], call.arg[4], call.arg[5] != 0 };

	ndm_v2_sample(&call.v2, (s32)call.arg[0]);
	ndm_v2_ack(&call.v2, call.arg[1], &path);
	call.result = (s32)ndm_v2_credit(&call.v2, call.arg[1], path.slow_start);
	return 0;
}
