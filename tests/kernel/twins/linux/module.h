/* SPDX-License-Identifier: GPL-2.0 */
/* all in net/tcp.h here */
