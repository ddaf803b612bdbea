// SPDX-License-Identifier: GPL-2.0
/* Takes the name ndm2, so that a test can see what ndm_tcp.ko does then. */
#include <linux/module.h>
#include <net/tcp.h>

static struct tcp_congestion_ops namesake __read_mostly = {
	.ssthresh	= tcp_reno_ssthresh,
	.cong_avoid	= tcp_reno_cong_avoid,
	.undo_cwnd	= tcp_reno_undo_cwnd,
	.owner		= THIS_MODULE,
	.name		= "ndm2",
};

static int __init namesake_init(void)
{
	return tcp_register_congestion_control(&namesake);
}

static void __exit namesake_exit(void)
{
	tcp_unregister_congestion_control(&namesake);
}

module_init(namesake_init);
module_exit(namesake_exit);
MODULE_DESCRIPTION("Another ndm2");
MODULE_LICENSE("GPL");
